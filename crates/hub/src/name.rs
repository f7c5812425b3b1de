//! Names of models on the Hugging Face Hub.

use std::fmt;
use std::str::FromStr;

use crate::error::HubError;

/// The prefix of a name.
pub const PREFIX: &str = "hf:";

/// The revision that is used if none is named.
pub const MAIN: &str = "main";

/// `hf:ORG/NAME[@REVISION][/FILE.gguf]`: a repository, its branch, tag or commit, and one of its files.
///
/// A revision that contains a slash cannot be combined with a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelName {
    repository: String,
    revision: String,
    file: Option<String>,
}

impl ModelName {
    /// Returns true if `text` begins like a name.
    pub fn is_name(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    /// The repository: `ORG/NAME`, or `NAME` for the oldest models.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The last part of the repository, without its owner.
    pub fn short(&self) -> &str {
        self.repository
            .rsplit_once('/')
            .map_or(&self.repository, |(_, name)| name)
    }

    /// The branch, tag or commit.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The path of the file in the repository.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// The same repository and file at another revision.
    pub fn at(&self, revision: &str) -> Self {
        Self {
            revision: revision.to_owned(),
            ..self.clone()
        }
    }

    /// The repository's folder in the cache.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}", self.repository.replace('/', "--"))
    }

    /// The repository with this folder in the cache, at its main revision; `None` for other folders.
    pub(crate) fn of_folder(folder: &str) -> Option<Self> {
        let repository = folder.strip_prefix("models--")?.replacen("--", "/", 1);
        check_repository(&repository).ok()?;
        Some(Self {
            repository,
            revision: MAIN.to_owned(),
            file: None,
        })
    }
}

impl FromStr for ModelName {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self, HubError> {
        let broken = |rule| HubError::Name {
            text: text.to_owned(),
            rule,
        };
        let body = text
            .strip_prefix(PREFIX)
            .ok_or_else(|| broken("must begin with hf:"))?;
        let (repository, revision, file) = match body.split_once('@') {
            Some((repository, rest)) => match rest.split_once('/') {
                Some((revision, file)) if is_gguf(file) => (repository, revision, Some(file)),
                _ => (repository, rest, None),
            },
            None => match body.match_indices('/').nth(1) {
                Some((at, _)) => (&body[..at], MAIN, Some(&body[at + 1..])),
                None => (body, MAIN, None),
            },
        };
        check_repository(repository).map_err(broken)?;
        check_revision(revision).map_err(broken)?;
        if let Some(file) = file {
            if !is_gguf(file) {
                return Err(broken("the file must be a GGUF file (FILE.gguf)"));
            }
            if !is_inside(file) {
                return Err(broken("the file must be a path within the repository"));
            }
        }
        Ok(Self {
            repository: repository.to_owned(),
            revision: revision.to_owned(),
            file: file.map(str::to_owned),
        })
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.repository)?;
        if self.revision != MAIN {
            write!(f, "@{}", self.revision)?;
        }
        match &self.file {
            Some(file) => write!(f, "/{file}"),
            None => Ok(()),
        }
    }
}

/// Returns true for the path of a GGUF file.
pub(crate) fn is_gguf(path: &str) -> bool {
    path.to_ascii_lowercase().ends_with(".gguf")
}

/// Returns true if the relative path stays within its folder.
pub(crate) fn is_inside(path: &str) -> bool {
    let harmless = |part: &str| {
        !matches!(part, "" | "." | "..")
            && !part.contains(['\\', ':'])
            && !part.contains(char::is_control)
    };
    path.split('/').all(harmless)
}

/// The rules of the Hub for repository ids.
fn check_repository(repository: &str) -> Result<(), &'static str> {
    const LONGEST: usize = 96;
    let parts: Vec<&str> = repository.split('/').collect();
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let edge = |part: &str| part.starts_with(['-', '.']) || part.ends_with(['-', '.']);
    if parts.len() > 2 || parts.iter().any(|part| part.is_empty()) {
        return Err("must be hf:ORG/NAME[@REVISION][/FILE.gguf]");
    }
    if repository.len() > LONGEST {
        return Err("the repository must have at most 96 characters");
    }
    if !parts.iter().all(|part| part.chars().all(allowed)) {
        return Err("the repository must consist of letters, digits, `-`, `_` and `.`");
    }
    if parts.iter().any(|part| edge(part)) || repository.contains("--") || repository.contains("..")
    {
        return Err(
            "the repository must not contain `--` or `..`, nor begin or end with `-` or `.`",
        );
    }
    Ok(())
}

fn check_revision(revision: &str) -> Result<(), &'static str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_./+".contains(c);
    match is_inside(revision) && revision.chars().all(allowed) {
        true => Ok(()),
        false => Err("the revision must be a branch, tag or commit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        let read = |text: &str| {
            let name: ModelName = text.parse().unwrap();
            assert_eq!(name.to_string(), text.replace("@main", ""));
            (
                name.repository().to_owned(),
                name.revision().to_owned(),
                name.file().map(str::to_owned),
            )
        };
        let all = |a: &str, b: &str, c: Option<&str>| (a.into(), b.into(), c.map(String::from));
        assert_eq!(read("hf:a/b"), all("a/b", "main", None));
        assert_eq!(read("hf:gpt2"), all("gpt2", "main", None));
        assert_eq!(read("hf:a/b@main"), all("a/b", "main", None));
        assert_eq!(read("hf:a/b@refs/pr/1"), all("a/b", "refs/pr/1", None));
        assert_eq!(read("hf:a/b/c.gguf"), all("a/b", "main", Some("c.gguf")));
        assert_eq!(
            read("hf:a/b@v1/Q8/c.gguf"),
            all("a/b", "v1", Some("Q8/c.gguf"))
        );
    }

    #[test]
    fn names_that_leave_the_cache_or_break_the_hubs_rules_are_refused() {
        let broken = [
            "a/b",
            "hf:",
            "hf:/b",
            "hf:a/",
            "hf:../b",
            "hf:a/..",
            "hf:a--b/c",
            "hf:a/b@",
            "hf:a/b@../x",
            "hf:a/b@/x",
            "hf:a/b/c",
            "hf:a/b/../c.gguf",
            "hf:a/b//c.gguf",
            "hf:a b/c",
            "hf:a/b@x\n",
        ];
        for text in broken {
            assert!(text.parse::<ModelName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_folder_of_the_cache_names_its_repository() {
        let name: ModelName = "hf:org/a-model".parse().unwrap();
        assert_eq!(ModelName::of_folder(&name.folder()), Some(name));
        for folder in ["datasets--a--b", "models--", "models--..--x"] {
            assert_eq!(ModelName::of_folder(folder), None, "{folder}");
        }
    }
}

//! The folders and names of the Hub that an administrator may load models from.

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_hub::ModelName;
use emberlm_serve::RefusedLoad;

use super::models::ModelSpec;
use crate::error::CliError;
use crate::hub;

/// A root that admits all names on the Hub.
const WHOLE_HUB: &str = "hf:*";
/// The prefix of names on the Hub.
const HUB: &str = "hf:";

/// The folders and names of the Hub that models may be loaded from.
#[derive(Debug)]
pub struct Roots {
    /// Canonical paths.
    folders: Vec<PathBuf>,
    /// Owners (`hf:ORG`), repositories (`hf:ORG/NAME`), or [`WHOLE_HUB`].
    hub: Vec<String>,
}

impl Roots {
    /// Checks the values of `--model-root`.
    ///
    /// # Errors
    /// A folder does not exist, or a name is invalid.
    pub fn new(written: &[PathBuf]) -> Result<Self, CliError> {
        let mut roots = Self {
            folders: Vec::new(),
            hub: Vec::new(),
        };
        for root in written {
            match root.to_str().filter(|text| text.starts_with(HUB)) {
                Some(text) => {
                    let is_owner = !text.contains('/') && text.len() > HUB.len();
                    if !is_owner && text != WHOLE_HUB {
                        text.parse::<ModelName>()?;
                    }
                    roots.hub.push(text.to_owned());
                }
                None => {
                    let folder = fs::canonicalize(root).map_err(CliError::io("open", root))?;
                    roots.folders.push(folder);
                }
            }
        }
        Ok(roots)
    }

    /// The path by which a model may be opened: without symbolic links and `..`, or a name on the Hub. The models that are
    /// `named` by the command line or its file are admitted, too.
    ///
    /// # Errors
    /// It is not below a root, or does not exist.
    pub fn admit(&self, path: &Path, named: &[ModelSpec]) -> Result<PathBuf, RefusedLoad> {
        let refused = || {
            let message = format!(
                "{} is not allowed: the path must exist below a --model-root, or be that of a model which the server was started with",
                path.display()
            );
            RefusedLoad::Path(message)
        };
        let name =
            hub::name(path).map_err(|error| RefusedLoad::Path(error.message().to_owned()))?;
        if let Some(name) = name {
            let is_allowed = self.hub.iter().any(|root| admits_name(root, &name));
            return match is_allowed || named.iter().any(|spec| spec.written == path) {
                true => Ok(path.to_owned()),
                false => Err(RefusedLoad::Path(format!(
                    "{} is not allowed: start the server with --model-root hf:{}, or another root with this name",
                    path.display(),
                    name.repository()
                ))),
            };
        }
        let canonical = fs::canonicalize(path).map_err(|_| refused())?;
        let is_below = self.folders.iter().any(|root| canonical.starts_with(root));
        let is_named = |spec: &ModelSpec| is_same(&spec.path, &canonical);
        match is_below || named.iter().any(is_named) {
            true => Ok(canonical),
            false => Err(refused()),
        }
    }
}

/// Returns true if `path` leads to the canonical path `canonical`.
pub fn is_same(path: &Path, canonical: &Path) -> bool {
    fs::canonicalize(path).is_ok_and(|path| path == canonical)
}

/// Returns true if a root of the Hub admits a name.
fn admits_name(root: &str, name: &ModelName) -> bool {
    let root = root.strip_prefix(HUB).unwrap_or(root);
    let repository = name.repository();
    let owner = repository.split_once('/').map(|(owner, _)| owner);
    root == "*" || root == repository || owner == Some(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_admit_owners_and_repositories() {
        let name = |text: &str| text.parse::<ModelName>().unwrap();
        for (root, text, admitted) in [
            ("hf:a", "hf:a/b", true),
            ("hf:a", "hf:ab/b", false),
            ("hf:a/b", "hf:a/b", true),
            ("hf:a/b", "hf:a/b@v1/x.gguf", true),
            ("hf:a/b", "hf:a/bc", false),
            ("hf:*", "hf:a/b", true),
        ] {
            assert_eq!(admits_name(root, &name(text)), admitted, "{root} {text}");
        }
    }

    #[test]
    fn roots_must_exist() {
        assert!(Roots::new(&["no/such/folder".into()]).is_err());
        assert!(Roots::new(&["hf:".into()]).is_err());
        assert!(Roots::new(&["hf:*".into(), "hf:org".into()]).is_ok());
    }
}

//! The names of tasks, groups and tags in the files of a folder.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::config::OneOrMore;
use super::keys::Keys;
use crate::evaluate::tasks::TaskError;

/// The readable files of a folder, in the order of their names.
pub(super) struct Registry {
    files: Vec<NamedFile>,
}

/// A file with its names.
pub(super) struct NamedFile {
    pub(super) name: String,
    pub(super) keys: Keys,
    tags: Vec<String>,
    pub(super) is_group: bool,
}

/// The meaning of a name.
pub(super) enum Named<'a> {
    Task(&'a NamedFile),
    Group(&'a NamedFile),
    /// The tasks with a tag, in the order of their names.
    Tag(Vec<&'a NamedFile>),
}

impl Registry {
    /// Reads the files in the folder of `path`.
    pub(super) fn beside(path: &Path) -> Result<Self, TaskError> {
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let failed = |source| TaskError::Read {
            path: folder.to_owned(),
            source,
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name());
        }
        names.retain(|name| {
            let extension = Path::new(name).extension();
            extension.is_some_and(|extension| extension == "yaml" || extension == "yml")
        });
        names.sort();
        let files = names.iter().map(|name| path.with_file_name(name));
        // Others may need Python, and are no task here.
        Ok(Self {
            files: files.filter_map(NamedFile::read).collect(),
        })
    }

    /// The file or the tag with a name.
    ///
    /// # Errors
    /// The reason, if two files have the name.
    pub(super) fn find(&self, name: &str) -> Result<Option<Named<'_>>, String> {
        let named: Vec<&NamedFile> = self.files.iter().filter(|it| it.name == name).collect();
        match named[..] {
            [] => {}
            [file] if file.is_group => return Ok(Some(Named::Group(file))),
            [file] => return Ok(Some(Named::Task(file))),
            [first, second, ..] => {
                let [first, second] = [first, second].map(|it| it.keys.path().display());
                return Err(format!("{first} and {second} are both named {name}"));
            }
        }
        let has_tag = |it: &&NamedFile| !it.is_group && it.tags.iter().any(|tag| tag == name);
        let mut tagged: Vec<&NamedFile> = self.files.iter().filter(has_tag).collect();
        tagged.sort_by(|one, other| one.name.cmp(&other.name));
        Ok((!tagged.is_empty()).then_some(Named::Tag(tagged)))
    }
}

impl NamedFile {
    fn read(path: PathBuf) -> Option<Self> {
        let keys = Keys::read(&path, 0).ok()?;
        let is_group = is_group(&keys).ok()?;
        let name = match is_group {
            true => keys.take("group").ok()??,
            false => keys.task_name().ok()?,
        };
        let tags = keys.take::<OneOrMore>("tag").ok()?;
        Some(Self {
            name,
            tags: tags.map(OneOrMore::list).unwrap_or_default(),
            keys,
            is_group,
        })
    }
}

/// Returns true if a file describes a group.
pub(super) fn is_group(keys: &Keys) -> Result<bool, TaskError> {
    let is_list = keys
        .take("task")?
        .is_some_and(|task: Value| task.is_array());
    Ok(is_list && keys.take::<Value>("group")?.is_some())
}

//! Access to the keys of an architecture.

use std::cell::RefCell;
use std::collections::BTreeSet;

use emberlm_gguf::{GgufError, Value};

use super::architecture::Architecture;
use super::described::Described;
use super::key_names::VOCABULARY;

/// Keys that describe a file, not a model.
const IGNORED: [&str; 3] = [
    VOCABULARY,
    "rope.scaling.finetuned",
    "decoder_start_token_id",
];

type Read<T> = Result<T, GgufError>;

/// The keys of an architecture. Keys that are never read are reported by [`Keys::check_all_read`], because they may
/// request something that is not computed.
pub(super) struct Keys<'a> {
    file: &'a dyn Described,
    architecture: &'static Architecture,
    read: RefCell<BTreeSet<String>>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(file: &'a dyn Described, architecture: &'static Architecture) -> Self {
        Self {
            file,
            architecture,
            read: RefCell::default(),
        }
    }

    pub(super) fn file(&self) -> &'a dyn Described {
        self.file
    }

    pub(super) fn architecture(&self) -> &'static Architecture {
        self.architecture
    }

    fn key(&self, name: &str) -> String {
        let key = self.architecture.key(name);
        self.read.borrow_mut().insert(key.clone());
        key
    }

    /// Builds an error about a key that violates `rule`.
    pub(super) fn error(&self, name: &str, rule: impl Into<String>) -> GgufError {
        self.file.metadata().error(&self.key(name), rule)
    }

    /// Returns true if the file has the tensor `NAME.weight` or `NAME.bias`, as named.
    pub(super) fn has_tensor(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    /// A size. Lists with one value per layer must have equal values.
    pub(super) fn optional_size(&self, name: &str) -> Read<Option<u64>> {
        let key = self.key(name);
        let metadata = self.file.metadata();
        if let Some(Value::Array(list)) = metadata.get(&key) {
            let first = list.get(0).and_then(|value| value.integer());
            let equal = list.iter().all(|value| value.integer() == first);
            let size = first.and_then(|size| u64::try_from(size).ok());
            return match (size, equal) {
                (Some(size), true) => Ok(Some(size)),
                _ => {
                    Err(metadata.error(&key, "values that differ between layers are not supported"))
                }
            };
        }
        metadata.count(&key)
    }

    /// A size that must be present.
    pub(super) fn size(&self, name: &str) -> Read<u64> {
        let size = self.optional_size(name)?;
        size.ok_or_else(|| self.error(name, "must be given"))
    }

    /// A number, if present.
    pub(super) fn number(&self, name: &str) -> Read<Option<f64>> {
        self.file.metadata().number(&self.key(name))
    }

    /// A boolean, if present.
    pub(super) fn flag(&self, name: &str) -> Read<Option<bool>> {
        self.file.metadata().flag(&self.key(name))
    }

    /// A string, if present.
    pub(super) fn text(&self, name: &str) -> Read<Option<&'a str>> {
        self.file.metadata().text(&self.key(name))
    }

    /// The layers for which a list of flags is true. A whole number `n` in place of the list means all layers but the
    /// last of every `n`, as does `default`.
    pub(super) fn layers(&self, name: &str, layers: u64, default: u64) -> Read<Vec<bool>> {
        let key = self.key(name);
        let metadata = self.file.metadata();
        let every = match metadata.get(&key) {
            Some(Value::Array(list)) => {
                let flag = |value: Value| match value {
                    Value::Bool(flag) => Some(flag),
                    other => other.integer().map(|number| number != 0),
                };
                let flags: Option<Vec<bool>> = list.iter().map(flag).collect();
                let flags = flags.filter(|flags| flags.len() as u64 == layers);
                let rule = || format!("must have a flag for each of the {layers} layers");
                return flags.ok_or_else(|| metadata.error(&key, rule()));
            }
            Some(_) => self.size(name)?,
            None => default,
        };
        if every == 0 {
            return Err(self.error(name, "must be at least 1"));
        }
        Ok((1..=layers)
            .map(|layer| !layer.is_multiple_of(every))
            .collect())
    }

    /// Returns the error `rule` if a key is present.
    pub(super) fn refuse(&self, name: &str, rule: &str) -> Read<()> {
        match self.file.metadata().get(&self.key(name)) {
            None => Ok(()),
            Some(_) => Err(self.error(name, rule)),
        }
    }

    /// Checks that every key of the architecture has been read.
    pub(super) fn check_all_read(&self) -> Read<()> {
        let prefix = self.architecture.key("");
        let read = self.read.borrow();
        for (key, _) in self.file.metadata().iter() {
            let Some(name) = key.strip_prefix(&prefix) else {
                continue;
            };
            if !IGNORED.contains(&name) && !read.contains(key) {
                let rule = "is not supported for this architecture";
                return Err(self.file.metadata().error(key, rule));
            }
        }
        Ok(())
    }
}

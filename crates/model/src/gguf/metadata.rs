//! Access to the keys of an architecture.

use std::cell::RefCell;
use std::collections::BTreeSet;

use emberlm_gguf::{GgufError, Value};

use super::architecture::Architecture;
use super::described::Described;
use super::key_names::{LAYERS, PREDICTIONS, VOCABULARY};

/// Keys that describe a file, not a model.
const IGNORED: [&str; 3] = [
    VOCABULARY,
    "rope.scaling.finetuned",
    "decoder_start_token_id",
];

/// Keys that architectures other than those that read them may have, and the values with which they have no effect.
const WITHOUT_EFFECT: [(&str, &[f64]); 22] = [
    ("attention.clamp_kqv", &[0.0]),
    ("attention.max_alibi_bias", &[0.0]),
    ("attention.scale", &[0.0]),
    ("attention.sliding_window", &[0.0]),
    ("attn_logit_softcapping", &[0.0]),
    ("embedding_scale", &[0.0, 1.0]),
    ("expert_count", &[0.0]),
    ("expert_group_count", &[0.0, 1.0]),
    ("expert_group_used_count", &[0.0, 1.0]),
    ("expert_shared_count", &[0.0]),
    ("expert_used_count", &[0.0]),
    ("expert_weights_scale", &[0.0, 1.0]),
    ("final_logit_softcapping", &[0.0]),
    ("leading_dense_block_count", &[0.0]),
    ("logit_scale", &[0.0, 1.0]),
    ("nextn_predict_layers", &[0.0]),
    ("pooling_type", &[0.0]),
    ("residual_scale", &[0.0, 1.0]),
    ("rope.scaling.attn_factor", &[1.0]),
    ("rope.scaling.factor", &[0.0, 1.0]),
    ("rope.scaling.yarn_log_multiplier", &[0.0]),
    ("swin_norm", &[0.0]),
];

type Read<T> = Result<T, GgufError>;

/// Returns true if a key that is not read has no effect.
fn is_without_effect(name: &str, value: &Value) -> bool {
    let number = match value {
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        other => other.number(),
    };
    let known = WITHOUT_EFFECT.iter().find(|(known, _)| *known == name);
    IGNORED.contains(&name)
        || known.is_some_and(|(_, values)| number.is_some_and(|number| values.contains(&number)))
}

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

    /// The number of the model's blocks, which those of multi-token prediction follow.
    pub(super) fn blocks(&self) -> Read<u64> {
        let all = self.size(LAYERS)?;
        if !self.architecture.predictions {
            return Ok(all);
        }
        let predictions = self.optional_size(PREDICTIONS)?.unwrap_or(0);
        let rule = || format!("must be less than the {all} blocks of the file");
        let blocks = all.checked_sub(predictions).filter(|&blocks| blocks > 0);
        blocks.ok_or_else(|| self.error(PREDICTIONS, rule()))
    }

    /// Whole numbers, if present.
    pub(super) fn sizes(&self, name: &str) -> Read<Option<Vec<u64>>> {
        let key = self.key(name);
        let metadata = self.file.metadata();
        let Some(value) = metadata.get(&key) else {
            return Ok(None);
        };
        let size = |value: Value| u64::try_from(value.integer()?).ok();
        let sizes = match value {
            Value::Array(list) => list.iter().map(size).collect::<Option<Vec<u64>>>(),
            _ => None,
        };
        let rule = "must be a list of whole numbers of at least 0";
        sizes.map_or_else(|| Err(metadata.error(&key, rule)), |sizes| Ok(Some(sizes)))
    }

    /// Returns true if a key is given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.file.metadata().get(&self.key(name)).is_some()
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

    /// Checks that every key of the architecture has been read.
    pub(super) fn check_all_read(&self) -> Read<()> {
        let prefix = self.architecture.key("");
        let read = self.read.borrow();
        for (key, value) in self.file.metadata().iter() {
            let Some(name) = key.strip_prefix(&prefix) else {
                continue;
            };
            if !read.contains(key) && !is_without_effect(name, value) {
                let rule = "is not supported for this architecture";
                return Err(self.file.metadata().error(key, rule));
            }
        }
        Ok(())
    }
}

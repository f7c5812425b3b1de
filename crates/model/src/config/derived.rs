//! Defaults of the sizes that a configuration may leave out.
//!
//! | size | default |
//! |---|---|
//! | `kv_heads` | `heads` |
//! | `head_dim` | `d_model / heads` |
//! | `feed_forward.width` | `feed_forward.expansion · d_model`; `expansion` defaults to 4 |
//! | `position.dims` | `head_dim`, or `latent_attention.rope_dim` |
//! | `attention.features` | `4 · head_dim` |

use super::{AttentionKind, FeedForward, ModelConfig, Position};
use crate::error::ConfigError;

/// A size that the configuration leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DerivedSize {
    /// Table below `model` that holds the key; empty for `model` itself.
    pub table: &'static str,
    /// Key in the table.
    pub key: &'static str,
    /// The derived value.
    pub value: usize,
    /// Expression for the derived value.
    pub from: &'static str,
}

/// Default ratio of a feed-forward layer's hidden width to `d_model`.
const EXPANSION: f64 = 4.0;

impl FeedForward {
    /// Hidden elements in a model of width `d_model`.
    pub fn width_for(&self, d_model: usize) -> usize {
        let derived = self.expansion.unwrap_or(EXPANSION) * d_model as f64;
        self.width.unwrap_or(derived.round() as usize)
    }
}

impl ModelConfig {
    /// Key-value heads per block.
    pub fn kv_heads_or_derived(&self) -> usize {
        self.kv_heads.unwrap_or(self.heads)
    }

    /// Width of a head.
    ///
    /// # Errors
    /// `head_dim` is not set, and `heads` does not divide `d_model`.
    pub fn head_dim_or_derived(&self) -> Result<usize, ConfigError> {
        match self.head_dim {
            Some(head_dim) => Ok(head_dim),
            None if self.d_model.is_multiple_of(self.heads) => Ok(self.d_model / self.heads),
            None => {
                let rule = format!("must divide d_model = {}", self.d_model);
                Err(ConfigError::new("heads", self.heads, rule))
            }
        }
    }

    /// The elements of a head that is `head_dim` wide that rotary positions rotate by default.
    pub(crate) fn rotatable_dim(&self, head_dim: usize) -> usize {
        let latent = self.latent_attention.as_ref();
        latent.map_or(head_dim, |latent| latent.rope_dim_for(head_dim))
    }

    /// The sizes that the configuration leaves out, with their derived values.
    pub fn derived_sizes(&self) -> Vec<DerivedSize> {
        let head_dim = match self.heads {
            0 => None,
            _ => self.head_dim_or_derived().ok(),
        };
        let size = |table, key, value: Option<usize>, from| {
            value.map(|value| DerivedSize {
                table,
                key,
                value,
                from,
            })
        };
        let unset = |set: Option<usize>, value: Option<usize>| match set {
            Some(_) => None,
            None => value,
        };
        let (features, dims) = (
            match self.attention {
                AttentionKind::Linear { features: None, .. } => {
                    head_dim.map(|dim| dim.saturating_mul(4))
                }
                _ => None,
            },
            match self.position {
                Position::Rotary { dims: None, .. } => {
                    head_dim.map(|head_dim| self.rotatable_dim(head_dim))
                }
                _ => None,
            },
        );
        let dims_from = match self.latent_attention {
            Some(_) => "latent_attention.rope_dim",
            None => "head_dim",
        };
        let width = self.feed_forward.width_for(self.d_model);
        let width_from = match self.feed_forward.expansion {
            Some(_) => "expansion * d_model",
            None => "4 * d_model",
        };
        [
            size(
                "",
                "kv_heads",
                unset(self.kv_heads, Some(self.heads)),
                "heads",
            ),
            size(
                "",
                "head_dim",
                unset(self.head_dim, head_dim),
                "d_model / heads",
            ),
            size("attention", "features", features, "4 * head_dim"),
            size("position", "dims", dims, dims_from),
            size(
                "feed_forward",
                "width",
                unset(self.feed_forward.width, Some(width)),
                width_from,
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families;
    use crate::transformer::checked::TransformerConfig;

    fn sizes(change: impl FnOnce(&mut ModelConfig), preset: &str) -> [usize; 3] {
        let mut raw = families::preset(preset).expect("a preset").config;
        raw.vocab_size = Some(65);
        change(&mut raw);
        let config = TransformerConfig::try_from(raw).expect("a model");
        [
            config.kv_heads(),
            config.head_dim(),
            config.feed_forward_width(),
        ]
    }

    #[test]
    fn derived_sizes_follow_their_source_unless_set() {
        assert_eq!(sizes(|_| {}, "char-nano"), [4, 32, 512]);
        assert_eq!(sizes(|raw| raw.heads = 8, "char-nano"), [8, 16, 512]);
        assert_eq!(sizes(|raw| raw.d_model = 256, "char-nano"), [4, 64, 1024]);
        let set = |raw: &mut ModelConfig| (raw.heads, raw.kv_heads) = (8, Some(2));
        assert_eq!(sizes(set, "char-nano"), [2, 16, 512]);
        // The preset sets grouped queries and the feed-forward width itself.
        assert_eq!(sizes(|raw| raw.heads = 8, "pocket-tales"), [2, 12, 384]);
        let narrow = |raw: &mut ModelConfig| raw.d_model = 512;
        assert_eq!(sizes(narrow, "tinyllama-1.1b"), [4, 16, 1408]);
        assert_eq!(sizes(|_| {}, "llama-2-7b"), [32, 128, 11_008]);
        assert_eq!(sizes(|_| {}, "cs336"), [16, 32, 1365]);
    }

    #[test]
    fn derived_sizes_are_those_of_the_checked_configuration() {
        for preset in families::presets() {
            let mut raw = preset.config;
            raw.vocab_size.get_or_insert(65);
            let mut written = raw.clone();
            for size in raw.derived_sizes() {
                let value = Some(size.value);
                match (size.table, size.key) {
                    ("", "kv_heads") => written.kv_heads = value,
                    ("", "head_dim") => written.head_dim = value,
                    ("feed_forward", "width") => written.feed_forward.width = value,
                    ("position", "dims") => {
                        if let Position::Rotary { dims, .. } = &mut written.position {
                            *dims = value;
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert!(written.derived_sizes().is_empty(), "{}", preset.name);
            assert_eq!(
                TransformerConfig::try_from(written).expect("a model"),
                TransformerConfig::try_from(raw).expect("a model"),
                "{}",
                preset.name
            );
        }
    }
}

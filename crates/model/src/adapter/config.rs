//! Settings of low-rank adapters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::modules::AdaptableModule;
use crate::config::limits::{F32_RULE, is_in_f32};
use crate::error::AdapterError;
use crate::transformer::weight_format::WeightFormat;

/// The upper bound of ranks. Useful ones are below the widths of models.
const LARGEST_RANK: usize = 1 << 16;

/// The target that stands for all linear layers of the blocks.
pub const ALL_LINEAR: &str = "all-linear";

/// Biases of the base model that are trained and saved with an adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdapterBias {
    /// None.
    #[default]
    None,
    /// All, those of norms included.
    All,
    /// Those of the adapted layers.
    LoraOnly,
}

impl AdapterBias {
    /// True if no bias is trained.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// Settings of low-rank adapters. The defaults are those of PEFT.
///
/// ```
/// use emberlm_model::LoraConfig;
///
/// let config = LoraConfig {
///     rank: 16,
///     targets: vec!["q_proj".to_owned(), "v_proj".to_owned()],
///     ..LoraConfig::default()
/// };
/// assert!(config.check().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "documented", derive(documented::DocumentedFields))]
#[serde(default, deny_unknown_fields)]
pub struct LoraConfig {
    /// Rank of the updates.
    pub rank: usize,
    /// Numerator of the updates' scale, `alpha / rank`.
    pub alpha: f64,
    /// Probability of zeroing an element of the updates' inputs in training.
    pub dropout: f64,
    /// Linear layers to update, by the ends of their names in a Hugging Face directory, such as "q_proj"; "all-linear" for all. By default queries and values, or the fused layer that contains them.
    pub targets: Vec<String>,
    /// Scale by `alpha / √rank` (rsLoRA).
    pub rank_stabilized: bool,
    /// Train the norms of the weights, too (DoRA).
    pub dora: bool,
    /// Modules to train and save whole in addition to the updates, by the ends of their names in a Hugging Face directory, such as "lm_head" or "embed_tokens".
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules_to_save: Vec<String>,
    /// Biases of the model to train and save: none, all, or lora_only for those of the targets.
    #[serde(skip_serializing_if = "AdapterBias::is_none")]
    pub bias: AdapterBias,
    /// Format of the frozen weights, such as int8 or q4_0; empty keeps them as they are stored.
    pub base_weights: String,
    /// Ranks of layers that differ from `rank`, by the ends of their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rank_pattern: BTreeMap<String, usize>,
    /// Values of `alpha` that differ, by the ends of the layers' names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub alpha_pattern: BTreeMap<String, f64>,
}

impl LoraConfig {
    /// True if parameters of the base model are trained and saved with the adapter.
    pub fn has_whole_parameters(&self) -> bool {
        !self.modules_to_save.is_empty() || !self.bias.is_none()
    }
}

impl Default for LoraConfig {
    fn default() -> Self {
        Self {
            rank: 8,
            alpha: 8.0,
            dropout: 0.0,
            targets: Vec::new(),
            rank_stabilized: false,
            dora: false,
            modules_to_save: Vec::new(),
            bias: AdapterBias::None,
            base_weights: String::new(),
            rank_pattern: BTreeMap::new(),
            alpha_pattern: BTreeMap::new(),
        }
    }
}

impl LoraConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// Returns the first violated rule.
    pub fn check(&self) -> Result<(), AdapterError> {
        let error = |field: &str, value: String, rule| AdapterError::Setting {
            field: field.to_owned(),
            value,
            rule,
        };
        let ranks = self.rank_pattern.iter();
        let ranks = ranks.map(|(name, rank)| (format!("rank_pattern.\"{name}\""), *rank));
        for (field, rank) in std::iter::once(("rank".to_owned(), self.rank)).chain(ranks) {
            if rank == 0 {
                return Err(error(&field, rank.to_string(), "must be at least 1"));
            }
            if rank > LARGEST_RANK {
                return Err(error(&field, rank.to_string(), "must be at most 65536"));
            }
        }
        let alphas = self.alpha_pattern.iter();
        let alphas = alphas.map(|(name, alpha)| (format!("alpha_pattern.\"{name}\""), *alpha));
        for (field, alpha) in std::iter::once(("alpha".to_owned(), self.alpha)).chain(alphas) {
            if !(alpha.is_finite() && alpha > 0.0) {
                return Err(error(
                    &field,
                    alpha.to_string(),
                    "must be above 0 and finite",
                ));
            }
            if !is_in_f32(alpha) {
                return Err(error(&field, format!("{alpha:e}"), F32_RULE));
            }
        }
        if !(0.0..1.0).contains(&self.dropout) {
            let rule = "must be at least 0 and below 1";
            return Err(error("dropout", self.dropout.to_string(), rule));
        }
        if self.base_format(WeightFormat::F32).is_none() {
            let rule = "must be empty, f32 or a packed format";
            return Err(error(
                "base_weights",
                format!("{:?}", self.base_weights),
                rule,
            ));
        }
        if !self.bias.is_none() && !self.modules_to_save.is_empty() {
            let rule = "must be empty if bias is not none";
            let value = format!("{:?}", self.modules_to_save);
            return Err(error("modules_to_save", value, rule));
        }
        if self.dora && self.dropout > 0.0 {
            let rule = "must be 0 with dora";
            return Err(error("dropout", self.dropout.to_string(), rule));
        }
        Ok(())
    }

    /// The format of the frozen weights, by default `stored`; `None` if there is no format of this name. The embedding
    /// and the head are not packed: the loss reads the head in f32.
    pub fn base_format(&self, stored: WeightFormat) -> Option<WeightFormat> {
        if self.base_weights.is_empty() {
            return Some(stored);
        }
        let mut formats = WeightFormat::ALL.into_iter();
        let named = formats.find(|format| format.name() == self.base_weights)?;
        Some(
            named
                .layers()
                .map_or(WeightFormat::F32, WeightFormat::PackedLayers),
        )
    }

    /// The modules that the targets select, in the model's order.
    ///
    /// # Errors
    /// A target or a pattern matches no module.
    pub(super) fn targeted<'a>(
        &self,
        modules: &'a [AdaptableModule],
    ) -> Result<Vec<&'a AdaptableModule>, AdapterError> {
        let patterns = self.rank_pattern.keys().chain(self.alpha_pattern.keys());
        for name in self.targets.iter().chain(patterns) {
            let matches = |module: &AdaptableModule| is_named(&module.name, name);
            if name != ALL_LINEAR && !modules.iter().any(matches) {
                return Err(AdapterError::NoTarget {
                    target: name.clone(),
                    known: super::modules::kinds(modules),
                });
            }
        }
        let selects = |module: &&AdaptableModule| match self.targets.as_slice() {
            [] => module.is_default,
            targets => targets
                .iter()
                .any(|target| target == ALL_LINEAR || is_named(&module.name, target)),
        };
        Ok(modules.iter().filter(selects).collect())
    }

    /// The rank of a module.
    pub(super) fn rank_of(&self, module: &str) -> usize {
        matching(&self.rank_pattern, module).unwrap_or(self.rank)
    }

    /// The factor on a module's update of a rank.
    pub(super) fn scale_of(&self, module: &str, rank: usize) -> f64 {
        let alpha = matching(&self.alpha_pattern, module).unwrap_or(self.alpha);
        match self.rank_stabilized {
            true => alpha / (rank as f64).sqrt(),
            false => alpha / rank as f64,
        }
    }
}

/// Returns true if a module's name is `name` or ends with it after a dot.
pub(super) fn is_named(module: &str, name: &str) -> bool {
    let rest = module.strip_suffix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The value of the longest name that matches.
fn matching<T: Copy>(patterns: &BTreeMap<String, T>, module: &str) -> Option<T> {
    let matches = patterns.iter().filter(|(name, _)| is_named(module, name));
    let longest = matches.max_by_key(|(name, _)| name.len());
    longest.map(|(_, value)| *value)
}

//! The settings of a run with documentation and defaults: for writing and reading `config.toml`, and for the
//! reference page.

use documented::DocumentedFields;
use emberlm_model::encoder::EncoderSettings;
use emberlm_model::encoder_decoder::EncoderDecoderSettings;
use emberlm_model::{LoraConfig, ModelConfig};
use serde::Serialize;
use toml::Value;

use super::optimizer::{AdamWConfig, LionConfig, MuonConfig};
use super::schedule::{ConstantConfig, CooldownConfig, DecayConfig, InverseSqrtConfig};
use super::sections::{
    CheckpointConfig, EvaluationConfig, LossConfig, NonFiniteConfig, OutliersConfig,
    PrecisionConfig,
};
use super::{
    ClassifyConfig, CommandConfig, DataConfig, DpoConfig, ExactMatchConfig, Group, Groups,
    GrpoConfig, JsonSchemaConfig, KtoConfig, MixedDataset, MlmConfig, OrpoConfig, RegexConfig,
    Seq2SeqConfig, SimpoConfig, SpanCorruptionConfig, TrainConfig,
};

/// A table of the configuration, such as `[train.optimizer]` with `kind = "muon"`.
#[derive(Clone, Copy, Debug)]
pub struct SettingsTable {
    /// The table's path. `*` matches any last component.
    pub path: &'static str,
    /// The `kind` that has these settings, if the table has kinds.
    pub kind: Option<&'static str>,
    names: &'static [&'static str],
    docs: &'static [&'static str],
    defaults: fn() -> Option<Value>,
}

/// One setting of a [`SettingsTable`].
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The key within its table.
    pub key: &'static str,
    /// The documentation.
    pub docs: &'static str,
    /// The default value, unless the setting is required or unset by default.
    pub default: Option<Value>,
}

impl SettingsTable {
    /// A table without defaults: each setting is required, or its documentation states how it is derived.
    const fn required<T: DocumentedFields>(path: &'static str) -> Self {
        Self {
            path,
            kind: None,
            names: T::FIELD_NAMES,
            docs: T::FIELD_DOCS,
            defaults: || None,
        }
    }

    const fn new<T: DocumentedFields + Default + Serialize>(path: &'static str) -> Self {
        Self {
            defaults: || Value::try_from(T::default()).ok(),
            ..Self::required::<T>(path)
        }
    }

    const fn kind<T: DocumentedFields + Default + Serialize>(
        path: &'static str,
        kind: &'static str,
    ) -> Self {
        Self {
            kind: Some(kind),
            ..Self::new::<T>(path)
        }
    }

    /// The settings, in the order of the file.
    pub fn settings(&self) -> Vec<Setting> {
        let defaults = (self.defaults)();
        let named = self.names.iter().zip(self.docs);
        named
            .map(|(key, docs)| Setting {
                key,
                docs,
                default: defaults.as_ref().and_then(|table| table.get(key)).cloned(),
            })
            .collect()
    }

    fn is(&self, table: &str, kind: Option<&str>) -> bool {
        let here = match self.path.strip_suffix('*') {
            Some(above) => table.starts_with(above),
            None => table == self.path,
        };
        here && (self.kind.is_none() || self.kind == kind)
    }
}

/// Every table of a run's configuration. Tables nested in `model` are documented by the model's settings.
pub const TABLES: [SettingsTable; 36] = [
    SettingsTable::required::<ModelConfig>("model"),
    SettingsTable::required::<EncoderSettings>("encoder"),
    SettingsTable::required::<EncoderDecoderSettings>("encoder_decoder"),
    SettingsTable::new::<DataConfig>("data"),
    SettingsTable::required::<MixedDataset>("data.mix"),
    SettingsTable::new::<TrainConfig>("train"),
    SettingsTable::kind::<MlmConfig>("train.objective", "mlm"),
    SettingsTable::kind::<ClassifyConfig>("train.objective", "classify"),
    SettingsTable::kind::<SpanCorruptionConfig>("train.objective", "span_corruption"),
    SettingsTable::kind::<Seq2SeqConfig>("train.objective", "seq2seq"),
    SettingsTable::kind::<DpoConfig>("train.objective", "dpo"),
    SettingsTable::kind::<OrpoConfig>("train.objective", "orpo"),
    SettingsTable::kind::<SimpoConfig>("train.objective", "simpo"),
    SettingsTable::kind::<KtoConfig>("train.objective", "kto"),
    SettingsTable::kind::<GrpoConfig>("train.objective", "grpo"),
    SettingsTable::kind::<ExactMatchConfig>("train.objective.rewards", "exact_match"),
    SettingsTable::kind::<RegexConfig>("train.objective.rewards", "regex"),
    SettingsTable::kind::<JsonSchemaConfig>("train.objective.rewards", "json_schema"),
    SettingsTable::kind::<CommandConfig>("train.objective.rewards", "command"),
    SettingsTable::new::<LoraConfig>("train.adapter"),
    SettingsTable::new::<PrecisionConfig>("train.precision"),
    SettingsTable::new::<LossConfig>("train.loss"),
    SettingsTable::kind::<AdamWConfig>("train.optimizer", "adamw"),
    SettingsTable::kind::<MuonConfig>("train.optimizer", "muon"),
    SettingsTable::kind::<LionConfig>("train.optimizer", "lion"),
    SettingsTable::kind::<ConstantConfig>("train.schedule", "constant"),
    SettingsTable::kind::<DecayConfig>("train.schedule", "cosine"),
    SettingsTable::kind::<DecayConfig>("train.schedule", "linear"),
    SettingsTable::kind::<InverseSqrtConfig>("train.schedule", "inverse_sqrt"),
    SettingsTable::kind::<CooldownConfig>("train.schedule", "warmup_stable_decay"),
    SettingsTable::kind::<NonFiniteConfig>("train.skip", "non_finite"),
    SettingsTable::kind::<OutliersConfig>("train.skip", "outliers"),
    SettingsTable::new::<EvaluationConfig>("train.evaluation"),
    SettingsTable::new::<CheckpointConfig>("train.checkpoints"),
    SettingsTable::new::<Groups>("train.groups"),
    SettingsTable::new::<Group>("train.groups.*"),
];

/// The documentation of the setting `key` in a table such as `train.optimizer` with the given `kind`. `None`
/// if the table, or its kind, has no such setting.
pub fn field_docs(table: &str, kind: Option<&str>, key: &str) -> Option<&'static str> {
    if key == "kind" {
        return kind_docs(table);
    }
    let described = TABLES.iter().find(|described| described.is(table, kind))?;
    let mut named = described.names.iter().zip(described.docs);
    named.find_map(|(name, docs)| (*name == key).then_some(*docs))
}

/// The documentation of a table's `kind` setting. `None` for a table without kinds.
pub fn kind_docs(table: &str) -> Option<&'static str> {
    Some(match table {
        "train.objective" => {
            "next_token, dpo, orpo, simpo, kto or grpo (decoders), mlm or classify (encoders), span_corruption or seq2seq (encoder–decoders)."
        }
        "train.objective.rewards" => "exact_match, regex, json_schema or command.",
        "train.optimizer" => "adamw, muon (matrices; AdamW the rest) or lion.",
        "train.schedule" => "constant, cosine, linear, inverse_sqrt or warmup_stable_decay.",
        "train.skip" => {
            "non_finite (NaN and infinite losses or gradients) or outliers (also those far above the mean)."
        }
        _ => return None,
    })
}

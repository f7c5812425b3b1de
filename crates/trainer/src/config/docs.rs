//! The settings of a run with documentation and defaults: for writing and reading `config.toml`, and for the
//! reference page.

use documented::DocumentedFields;
use emberlm_model::{LoraConfig, ModelConfig};
use serde::Serialize;
use toml::Value;

use super::settings::Settings;
use super::{
    CheckpointConfig, DataConfig, DecayScheduleConfig, EvaluationConfig, Group, Groups, LossConfig,
    MixedDataset, ObjectiveConfig, OptimizerConfig, ParametrizationConfig, PrecisionConfig,
    RewardConfig, ScheduleConfig, SkipConfig, Stage, TrainConfig,
};

/// A table of the configuration, such as `[train.optimizer]` with `kind = "muon"`.
#[derive(Clone, Copy, Debug)]
pub struct SettingsTable {
    /// The table's path. `*` matches any last component.
    pub path: &'static str,
    /// The `kind` that has these settings, if the table has kinds.
    pub kind: Option<&'static str>,
    /// The documentation of `kind`, if the table has kinds.
    kind_docs: Option<&'static str>,
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
            kind_docs: None,
            names: T::FIELD_NAMES,
            docs: T::FIELD_DOCS,
            defaults: || None,
        }
    }

    const fn with_defaults<T: DocumentedFields + Default + Serialize>(path: &'static str) -> Self {
        Self {
            defaults: || Value::try_from(T::default()).ok(),
            ..Self::required::<T>(path)
        }
    }

    const fn of<T: Settings>() -> Self {
        Self::with_defaults::<T>(T::TABLE)
    }

    /// The table of a kind, and the documentation of its table's `kind`.
    pub(super) const fn kind<T: Settings>(kind: &'static str, docs: &'static str) -> Self {
        Self {
            kind: Some(kind),
            kind_docs: Some(docs),
            ..Self::of::<T>()
        }
    }

    /// The settings, in the order of the file.
    pub fn settings(&self) -> Vec<Setting> {
        let defaults = (self.defaults)();
        self.documented()
            .map(|(key, docs)| Setting {
                key,
                docs,
                default: defaults.as_ref().and_then(|table| table.get(key)).cloned(),
            })
            .collect()
    }

    /// The keys that files have, with their documentation.
    pub(super) fn documented(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.names.iter().copied().zip(self.docs.iter().copied())
    }

    fn is(&self, table: &str, kind: Option<&str>) -> bool {
        let here = match self.path.strip_suffix('*') {
            Some(above) => table.starts_with(above),
            None => table == self.path,
        };
        here && (self.kind.is_none() || self.kind == kind)
    }
}

/// The tables, grouped as their modules declare them. Tables nested in `model` are documented by the model's settings.
const TABLES: [&[SettingsTable]; 10] = [
    &[
        SettingsTable::required::<ModelConfig>("model"),
        SettingsTable::of::<DataConfig>(),
        SettingsTable::required::<MixedDataset>("data.mix"),
        SettingsTable::of::<TrainConfig>(),
        SettingsTable::of::<Stage>(),
    ],
    ObjectiveConfig::TABLES,
    RewardConfig::TABLES,
    &[
        SettingsTable::with_defaults::<LoraConfig>("train.adapter"),
        SettingsTable::of::<PrecisionConfig>(),
        SettingsTable::of::<LossConfig>(),
    ],
    ParametrizationConfig::TABLES,
    OptimizerConfig::TABLES,
    ScheduleConfig::TABLES,
    DecayScheduleConfig::TABLES,
    SkipConfig::TABLES,
    &[
        SettingsTable::of::<EvaluationConfig>(),
        SettingsTable::of::<CheckpointConfig>(),
        SettingsTable::of::<Groups>(),
        SettingsTable::of::<Group>(),
    ],
];

/// Every table of a run's configuration, in the order of the reference page.
pub fn tables() -> impl Iterator<Item = &'static SettingsTable> {
    TABLES.into_iter().flatten()
}

/// The documentation of the setting `key` in a table such as `train.optimizer` with the given `kind`. `None`
/// if the table, or its kind, has no such setting.
pub fn field_docs(table: &str, kind: Option<&str>, key: &str) -> Option<&'static str> {
    if key == "kind" {
        return kind_docs(table);
    }
    let described = tables().find(|described| described.is(table, kind))?;
    let mut documented = described.documented();
    documented.find_map(|(name, docs)| (name == key).then_some(docs))
}

/// The documentation of a table's `kind` setting. `None` for a table without kinds.
pub fn kind_docs(table: &str) -> Option<&'static str> {
    tables()
        .find(|described| described.path == table)?
        .kind_docs
}

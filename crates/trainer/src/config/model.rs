//! The model of a run: one of the tables `[model]`, `[encoder]` and `[encoder_decoder]`.

use emberlm_model::encoder::EncoderSettings;
use emberlm_model::encoder_decoder::EncoderDecoderSettings;
use emberlm_model::{ConfigError, ModelConfig, ModelKind, TransformerConfig};
use serde::{Deserialize, Serialize};

use super::{DataConfig, RunConfig, TrainConfig};
use crate::error::TrainError;

/// The model of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunModel {
    /// A decoder, the table `[model]`.
    Decoder(Box<ModelConfig>),
    /// An encoder, the table `[encoder]`.
    Encoder(Box<EncoderSettings>),
    /// An encoder–decoder, the table `[encoder_decoder]`.
    EncoderDecoder(Box<EncoderDecoderSettings>),
}

/// The tables of the models, of which a configuration has one.
pub(crate) const MODEL_TABLES: [&str; 3] = ["model", "encoder", "encoder_decoder"];

impl From<ModelConfig> for RunModel {
    fn from(model: ModelConfig) -> Self {
        Self::Decoder(Box::new(model))
    }
}

impl From<EncoderSettings> for RunModel {
    fn from(settings: EncoderSettings) -> Self {
        Self::Encoder(Box::new(settings))
    }
}

impl From<EncoderDecoderSettings> for RunModel {
    fn from(settings: EncoderDecoderSettings) -> Self {
        Self::EncoderDecoder(Box::new(settings))
    }
}

/// The table of a configuration file that has a kind of model.
pub(crate) fn table_of(kind: ModelKind) -> &'static str {
    match kind {
        ModelKind::Decoder => "model",
        ModelKind::Encoder => "encoder",
        ModelKind::EncoderDecoder => "encoder_decoder",
    }
}

impl RunModel {
    /// The settings of a checked configuration.
    pub fn of(config: &TransformerConfig) -> Self {
        let encoder = EncoderSettings::of(config).map(Self::from);
        let other = || EncoderDecoderSettings::of(config).map(Self::from);
        encoder
            .or_else(other)
            .unwrap_or_else(|| config.raw().into())
    }

    /// The kind of model.
    pub fn kind(&self) -> ModelKind {
        match self {
            Self::Decoder(_) => ModelKind::Decoder,
            Self::Encoder(_) => ModelKind::Encoder,
            Self::EncoderDecoder(_) => ModelKind::EncoderDecoder,
        }
    }

    /// The name of the model's table.
    pub fn table(&self) -> &'static str {
        table_of(self.kind())
    }

    /// Checks the settings. The vocabulary depends on the data and may be unset.
    ///
    /// # Errors
    /// Returns the first violated rule.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self {
            Self::Decoder(model) => {
                let mut model = model.as_ref().clone();
                model.vocab_size = model.vocab_size.filter(|&size| size > 0).or(Some(1));
                TransformerConfig::try_from(model).map(drop)
            }
            Self::Encoder(settings) => {
                let mut settings = settings.as_ref().clone();
                settings.vocab_size = settings.vocab_size.max(1);
                TransformerConfig::try_from(settings).map(drop)
            }
            Self::EncoderDecoder(settings) => {
                let mut settings = settings.as_ref().clone();
                if settings.vocab_size == 0 {
                    let last = settings.start_token.max(settings.padding_token);
                    settings.vocab_size = (last as usize).saturating_add(1);
                }
                TransformerConfig::try_from(settings).map(drop)
            }
        }
    }

    /// The configuration of a decoder; `None` for another model.
    pub fn as_decoder(&self) -> Option<&ModelConfig> {
        match self {
            Self::Decoder(model) => Some(model),
            Self::Encoder(_) | Self::EncoderDecoder(_) => None,
        }
    }

    /// The configuration of a decoder.
    ///
    /// # Errors
    /// The model is another one.
    pub fn decoder(&self) -> Result<&ModelConfig, TrainError> {
        let table = self.table();
        self.as_decoder().ok_or(TrainError::NotADecoder { table })
    }

    /// The configuration of a decoder, to be changed.
    ///
    /// # Errors
    /// The model is another one.
    pub fn decoder_mut(&mut self) -> Result<&mut ModelConfig, TrainError> {
        let table = self.table();
        match self {
            Self::Decoder(model) => Ok(model),
            Self::Encoder(_) | Self::EncoderDecoder(_) => Err(TrainError::NotADecoder { table }),
        }
    }
}

/// The tables of a `config.toml`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigTables {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<ModelConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoder: Option<EncoderSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoder_decoder: Option<EncoderDecoderSettings>,
    data: DataConfig,
    train: TrainConfig,
}

impl From<RunConfig> for ConfigTables {
    fn from(config: RunConfig) -> Self {
        let RunConfig { model, data, train } = config;
        let mut tables = Self {
            model: None,
            encoder: None,
            encoder_decoder: None,
            data,
            train,
        };
        match model {
            RunModel::Decoder(model) => tables.model = Some(*model),
            RunModel::Encoder(settings) => tables.encoder = Some(*settings),
            RunModel::EncoderDecoder(settings) => tables.encoder_decoder = Some(*settings),
        }
        tables
    }
}

impl TryFrom<ConfigTables> for RunConfig {
    type Error = &'static str;

    fn try_from(tables: ConfigTables) -> Result<Self, &'static str> {
        let ConfigTables {
            model,
            encoder,
            encoder_decoder,
            data,
            train,
        } = tables;
        let model = match (model, encoder, encoder_decoder) {
            (Some(model), None, None) if !model.architecture.is_decoder() => {
                return Err(
                    "`model` is a decoder: `encoder` and `encoder_decoder` are the tables of other models",
                );
            }
            (Some(model), None, None) => model.into(),
            (None, Some(settings), None) => settings.into(),
            (None, None, Some(settings)) => settings.into(),
            (None, None, None) => return Err("missing field `model`"),
            _ => return Err("only one of `model`, `encoder` and `encoder_decoder` may be set"),
        };
        Ok(Self { model, data, train })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::presets;
    use crate::config::run_config::{layered, to_toml};

    #[test]
    fn a_model_of_another_kind_replaces_the_model() {
        let base = presets::run("bert-nano").expect("a preset");
        let text = to_toml(&base).expect("TOML");
        assert_eq!(toml::from_str::<RunConfig>(&text).expect("TOML"), base);
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), text).expect("written");
        let over = presets::run("char-nano").expect("a preset");
        let settings = ["encoder.d_model=32".to_owned()];
        let read = layered(over.clone(), Some(file.path()), &settings).expect("legal");
        let RunModel::Encoder(settings) = read.model else {
            panic!("not an encoder");
        };
        assert_eq!(settings.d_model, 32);
        let error = layered(over, None, &["encoder.d_model=32".to_owned()]).expect_err("not whole");
        assert!(
            error.to_string().contains("missing field `vocab_size`"),
            "{error}"
        );
        let both = "[model]\n[encoder]\n[data]\n[train]\n";
        assert!(toml::from_str::<RunConfig>(both).is_err());
        let decoder = presets::run("char-nano").expect("a preset");
        let settings = ["model.architecture.kind=\"encoder\"".to_owned()];
        let error = layered(decoder, None, &settings).expect_err("not a decoder");
        assert!(
            error.to_string().contains("tables of other models"),
            "{error}"
        );
    }
}

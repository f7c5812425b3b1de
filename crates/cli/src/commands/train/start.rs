//! The model that a run starts from, of any kind.

use std::path::Path;

use emberlm_checkpoint::{BaseModel, Model, ModelError};
use emberlm_data::{ChatTemplateSpec, Dataset, Tokenizer};
use emberlm_kernels::Backend;
use emberlm_model::encoder::EncoderHeadConfig;
use emberlm_model::{LoraConfig, ModelKind};
use emberlm_trainer::config::ObjectiveKind;
use emberlm_trainer::{RunConfig, RunWeights, presets};

use crate::error::CliError;
use crate::opened_model::OpenedModel;

/// The preset of a small model for an objective.
fn small_preset(objective: ObjectiveKind) -> &'static str {
    match objective.model_kind() {
        ModelKind::Decoder => presets::DEFAULT,
        ModelKind::Encoder => "bert-nano",
        ModelKind::EncoderDecoder => "t5-nano",
    }
}

/// The preset `named`, or a small model for the objective if that is the default.
pub fn preset_name(named: &str, objective: Option<ObjectiveKind>) -> &str {
    match objective {
        Some(objective) if named == presets::DEFAULT => small_preset(objective),
        _ => named,
    }
}

/// The configuration of [`preset_name`].
///
/// # Errors
/// There is no preset of this name.
pub fn preset(named: &str, objective: Option<ObjectiveKind>) -> Result<RunConfig, CliError> {
    let mut config = presets::run(preset_name(named, objective))?;
    if let Some(objective) = objective {
        config.train.objective = objective.into();
    }
    Ok(config)
}

impl OpenedModel {
    /// Identifies the model that an adapter is trained on; `None` without an adapter.
    ///
    /// # Errors
    /// Its files cannot be read.
    pub fn base(&self, adapter: Option<&LoraConfig>) -> Result<Option<BaseModel>, CliError> {
        let base = adapter.map(|_| BaseModel::of(self.model()));
        Ok(base.transpose()?)
    }

    /// The default configuration for fine-tuning with an objective, by default the one that the model was made for, on so
    /// many records.
    pub fn fine_tuning(
        &self,
        from: &Path,
        objective: Option<ObjectiveKind>,
        records: Option<usize>,
    ) -> RunConfig {
        match self {
            Self::Decoder(model) => {
                let mut config = presets::fine_tuning(model.config(), from);
                if let Some(objective) = objective {
                    config.train.objective = objective.into();
                }
                config
            }
            Self::Encoder(model) => {
                let default = match model.config().encoder_head() {
                    Some(EncoderHeadConfig::Sequence { .. }) => ObjectiveKind::Classify,
                    _ => ObjectiveKind::Mlm,
                };
                let objective = objective.unwrap_or(default).into();
                presets::fine_tuning_other(model.config(), from, objective, records)
            }
            Self::EncoderDecoder(model) => {
                let objective = objective.unwrap_or(ObjectiveKind::Seq2seq).into();
                presets::fine_tuning_other(model.config(), from, objective, records)
            }
        }
    }

    /// The decoder; `None` for another model.
    pub fn decoder(&self) -> Option<&Model> {
        match self {
            Self::Decoder(model) => Some(model),
            Self::Encoder(_) | Self::EncoderDecoder(_) => None,
        }
    }

    /// The chat template of records with messages, if the model has one.
    ///
    /// # Errors
    /// The template cannot be read.
    pub fn record_template(&self) -> Result<Option<ChatTemplateSpec>, CliError> {
        Ok(match self {
            Self::Decoder(model) => model
                .chat_template()?
                .map(|template| ChatTemplateSpec::from(&template)),
            Self::Encoder(_) | Self::EncoderDecoder(_) => None,
        })
    }

    /// Checks that the model and a dataset agree on the meaning of token ids.
    ///
    /// # Errors
    /// The dataset has another tokenizer, or ids outside of the model's vocabulary.
    pub fn check_dataset(&self, dataset: &Dataset) -> Result<(), CliError> {
        let model = self.model();
        if model.kind() == ModelKind::Decoder {
            return Ok(model.check_dataset(dataset)?);
        }
        match model.tokenizer()? {
            Some(of_model) if !agree(&of_model, dataset.tokenizer()) => {
                Err(ModelError::OtherTokenizer {
                    dataset: dataset.folder().to_owned(),
                    of_dataset: Box::new(dataset.manifest().tokenizer.clone()),
                    model: model.path().to_owned(),
                    of_model: Box::new(of_model.spec()),
                }
                .into())
            }
            _ => Ok(()),
        }
    }

    /// The weights that training begins with.
    pub fn weights<B: Backend>(self) -> RunWeights<B> {
        match self {
            Self::Decoder(model) | Self::EncoderDecoder(model) => (*model).into(),
            Self::Encoder(model) => model.into_model().into(),
        }
    }
}

/// The tokenizer and the chat template of the model to start from, for runs on records.
#[derive(Clone, Default)]
pub struct RecordTexts {
    /// The tokenizer.
    pub tokenizer: Option<Tokenizer>,
    /// The chat template of records with messages.
    pub chat_template: Option<ChatTemplateSpec>,
}

impl RecordTexts {
    /// Those of a model, if the run reads records.
    ///
    /// # Errors
    /// The tokenizer or the template cannot be read.
    pub fn of(model: Option<&OpenedModel>, config: &RunConfig) -> Result<Self, CliError> {
        let Some(model) = model.filter(|_| config.reads_records()) else {
            return Ok(Self::default());
        };
        Ok(Self {
            tokenizer: model.tokenizer()?,
            chat_template: model.record_template()?,
        })
    }
}

/// Returns true if two tokenizers are the same. A model's directory has the file of a built-in one.
fn agree(of_model: &Tokenizer, of_dataset: &Tokenizer) -> bool {
    of_model.agrees_with(of_dataset)
        || of_model.to_tokenizer_json() == of_dataset.to_tokenizer_json()
}

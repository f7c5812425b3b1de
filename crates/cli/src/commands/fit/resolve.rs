//! The model and the training settings that `fit` predicts.

use std::path::{Path, PathBuf};

use emberlm_model::TransformerConfig;
use emberlm_model::encoder::{EncoderHeadConfig, PooledActivation};
use emberlm_trainer::{DataConfig, ObjectiveConfig, RunConfig, RunModel, RunStart, run};

use crate::commands::fit_step;
use crate::commands::preset_list::ASSUMED_VOCAB_SIZE;
use crate::commands::train::start::RecordTexts;
use crate::error::CliError;

/// True unless the data determines the vocabulary size.
pub fn has_vocabulary(model: &RunModel) -> bool {
    match model {
        RunModel::Decoder(model) => model.vocab_size.is_some(),
        RunModel::Encoder(settings) => settings.vocab_size > 0,
        RunModel::EncoderDecoder(settings) => settings.vocab_size > 0,
    }
}

/// Resolves the model and its vocabulary size, and the longest sequences of records. `config` then has them, too.
///
/// # Errors
/// The data cannot be opened or does not fit the model, or a setting is invalid.
pub fn resolve(
    config: &mut RunConfig,
    data: Option<&Path>,
    texts: RecordTexts,
) -> Result<TransformerConfig, CliError> {
    let Some(data) = data else {
        assume(config);
        return fit_step::checked(config.model.clone());
    };
    config.data = DataConfig {
        tokenizer: config.data.tokenizer.clone(),
        ..DataConfig::of(data.to_owned())
    };
    let (model, train) = run::sized(
        config,
        &RunStart::New(PathBuf::new()),
        texts.tokenizer,
        texts.chat_template,
    )?;
    config.train = train;
    config.model = RunModel::of(&model);
    Ok(model)
}

/// Sets the sizes that data would determine, and the head of the objective.
fn assume(config: &mut RunConfig) {
    match (&mut config.model, &config.train.objective) {
        (RunModel::Decoder(model), _) => {
            model.vocab_size.get_or_insert(ASSUMED_VOCAB_SIZE);
        }
        (RunModel::Encoder(settings), objective) => {
            if settings.vocab_size == 0 {
                settings.vocab_size = ASSUMED_VOCAB_SIZE;
            }
            let activation = settings.feed_forward.activation;
            match (objective, &settings.head) {
                (ObjectiveConfig::Classify(_), Some(EncoderHeadConfig::Sequence { .. })) => {}
                (ObjectiveConfig::Classify(_), _) => {
                    settings.head = Some(EncoderHeadConfig::sequence(
                        ["0", "1"].map(str::to_owned).to_vec(),
                        PooledActivation::Tanh,
                    ));
                }
                _ => settings.head = Some(EncoderHeadConfig::masked_lm(activation)),
            }
        }
        (RunModel::EncoderDecoder(settings), _) => {
            if settings.vocab_size == 0 {
                settings.vocab_size = ASSUMED_VOCAB_SIZE;
            }
        }
    }
}

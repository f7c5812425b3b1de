//! The model and the training settings that `fit` predicts.

use std::path::{Path, PathBuf};

use emberlm_model::TransformerConfig;
use emberlm_model::config::Architecture;
use emberlm_model::encoder::{EncoderHeadConfig, PooledActivation};
use emberlm_trainer::{DataConfig, ObjectiveConfig, RunConfig, RunStart, run};

use crate::commands::preset_list::ASSUMED_VOCAB_SIZE;
use crate::commands::train::start::RecordTexts;
use crate::error::CliError;

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
        config.model = config.train.parametrization.applied(&config.model);
        return Ok(TransformerConfig::try_from(config.model.clone())?);
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
    config.model = model.raw();
    Ok(model)
}

/// Sets the sizes that data would determine, and the head of the objective.
fn assume(config: &mut RunConfig) {
    let model = &mut config.model;
    model.vocab_size.get_or_insert(ASSUMED_VOCAB_SIZE);
    let activation = model.feed_forward.activation;
    let Architecture::Encoder { head, .. } = &mut model.architecture else {
        return;
    };
    match (&config.train.objective, &head) {
        (ObjectiveConfig::Classify(_), Some(EncoderHeadConfig::Sequence { .. })) => {}
        (ObjectiveConfig::Classify(_), _) => {
            let labels = ["0", "1"].map(str::to_owned).to_vec();
            *head = Some(EncoderHeadConfig::sequence(labels, PooledActivation::Tanh));
        }
        _ => *head = Some(EncoderHeadConfig::masked_lm(activation)),
    }
}

//! The inputs of runs that train an encoder–decoder.

use std::sync::Arc;

use emberlm_data::Tokenizer;
use emberlm_model::EncoderDecoderConfig;
use emberlm_model::encoder_decoder::EncoderDecoderSettings;

use super::encoder::check_supported;
use super::{Circumstances, RunInputs, truncation_note, vocabulary};
use crate::config::{DataConfig, Seq2SeqConfig, SpanCorruptionConfig, TrainConfig};
use crate::error::TrainError;
use crate::evaluate::validation::Validation;
use crate::fit::source_tokens;
use crate::objective::CheckedModel;
use crate::objective::{RecordSource, SpanCorruption, TrainSource, WindowTask, span_corruption};

/// Sets the unset sizes, and with them the tokens that begin a target and that stand for ignored labels.
fn resolve(
    settings: &mut EncoderDecoderSettings,
    needed: usize,
    tokenizer: &Tokenizer,
) -> Result<EncoderDecoderConfig, TrainError> {
    if settings.vocab_size == 0 {
        let padding = tokenizer.special_id("<pad>").or(tokenizer.end_of_text());
        settings.padding_token = padding.unwrap_or(0);
        settings.start_token = settings.padding_token;
    }
    settings.vocab_size = vocabulary(settings.vocab_size, needed, tokenizer)?;
    Ok(EncoderDecoderConfig::try_from(settings.clone())?)
}

/// Removed spans of datasets.
pub(super) fn corrupted(
    settings: &mut EncoderDecoderSettings,
    objective: &SpanCorruptionConfig,
    data: &DataConfig,
    train: &TrainConfig,
    circumstances: &Circumstances<'_>,
) -> Result<RunInputs, TrainError> {
    check_supported(train)?;
    let data = circumstances.datasets(data)?;
    let tokenizer = data.first().tokenizer();
    let model = resolve(settings, span_corruption::vocabulary(tokenizer), tokenizer)?;
    let seq_len = source_tokens(train);
    let vocab_size = model.vocab_size();
    let task = SpanCorruption::new(objective, tokenizer, vocab_size, seq_len, train.seed)?;
    let (window, target) = (task.window(), task.target());
    let task = WindowTask::SpanCorruption(Arc::new(task));
    let model = CheckedModel::EncoderDecoder(model);
    let mut inputs = RunInputs::of_windows(&data, train, model, window, seq_len, task)?;
    inputs.notes.push(format!(
        "windows of {window} tokens become sources of {seq_len} and targets of {target}"
    ));
    Ok(inputs)
}

/// Pairs of texts.
pub(super) fn pairs(
    settings: &mut EncoderDecoderSettings,
    objective: &Seq2SeqConfig,
    data: &DataConfig,
    train: &TrainConfig,
    circumstances: &Circumstances<'_>,
) -> Result<RunInputs, TrainError> {
    check_supported(train)?;
    let source = RecordSource::of_pairs(data, objective)?;
    let tokenizer = circumstances.tokenizer(data)?;
    let model = resolve(settings, tokenizer.vocab_size(), &tokenizer)?;
    let padding = model.settings().padding_token;
    let seq_len = source_tokens(train);
    let records = source.pairs(objective, &tokenizer, seq_len, train.seed, padding)?;
    let identities = vec![records.identity()];
    circumstances.check_resumed(data, &tokenizer, &identities)?;
    let (count, held_out) = (records.train.len(), records.validation.len());
    let notes = truncation_note(records.truncated, count, held_out, seq_len);
    Ok(RunInputs {
        model: CheckedModel::EncoderDecoder(model),
        seq_len,
        tokenizer,
        chat_template: None,
        identities,
        floor: None,
        validation: Validation::Pairs(records.validation),
        source: TrainSource::Records(records.train),
        size: count as u64,
        notes: notes.into_iter().collect(),
    })
}

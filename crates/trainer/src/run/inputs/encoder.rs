//! The inputs of runs that train an encoder.

use std::sync::Arc;

use emberlm_data::Packing;
use emberlm_kernels::Precision;
use emberlm_model::encoder::{EncoderHeadConfig, EncoderSettings, PooledActivation, ProblemType};
use emberlm_model::{ConfigError, EncoderConfig};

use super::{Circumstances, RunInputs, truncation_note, vocabulary};
use crate::config::{ClassifyConfig, DataConfig, MlmConfig, TrainConfig};
use crate::error::TrainError;
use crate::evaluate::validation::Validation;
use crate::objective::CheckedModel;
use crate::objective::{Labels, MaskedLm, RecordSource, TrainSource, WindowTask, mlm};

/// Masked tokens of datasets.
pub(super) fn masked(
    settings: &mut EncoderSettings,
    objective: &MlmConfig,
    data: &DataConfig,
    train: &TrainConfig,
    circumstances: &Circumstances<'_>,
) -> Result<RunInputs, TrainError> {
    check_supported(train)?;
    let data = circumstances.datasets(data)?;
    let tokenizer = data.first().tokenizer();
    let needed = mlm::vocabulary(tokenizer);
    settings.vocab_size = vocabulary(settings.vocab_size, needed, tokenizer)?;
    if settings.vocab_size < needed {
        let rule = format!("must be at least {needed}: the tokenizer has no mask token");
        let vocab_size = settings.vocab_size;
        return Err(ConfigError::new("vocab_size", vocab_size, rule).into());
    }
    if !matches!(settings.head, Some(EncoderHeadConfig::MaskedLm { .. })) {
        settings.head = Some(match circumstances.directory {
            Some(directory) => directory.masked_lm_head(),
            None => EncoderHeadConfig::masked_lm(settings.feed_forward.activation),
        });
    }
    let model = EncoderConfig::try_from(settings.clone())?;
    let seq_len = train.sequence_tokens(model.seq_len())?;
    let task = MaskedLm::new(objective, tokenizer, train.seed)?;
    let window = window(train, seq_len, task.frame_tokens())?;
    let task = WindowTask::MaskedLm(Arc::new(task));
    let model = CheckedModel::Encoder(model);
    RunInputs::of_windows(&data, train, model, window, seq_len, task)
}

/// The tokens of a window that becomes a sequence of `seq_len` positions with special tokens around it.
fn window(train: &TrainConfig, seq_len: usize, frame: usize) -> Result<usize, TrainError> {
    match seq_len.checked_sub(frame) {
        Some(window @ 1..) => Ok(window),
        _ => Err(TrainError::Setting {
            table: "train",
            field: "seq_len",
            value: train.seq_len.to_string(),
            rule: format!("must be above the {frame} special tokens of a text"),
        }),
    }
}

/// Labelled texts.
pub(super) fn labelled(
    settings: &mut EncoderSettings,
    objective: &ClassifyConfig,
    data: &DataConfig,
    train: &TrainConfig,
    circumstances: &Circumstances<'_>,
) -> Result<RunInputs, TrainError> {
    check_supported(train)?;
    let source = RecordSource::of_labels(data, objective)?;
    let tokenizer = circumstances.tokenizer(data)?;
    settings.vocab_size = vocabulary(settings.vocab_size, tokenizer.vocab_size(), &tokenizer)?;
    let labels = source.labels();
    set_classifier(settings, &labels, circumstances);
    let labels = match settings.head.as_ref().and_then(EncoderHeadConfig::labels) {
        Some(labels) => Labels(labels.to_vec()),
        None => labels,
    };
    if let [label] = &labels.0[..] {
        return Err(TrainError::SingleLabel {
            path: data.dataset.clone(),
            label: label.clone(),
        });
    }
    let model = EncoderConfig::try_from(settings.clone())?;
    let seq_len = train.sequence_tokens(model.seq_len())?;
    let padding = ["[PAD]", "<pad>"];
    let padding = padding
        .into_iter()
        .find_map(|name| tokenizer.special_id(name));
    let padding = padding.unwrap_or(0);
    let records = source.labelled(&labels, &tokenizer, seq_len, train.seed, padding)?;
    let identities = vec![records.identity()];
    circumstances.check_resumed(data, &tokenizer, &identities)?;
    let (count, held_out) = (records.train.len(), records.validation.len());
    let notes = truncation_note(records.truncated, count, held_out, seq_len);
    Ok(RunInputs {
        model: CheckedModel::Encoder(model),
        seq_len,
        tokenizer,
        chat_template: None,
        identities,
        floor: None,
        validation: Validation::Labelled {
            records: records.validation,
            labels: labels.0.len(),
        },
        source: TrainSource::Records(records.train),
        size: count as u64,
        notes: notes.into_iter().collect(),
    })
}

/// Sets a head for the labels of the records, unless the head has all of them.
fn set_classifier(
    settings: &mut EncoderSettings,
    labels: &Labels,
    circumstances: &Circumstances<'_>,
) {
    if let Some(EncoderHeadConfig::Sequence {
        labels: known,
        problem,
        ..
    }) = &mut settings.head
    {
        let is_started = circumstances.start.checkpoint().is_some();
        if is_started || labels.0.iter().all(|label| known.contains(label)) {
            // The objective is the cross-entropy of one label per text, whatever the weights were trained for.
            *problem = ProblemType::SingleLabelClassification;
            return;
        }
    }
    let labels = labels.0.clone();
    settings.head = Some(match circumstances.directory {
        Some(directory) => directory.classifier_head(labels),
        None => EncoderHeadConfig::sequence(labels, PooledActivation::Tanh),
    });
}

/// Refuses settings that only decoders support.
pub(super) fn check_supported(train: &TrainConfig) -> Result<(), TrainError> {
    let refuse = |table, field, value: String, rule: String| {
        Err(TrainError::Setting {
            table,
            field,
            value,
            rule,
        })
    };
    let objective = train.objective.kind().name();
    if train.documents != Packing::Stream {
        let rule = format!("must be stream with objective = {objective}");
        return refuse("train", "documents", train.documents.to_string(), rule);
    }
    let products = train.precision.products;
    if products != Precision::F32 {
        let rule = format!("must be f32 with objective = {objective}");
        return refuse(
            "train.precision",
            "products",
            products.name().to_owned(),
            rule,
        );
    }
    if train.recompute && !train.objective.recomputes() {
        let rule = format!("must be false with objective = {objective}");
        return refuse("train", "recompute", "true".to_owned(), rule);
    }
    Ok(())
}

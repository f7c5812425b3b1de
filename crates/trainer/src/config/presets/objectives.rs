//! Settings for objectives other than next-token prediction: small models to train from the beginning, and published ones to
//! fine-tune.

use std::path::Path;

use emberlm_model::encoder::{EncoderHeadConfig, EncoderSettings};
use emberlm_model::encoder_decoder::EncoderDecoderSettings;
use emberlm_model::{Activation, ModelConfig, ModelKind, TransformerConfig};

use super::cosine;
use crate::config::{
    AdamWConfig, CheckpointConfig, DecayConfig, EvaluationConfig, MlmConfig, ObjectiveConfig,
    OptimizerConfig, ScheduleConfig, SpanCorruptionConfig,
};
use crate::{DataConfig, RunConfig, TrainConfig};

/// The presets of models other than decoders, each with a line about it.
pub(super) const PRESETS: [(&str, &str); 2] = [
    (
        "bert-nano",
        "a BERT of 4 layers and width 128, trained on masked tokens",
    ),
    (
        "t5-nano",
        "a T5 of 2 + 2 layers and width 128, trained on removed spans",
    ),
];

/// The number of epochs over records.
const EPOCHS: usize = 3;

/// A preset of a model other than a decoder.
pub(super) fn preset(name: &str) -> Option<RunConfig> {
    let (model, objective): (ModelConfig, _) = match name {
        "bert-nano" => {
            let settings = EncoderSettings {
                dropout: 0.1,
                attention_dropout: 0.1,
                head: Some(EncoderHeadConfig::masked_lm(Activation::Gelu)),
                ..EncoderSettings::nano(0)
            };
            (settings.into(), ObjectiveConfig::Mlm(MlmConfig::default()))
        }
        "t5-nano" => {
            let settings = EncoderDecoderSettings {
                dropout: 0.1,
                ..EncoderDecoderSettings::nano(0)
            };
            let objective = SpanCorruptionConfig::default();
            (settings.into(), ObjectiveConfig::SpanCorruption(objective))
        }
        _ => return None,
    };
    Some(RunConfig {
        model: ModelConfig {
            // The default: the width divided by the heads.
            head_dim: None,
            ..model
        },
        data: DataConfig::default(),
        train: TrainConfig {
            steps: 2000,
            seq_len: 128,
            micro_batch: 16,
            objective,
            schedule: cosine(1e-3, 1e-4, 100),
            optimizer: adamw(),
            checkpoints: CheckpointConfig {
                interval: 500,
                ..CheckpointConfig::default()
            },
            ..TrainConfig::default()
        },
    })
}

/// The default configuration for fine-tuning an encoder with BERT's settings for classification, or an encoder–decoder.
pub fn fine_tuning_other(
    model: &TransformerConfig,
    from: &Path,
    objective: ObjectiveConfig,
    records: Option<usize>,
) -> RunConfig {
    let learning_rate = match model.kind() {
        ModelKind::EncoderDecoder => 3e-4,
        ModelKind::Decoder | ModelKind::Encoder => 5e-5,
    };
    tuned(model.raw(), from, objective, records, learning_rate)
}

/// The default configuration for fine-tuning a decoder on `records` preferences, or sampled completions: TRL's batch of 8 pairs
/// or 8 groups of completions and its learning rate, which falls linearly to 0 within three epochs.
pub fn fine_tuning_preferences(
    model: &TransformerConfig,
    from: &Path,
    objective: ObjectiveConfig,
    records: usize,
) -> RunConfig {
    let (micro_batch, accumulation) = match objective.group() {
        Some(group) => (8, group),
        None => (2, 4),
    };
    let steps = (EPOCHS * records)
        .div_ceil(micro_batch * accumulation)
        .max(1);
    let mut run = super::fine_tuning(model, from);
    run.train = TrainConfig {
        steps,
        micro_batch,
        accumulation,
        objective,
        schedule: ScheduleConfig::Linear(DecayConfig {
            learning_rate: 1e-6,
            min_learning_rate: 0.0,
            warmup_steps: 0,
            ..DecayConfig::default()
        }),
        optimizer: OptimizerConfig::AdamW(AdamWConfig {
            weight_decay: 0.0,
            ..AdamWConfig::default()
        }),
        evaluation: EvaluationConfig {
            interval: steps.div_ceil(EPOCHS),
            batch: 8,
            ..EvaluationConfig::default()
        },
        ..run.train
    };
    run
}

/// Three epochs over `records` in batches of 16, or 1,000 steps of windows; a linear schedule with a tenth of warm-up.
fn tuned(
    model: ModelConfig,
    from: &Path,
    objective: ObjectiveConfig,
    records: Option<usize>,
    learning_rate: f64,
) -> RunConfig {
    let micro_batch = 16;
    let of_records = |records: usize| (EPOCHS * records).div_ceil(micro_batch).max(1);
    let steps = records.map_or(1000, of_records);
    RunConfig {
        model,
        data: DataConfig::default(),
        train: TrainConfig {
            from: from.to_owned(),
            steps,
            micro_batch,
            seq_len: if records.is_some() { 0 } else { 128 },
            objective,
            schedule: ScheduleConfig::Linear(DecayConfig {
                learning_rate,
                min_learning_rate: 0.0,
                warmup_steps: steps / 10,
                ..DecayConfig::default()
            }),
            optimizer: adamw(),
            evaluation: EvaluationConfig {
                interval: steps.div_ceil(EPOCHS),
                ..EvaluationConfig::default()
            },
            ..TrainConfig::default()
        },
    }
}

fn adamw() -> OptimizerConfig {
    OptimizerConfig::AdamW(AdamWConfig {
        weight_decay: 0.01,
        ..AdamWConfig::default()
    })
}

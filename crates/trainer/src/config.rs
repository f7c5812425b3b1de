//! What a run is told: the tables `model`, `data` and `train` of its configuration.

use std::path::PathBuf;

use documented::DocumentedFields;
use emberlm_data::Packing;
use emberlm_kernels::{HeadLossOptions, Precision};
use emberlm_model::ModelConfig;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::schedule::decay_end;

mod data;
mod groups;
mod kinds;

pub use data::{DataConfig, MixedDataset};
pub use groups::{Group, Groups};
pub use kinds::{OptimizerKind, Schedule};

/// A whole run, as `config.toml` holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// The model.
    pub model: ModelConfig,
    /// What it learns from.
    pub data: DataConfig,
    /// How it learns.
    pub train: TrainConfig,
}

/// How a run learns. One step is `accumulation` micro-batches and one update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// The model whose weights the run begins with: a run's, a checkpoint's or a Hugging Face directory; empty for first weights.
    pub from: PathBuf,
    /// Updates in all.
    pub steps: usize,
    /// What first weights, data order and dropout are drawn from.
    pub seed: u64,
    /// Tokens of a sequence, in training and evaluation; 0 for the model's whole context.
    pub seq_len: usize,
    /// How documents come into sequences: stream (one after another) or isolated (whole, none sees another).
    pub documents: Packing,
    /// Threads that make batches ahead; 0 for none, each is made when it is needed.
    pub loader_workers: usize,
    /// Sequences per micro-batch.
    pub micro_batch: usize,
    /// Micro-batches per step; the loss is the mean over all targets of a step that are learnt.
    pub accumulation: usize,
    /// Keep only what each block takes, and compute its inside again for its gradients: less memory, more time.
    pub recompute: bool,
    /// The factors of matrix products: f32, or bf16 or f16 where the backend has such products. Weights and all sums stay f32.
    pub precision: Precision,
    /// A factor on the loss that the update takes out again, for gradients too small for f16: 0 for one that finds itself in f16, and for none otherwise.
    pub loss_scale: f64,
    /// The rate after warm-up.
    pub learning_rate: f64,
    /// The rate at the end of the decay, and after it.
    pub min_learning_rate: f64,
    /// How the rate goes from one to the other: constant, cosine, linear, inverse_sqrt or warmup_stable_decay.
    pub schedule: Schedule,
    /// Steps of linear warm-up.
    pub warmup_steps: usize,
    /// The step at which the decay ends; 0 for the last. The constant schedule and inverse_sqrt have no end.
    pub decay_steps: usize,
    /// Of warmup_stable_decay: how many steps before the end the rate falls over.
    pub cooldown_steps: usize,
    /// What turns gradients into updates: adamw, muon (matrices; AdamW the rest) or lion.
    pub optimizer: OptimizerKind,
    /// Decay of AdamW's first moment, and of the mean that Lion takes the sign of; a group may have its own.
    pub beta1: f64,
    /// Decay of AdamW's second moment, and of the mean that Lion carries; a group may have its own.
    pub beta2: f64,
    /// AdamW's epsilon.
    pub epsilon: f64,
    /// Decay of Muon's momentum.
    pub momentum: f64,
    /// Decoupled weight decay; groups say of what.
    pub weight_decay: f64,
    /// The part of a target's probability that is spread over all tokens, in training.
    pub label_smoothing: f64,
    /// The weight of the squared log of the softmax's denominator in the loss, in training (PaLM has 1e-4); 0 for none.
    pub z_loss: f64,
    /// The decay of a running average of the weights, which is evaluated and saved as the model; 0 for none.
    pub ema: f64,
    /// The largest norm of all gradients together; 0 does not clip.
    pub clip_norm: f64,
    /// Skip a step whose loss or gradient norm is so many standard deviations above the mean of its window; 0 skips none for that. Above 0 each step waits for a GPU.
    pub skip_deviations: f64,
    /// Steps that the mean and the deviation are taken over.
    pub skip_window: usize,
    /// Steps skipped in a row that end the run; one is also skipped for a loss or norm that is no number.
    pub skip_limit: usize,
    /// Steps between two lines of the log.
    pub log_interval: usize,
    /// Steps between two evaluations.
    pub eval_interval: usize,
    /// Validation tokens per evaluation, from the split's beginning; 0 for all.
    pub eval_tokens: u64,
    /// Sequences per batch of an evaluation.
    pub eval_batch: usize,
    /// Steps between two checkpoints; one is written at the end as well.
    pub checkpoint_interval: usize,
    /// How many of the newest checkpoints are kept; 0 for all.
    pub keep_last: usize,
    /// Keep the checkpoint of the lowest validation loss as well, and write one whenever there is a lower one.
    pub keep_best: bool,
    /// Tokens of the sample written beside each evaluation; 0 for none.
    pub sample_tokens: usize,
    /// What is different for some parameters.
    pub groups: Groups,
}

/// More threads than this could not have anything to do.
const MOST_WORKERS: usize = 64;

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            from: PathBuf::new(),
            steps: 2000,
            seed: 1,
            seq_len: 0,
            documents: Packing::Stream,
            loader_workers: 1,
            micro_batch: 12,
            accumulation: 1,
            recompute: false,
            precision: Precision::F32,
            loss_scale: 0.0,
            learning_rate: 1e-3,
            min_learning_rate: 1e-4,
            schedule: Schedule::Cosine,
            warmup_steps: 100,
            decay_steps: 0,
            cooldown_steps: 0,
            optimizer: OptimizerKind::AdamW,
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-8,
            momentum: 0.95,
            weight_decay: 0.1,
            label_smoothing: 0.0,
            z_loss: 0.0,
            ema: 0.0,
            clip_norm: 1.0,
            skip_deviations: 0.0,
            skip_window: 128,
            skip_limit: 10,
            log_interval: 10,
            eval_interval: 250,
            eval_tokens: 0,
            eval_batch: 16,
            checkpoint_interval: 1000,
            keep_last: 0,
            keep_best: false,
            sample_tokens: 120,
            groups: Groups::default(),
        }
    }
}

impl TrainConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first that breaks its rule, by field, value and rule.
    pub fn check(&self) -> Result<(), TrainError> {
        for (field, value) in [
            ("steps", self.steps),
            ("micro_batch", self.micro_batch),
            ("accumulation", self.accumulation),
            ("log_interval", self.log_interval),
            ("eval_interval", self.eval_interval),
            ("eval_batch", self.eval_batch),
            ("checkpoint_interval", self.checkpoint_interval),
            ("skip_limit", self.skip_limit),
        ] {
            require(field, value, value >= 1, "must be at least 1")?;
        }
        let number = |x: f64| x.is_finite() && x >= 0.0;
        for (field, value) in [
            ("learning_rate", self.learning_rate),
            ("min_learning_rate", self.min_learning_rate),
            ("weight_decay", self.weight_decay),
            ("loss_scale", self.loss_scale),
            ("clip_norm", self.clip_norm),
            ("z_loss", self.z_loss),
            ("skip_deviations", self.skip_deviations),
        ] {
            require(
                field,
                value,
                number(value),
                "must be 0 or above, and finite",
            )?;
        }
        for (field, value) in [
            ("beta1", self.beta1),
            ("beta2", self.beta2),
            ("momentum", self.momentum),
            ("label_smoothing", self.label_smoothing),
            ("ema", self.ema),
        ] {
            let rule = "must be at least 0 and below 1";
            require(field, value, (0.0..1.0).contains(&value), rule)?;
        }
        let rule = "must be above 0 and finite";
        require(
            "epsilon",
            self.epsilon,
            number(self.epsilon) && self.epsilon > 0.0,
            rule,
        )?;
        let rule = format!("must be at most learning_rate = {}", self.learning_rate);
        let min = self.min_learning_rate;
        require("min_learning_rate", min, min <= self.learning_rate, &rule)?;
        require(
            "skip_window",
            self.skip_window,
            self.skip_window >= 2,
            "must be at least 2, for there to be a deviation",
        )?;
        let rule = format!("must be at most {MOST_WORKERS}");
        let workers = self.loader_workers;
        require("loader_workers", workers, workers <= MOST_WORKERS, &rule)?;
        self.check_schedule()?;
        self.groups.check(self.optimizer)
    }

    fn check_schedule(&self) -> Result<(), TrainError> {
        match self.schedule {
            // Its scale is the warm-up's length.
            Schedule::InverseSqrt => require(
                "warmup_steps",
                self.warmup_steps,
                self.warmup_steps >= 1,
                "must be at least 1 with schedule = inverse_sqrt, which falls as the root of warmup_steps / step",
            ),
            Schedule::WarmupStableDecay => {
                let end = decay_end(self);
                let rule = format!(
                    "must be between 1 and {end}, the step where the decay ends, with schedule = warmup_stable_decay"
                );
                let steps = self.cooldown_steps;
                require("cooldown_steps", steps, (1..=end).contains(&steps), &rule)
            }
            Schedule::Constant | Schedule::Cosine | Schedule::Linear => Ok(()),
        }
    }

    /// Tokens of a sequence for a model of a context.
    ///
    /// # Errors
    /// They are more than the context.
    pub fn sequence_tokens(&self, context: usize) -> Result<usize, TrainError> {
        let rule = format!("must be at most the model's context of {context}");
        require("seq_len", self.seq_len, self.seq_len <= context, &rule)?;
        Ok(match self.seq_len {
            0 => context,
            tokens => tokens,
        })
    }

    /// What training adds to the cross-entropy.
    pub fn objective(&self) -> HeadLossOptions {
        HeadLossOptions {
            label_smoothing: self.label_smoothing,
            z_loss: self.z_loss,
            ..HeadLossOptions::default()
        }
    }

    /// Sequences of a step on `world_size` ranks.
    pub fn step_sequences(&self, world_size: usize) -> u64 {
        self.micro_batch as u64 * self.accumulation as u64 * world_size as u64
    }
}

fn require(
    field: &'static str,
    value: impl ToString,
    holds: bool,
    rule: &str,
) -> Result<(), TrainError> {
    if holds {
        return Ok(());
    }
    Err(TrainError::Setting {
        table: "train",
        field,
        value: value.to_string(),
        rule: rule.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(change: impl FnOnce(&mut TrainConfig)) -> String {
        let mut config = TrainConfig::default();
        change(&mut config);
        config.check().expect_err("illegal").to_string()
    }

    #[test]
    fn each_rule_names_field_value_and_rule() {
        TrainConfig::default()
            .check()
            .expect("the defaults are legal");
        let expected = "train.micro_batch = 0: must be at least 1";
        assert_eq!(error_of(|c| c.micro_batch = 0), expected);
        let expected = "train.learning_rate = NaN: must be 0 or above, and finite";
        assert_eq!(error_of(|c| c.learning_rate = f64::NAN), expected);
        let expected = "train.beta2 = 1: must be at least 0 and below 1";
        assert_eq!(error_of(|c| c.beta2 = 1.0), expected);
        let expected = "train.min_learning_rate = 0.1: must be at most learning_rate = 0.001";
        assert_eq!(error_of(|c| c.min_learning_rate = 0.1), expected);
        let expected = "train.loss_scale = -1: must be 0 or above, and finite";
        assert_eq!(error_of(|c| c.loss_scale = -1.0), expected);
        let expected = "train.skip_window = 1: must be at least 2, for there to be a deviation";
        assert_eq!(error_of(|c| c.skip_window = 1), expected);
        let expected = "train.loader_workers = 65: must be at most 64";
        assert_eq!(error_of(|c| c.loader_workers = 65), expected);
        let expected = "train.label_smoothing = 1: must be at least 0 and below 1";
        assert_eq!(error_of(|c| c.label_smoothing = 1.0), expected);
    }

    #[test]
    fn schedules_have_rules_of_their_own() {
        let expected = "train.warmup_steps = 0: must be at least 1 with schedule = inverse_sqrt, \
            which falls as the root of warmup_steps / step";
        let error = error_of(|c| {
            c.schedule = Schedule::InverseSqrt;
            c.warmup_steps = 0;
        });
        assert_eq!(error, expected);
        for (steps, decay_steps, cooldown_steps, end) in
            [(50, 0, 51, 50), (50, 0, 0, 50), (50, 40, 41, 40)]
        {
            let error = error_of(|c| {
                c.schedule = Schedule::WarmupStableDecay;
                (c.steps, c.decay_steps, c.cooldown_steps) = (steps, decay_steps, cooldown_steps);
            });
            let expected = format!(
                "train.cooldown_steps = {cooldown_steps}: must be between 1 and {end}, the step where the decay \
                ends, with schedule = warmup_stable_decay"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn groups_name_their_table() {
        let expected = "train.groups.head.rate = -1: must be 0 or above, and finite";
        assert_eq!(error_of(|c| c.groups.head.rate = -1.0), expected);
        let expected = "train.groups.vectors.weight_decay = inf: must be 0 or above, and finite";
        assert_eq!(
            error_of(|c| c.groups.vectors.weight_decay = f64::INFINITY),
            expected
        );
        let expected = "train.groups.embeddings.beta2 = 1: must be at least 0 and below 1";
        assert_eq!(
            error_of(|c| c.groups.embeddings.beta2 = Some(1.0)),
            expected
        );
        let expected = "train.groups.matrices.beta1 = 0.8: must be absent with optimizer = muon, \
            whose decay for matrices is train.momentum";
        let error = error_of(|c| {
            c.optimizer = OptimizerKind::Muon;
            c.groups.matrices.beta1 = Some(0.8);
        });
        assert_eq!(error, expected);
    }
}

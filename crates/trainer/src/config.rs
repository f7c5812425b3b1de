//! What a run is told: the tables `model`, `data` and `train` of its configuration.

use std::path::PathBuf;

use documented::DocumentedFields;
use emberlm_model::ModelConfig;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;

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

/// What a run learns from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// The dataset's directory.
    pub dataset: PathBuf,
}

/// How a run learns. One step is `accumulation` micro-batches and one update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// The model whose weights the run begins with: a run's, a checkpoint's or a Hugging Face directory; empty for first weights.
    #[serde(default)]
    pub from: PathBuf,
    /// Updates in all.
    pub steps: usize,
    /// What first weights, data order and dropout are drawn from.
    pub seed: u64,
    /// Tokens of a sequence, in training and evaluation; 0 for the model's whole context.
    #[serde(default)]
    pub seq_len: usize,
    /// Sequences per micro-batch.
    pub micro_batch: usize,
    /// Micro-batches per step; the loss is the mean over all of a step's tokens.
    pub accumulation: usize,
    /// The rate after warm-up.
    pub learning_rate: f64,
    /// The rate at the end of the cosine decay, and after it.
    pub min_learning_rate: f64,
    /// Steps of linear warm-up.
    pub warmup_steps: usize,
    /// The step at which the decay ends; 0 for the last.
    pub decay_steps: usize,
    /// AdamW's decay of the first moment.
    pub beta1: f64,
    /// AdamW's decay of the second moment.
    pub beta2: f64,
    /// AdamW's epsilon.
    pub epsilon: f64,
    /// AdamW's decoupled weight decay, of matrices only.
    pub weight_decay: f64,
    /// The largest norm of all gradients together; 0 does not clip.
    pub clip_norm: f64,
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
    /// Tokens of the sample written beside each evaluation; 0 for none.
    pub sample_tokens: usize,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            from: PathBuf::new(),
            steps: 2000,
            seed: 1,
            seq_len: 0,
            micro_batch: 12,
            accumulation: 1,
            learning_rate: 1e-3,
            min_learning_rate: 1e-4,
            warmup_steps: 100,
            decay_steps: 0,
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-8,
            weight_decay: 0.1,
            clip_norm: 1.0,
            log_interval: 10,
            eval_interval: 250,
            eval_tokens: 0,
            eval_batch: 16,
            checkpoint_interval: 1000,
            sample_tokens: 120,
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
        ] {
            require(field, value, value >= 1, "must be at least 1")?;
        }
        let number = |x: f64| x.is_finite() && x >= 0.0;
        for (field, value) in [
            ("learning_rate", self.learning_rate),
            ("min_learning_rate", self.min_learning_rate),
            ("weight_decay", self.weight_decay),
            ("clip_norm", self.clip_norm),
        ] {
            require(
                field,
                value,
                number(value),
                "must be 0 or above, and finite",
            )?;
        }
        for (field, value) in [("beta1", self.beta1), ("beta2", self.beta2)] {
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
        require("min_learning_rate", min, min <= self.learning_rate, &rule)
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

    /// Sequences per step.
    pub fn step_sequences(&self) -> u64 {
        self.micro_batch as u64 * self.accumulation as u64
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
    }
}

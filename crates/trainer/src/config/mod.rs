//! The configuration of a run: the tables `model` (or `encoder`, or `encoder_decoder`), `data` and `train` of its
//! `config.toml`.

use std::path::PathBuf;

use emberlm_data::Packing;
use emberlm_kernels::HeadLossOptions;
use emberlm_model::{LoraConfig, ModelConfig, ModelKind};
use serde::{Deserialize, Serialize};

use crate::error::TrainError;

mod check;
mod data;
mod docs;
pub mod epochs;
mod exchange;
mod groups;
mod keys;
mod kinds;
pub mod legacy;
mod objective;
mod optimizer;
mod parametrization;
mod preference;
pub mod presets;
mod reward;
pub mod run_config;
mod schedule;
mod sections;
mod settings;
mod stages;

use check::{MOST_SEQUENCES, MOST_STEPS, Must, Range, check_step_sequences, require};
pub use data::{DataConfig, MixedDataset};
pub use docs::{Setting, SettingsTable, field_docs, kind_docs, tables};
pub use exchange::ExchangeMemory;
pub use groups::{Group, Groups};
pub use keys::{keys_of, suggested_key};
pub(crate) use keys::{suggested_in, suggested_value};
pub use objective::*;
pub use optimizer::*;
pub use parametrization::*;
pub use preference::*;
pub use reward::*;
pub use schedule::*;
pub use sections::*;
use settings::{Settings, settings};
pub use stages::Stage;

/// The configuration of a run, as stored in `config.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Settings of the model.
    pub model: ModelConfig,
    /// The datasets to train on.
    pub data: DataConfig,
    /// Settings of training.
    pub train: TrainConfig,
}

impl RunConfig {
    /// The configuration of a decoder.
    ///
    /// # Errors
    /// The model is another one.
    pub fn decoder(&self) -> Result<&ModelConfig, TrainError> {
        match self.model.kind() {
            ModelKind::Decoder => Ok(&self.model),
            kind => Err(TrainError::NotADecoder { kind }),
        }
    }

    /// [`Self::decoder`], to be changed.
    ///
    /// # Errors
    /// The model is another one.
    pub fn decoder_mut(&mut self) -> Result<&mut ModelConfig, TrainError> {
        self.decoder()?;
        Ok(&mut self.model)
    }
}

settings! {
    /// Settings of training. One step is `accumulation` micro-batches and one update.
    pub struct TrainConfig in "train" {
        /// The initial weights: a run, checkpoint or Hugging Face directory; empty for a new initialization.
        pub from: PathBuf = PathBuf::new();
        /// Number of steps.
        pub steps: usize = 2000, 1..=MOST_STEPS;
        /// Seed of the initial weights, the data order and dropout.
        pub seed: u64 = 1;
        /// Tokens per sequence in training; 0 for the model's full context.
        pub seq_len: usize = 0;
        /// Packing of documents into sequences: stream (one after another), isolated (whole documents in order; attention does
        /// not cross them) or best_fit (isolated, combined for the least padding).
        pub documents: Packing = Packing::Stream;
        /// Threads that prepare batches in advance; 0 prepares each batch when it is needed.
        pub loader_workers: usize = 1, 0..=MAX_WORKERS;
        /// Memory that several ranks exchange: host, or device if the MPI library can access the device's memory (untested on
        /// GPUs).
        pub exchange: ExchangeMemory = ExchangeMemory::Host;
        /// Sequences per micro-batch.
        pub micro_batch: usize = 12, 1..=MOST_SEQUENCES;
        /// Micro-batches per step, over all ranks; the loss is the mean over all unmasked targets of a step.
        pub accumulation: usize = 1, 1..=MOST_SEQUENCES;
        /// Stages of the run, in the order of their steps.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub stages: Vec<Stage> = Vec::new();
        /// Train on the sequences of the first step at every step, as a test that the model can learn them.
        pub overfit_batch: bool = false;
        /// Recompute the activations of blocks in the backward pass: less memory, more time.
        pub recompute: bool = false;
        /// Maximum global gradient norm; 0 disables clipping.
        pub clip_norm: f64 = 1.0, Range::NotNegative;
        /// Decay of the exponential moving average of the weights, which is evaluated and saved as the model; 0 for none.
        pub ema: f64 = 0.0, Range::Share;
        /// Steps between log lines.
        pub log_interval: usize = 10, 1..=usize::MAX;
        /// Steps between records of the norms of each layer's gradients, updates and activations; 0 for none.
        pub norms_interval: usize = 0;
        /// The training objective.
        pub objective: ObjectiveConfig = ObjectiveConfig::default();
        /// Low-rank adapters of a frozen model, which are then all that is trained, apart from a classifier.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub adapter: Option<LoraConfig> = None;
        /// Parameters that are not trained, by their paths or the beginnings of these, such as "tokens" or "blocks.0"; `*` stands for any component.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub frozen: Vec<String> = Vec::new();
        /// Factor on the learning rate for each block below the head: block `i` of `n` has `layer_decay^(n - i)`, embeddings `layer_decay^(n + 1)`.
        pub layer_decay: f64 = 1.0, Range::Positive, Must("must be at most 1", |decay: &f64| *decay <= 1.0);
        /// Scale α of the noise on a decoder's embeddings (NEFTune), uniform within `α / √(seq_len · d_model)`; 0 for none.
        pub embedding_noise: f64 = 0.0, Range::NotNegative;
        /// Precision of the matrix products.
        pub precision: PrecisionConfig = PrecisionConfig::default();
        /// Terms that training adds to the cross-entropy.
        pub loss: LossConfig = LossConfig::default();
        /// The rules by which initial weights, factors of the model and learning rates follow from the model's size.
        pub parametrization: ParametrizationConfig = ParametrizationConfig::default();
        /// The optimizer.
        pub optimizer: OptimizerConfig = OptimizerConfig::default();
        /// The learning rate at each step.
        pub schedule: ScheduleConfig = ScheduleConfig::default();
        /// The factor on the weight decay at each step.
        pub decay_schedule: DecayScheduleConfig = DecayScheduleConfig::default();
        /// Conditions for skipping a step.
        pub skip: SkipConfig = SkipConfig::default();
        /// Evaluation during training.
        pub evaluation: EvaluationConfig = EvaluationConfig::default();
        /// Checkpoints.
        pub checkpoints: CheckpointConfig = CheckpointConfig::default();
        /// Settings of groups of parameters.
        pub groups: Groups = Groups::default();
    }
}

/// The upper bound of `loader_workers`. More threads would be idle.
const MAX_WORKERS: usize = 64;

impl TrainConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// Returns the first violated rule, with its field and value.
    pub fn check(&self) -> Result<(), TrainError> {
        self.check_rules()?;
        check_step_sequences("train", self.micro_batch, self.accumulation)?;
        self.objective.check()?;
        self.check_stages()?;
        let rule = format!(
            "must be false with objective {}, which samples the sequences of each step",
            self.objective.kind().name()
        );
        let holds = !(self.overfit_batch && self.objective.samples());
        require("train", "overfit_batch", self.overfit_batch, holds, &rule)?;
        if let Some(adapter) = &self.adapter {
            adapter.check()?;
            let (frozen, rule) = (self.frozen.join(", "), "must be empty with an adapter");
            require("train", "frozen", &frozen, frozen.is_empty(), rule)?;
            let rule = "must be 0 with an adapter";
            require("train", "ema", self.ema, self.ema == 0.0, rule)?;
            let rule = "must be set with an adapter";
            let is_set = !self.from.as_os_str().is_empty();
            require("train", "from", "\"\"", is_set, rule)?;
        }
        self.parametrization.check_rules()?;
        if !self.from.as_os_str().is_empty() {
            let holds = self.parametrization.is_standard();
            let rule = "must be standard with train.from, whose weights are not initial ones";
            let kind = self.parametrization.kind().name();
            require("train.parametrization", "kind", kind, holds, rule)?;
        }
        self.precision.check_rules()?;
        self.loss.check_rules()?;
        self.optimizer.check_rules()?;
        self.schedule.check(self.steps)?;
        self.decay_schedule.check_rules()?;
        self.skip.check_rules()?;
        self.evaluation.check_rules()?;
        self.checkpoints.check_rules()?;
        self.groups.check(self.optimizer.kind())
    }

    /// Returns true if the norms by layer are recorded at step `step`, counted from 1.
    pub(crate) fn norms_are_due(&self, step: usize) -> bool {
        self.norms_interval > 0 && step.is_multiple_of(self.norms_interval)
    }

    /// Checks that the settings are ones of `model`'s kind.
    ///
    /// # Errors
    /// A setting is only for decoders, or not for the model's attention.
    pub fn check_model(&self, model: &ModelConfig) -> Result<(), TrainError> {
        let is_decoder = model.architecture.is_decoder();
        let rule = "must be 0 for models other than decoders";
        let (noise, table) = (self.embedding_noise, "train");
        require(
            table,
            "embedding_noise",
            noise,
            is_decoder || noise == 0.0,
            rule,
        )?;
        self.check_windows(model)?;
        self.parametrization.check_model(model)
    }

    /// The sequence length for a model with a context of `context` tokens: `seq_len`, or the whole context if
    /// that is 0.
    ///
    /// # Errors
    /// `seq_len` is longer than the context, or that of a stage does not divide it.
    pub fn sequence_tokens(&self, context: usize) -> Result<usize, TrainError> {
        let rule = format!("must be at most the model's context of {context}");
        require(
            "train",
            "seq_len",
            self.seq_len,
            self.seq_len <= context,
            &rule,
        )?;
        let tokens = match self.seq_len {
            0 => context,
            tokens => tokens,
        };
        self.check_cuts(tokens)?;
        Ok(tokens)
    }

    /// Tokens of an encoder–decoder's source. Relative positions set no limit; by default the tokens of T5.
    pub(crate) fn source_tokens(&self) -> usize {
        match self.seq_len {
            0 => 512,
            tokens => tokens,
        }
    }

    /// The loss options: terms added to the cross-entropy.
    pub fn loss_options(&self) -> HeadLossOptions {
        HeadLossOptions {
            label_smoothing: self.loss.label_smoothing,
            z_loss: self.loss.z_loss,
            ..HeadLossOptions::default()
        }
    }

    /// Sequences per step, over all ranks, of a run without stages.
    pub fn step_sequences(&self) -> u64 {
        (self.micro_batch as u64).saturating_mul(self.accumulation as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(change: impl FnOnce(&mut TrainConfig)) -> String {
        let mut config = TrainConfig::default();
        change(&mut config);
        config.check().expect_err("illegal").to_string()
    }

    /// The default configuration with the settings of a table, such as `optimizer = { kind = "lion" }`.
    fn with(settings: &str) -> impl FnOnce(&mut TrainConfig) {
        let config = toml::from_str(settings).expect("settings");
        move |default: &mut TrainConfig| *default = config
    }

    #[test]
    fn each_rule_names_field_value_and_rule() {
        TrainConfig::default()
            .check()
            .expect("the defaults are legal");
        let expected = "train.micro_batch = 0: must be at least 1";
        assert_eq!(error_of(|c| c.micro_batch = 0), expected);
        let expected = "train.loader_workers = 65: must be at most 64";
        assert_eq!(error_of(|c| c.loader_workers = 65), expected);
        for (settings, expected) in [
            (
                "schedule = { kind = \"constant\", learning_rate = nan }",
                "train.schedule.learning_rate = NaN: must be 0 or above, and finite",
            ),
            (
                "optimizer = { kind = \"adamw\", beta2 = 1.0 }",
                "train.optimizer.beta2 = 1: must be at least 0 and below 1",
            ),
            (
                "optimizer = { kind = \"muon\", momentum = -1.0 }",
                "train.optimizer.momentum = -1: must be at least 0 and below 1",
            ),
            (
                "optimizer = { kind = \"normuon\", neuron_beta = 1.0 }",
                "train.optimizer.neuron_beta = 1: must be at least 0 and below 1",
            ),
            (
                "optimizer = { kind = \"soap\", precondition_frequency = 0 }",
                "train.optimizer.precondition_frequency = 0: must be at least 1",
            ),
            (
                "optimizer = { kind = \"soap\", max_precond_dim = 0 }",
                "train.optimizer.max_precond_dim = 0: must be at least 1",
            ),
            (
                "optimizer = { kind = \"adamw\", epsilon = 0.0 }",
                "train.optimizer.epsilon = 0: must be above 0 and finite",
            ),
            (
                "schedule = { kind = \"cosine\", min_learning_rate = 0.1 }",
                "train.schedule.min_learning_rate = 0.1: must be at most learning_rate = 0.001",
            ),
            (
                "decay_schedule = { kind = \"linear\", final_factor = -0.5 }",
                "train.decay_schedule.final_factor = -0.5: must be 0 or above, and finite",
            ),
            (
                "precision = { loss_scale = -1.0 }",
                "train.precision.loss_scale = -1: must be 0 or above, and finite",
            ),
            (
                "skip = { kind = \"outliers\", window = 1 }",
                "train.skip.window = 1: must be at least 2, for there to be a deviation",
            ),
            (
                "skip = { kind = \"outliers\", deviations = 0.0 }",
                "train.skip.deviations = 0: must be above 0 and finite",
            ),
            (
                "loss = { label_smoothing = 1.0 }",
                "train.loss.label_smoothing = 1: must be at least 0 and below 1",
            ),
            (
                "evaluation = { batch = 0 }",
                "train.evaluation.batch = 0: must be at least 1",
            ),
        ] {
            assert_eq!(error_of(with(settings)), expected);
        }
    }

    #[test]
    fn settings_of_another_kind_are_rejected() {
        for (settings, field) in [
            (
                "optimizer = { kind = \"adamw\", momentum = 0.9 }",
                "momentum",
            ),
            ("optimizer = { kind = \"lion\", epsilon = 1e-8 }", "epsilon"),
            (
                "optimizer = { kind = \"muon\", neuron_beta = 0.9 }",
                "neuron_beta",
            ),
            (
                "optimizer = { kind = \"soap\", momentum = 0.9 }",
                "momentum",
            ),
            (
                "decay_schedule = { kind = \"constant\", final_factor = 0.5 }",
                "final_factor",
            ),
            (
                "schedule = { kind = \"constant\", min_learning_rate = 0.0 }",
                "min_learning_rate",
            ),
            (
                "schedule = { kind = \"cosine\", cooldown_steps = 3 }",
                "cooldown_steps",
            ),
            ("skip = { kind = \"non_finite\", window = 3 }", "window"),
        ] {
            let error = toml::from_str::<TrainConfig>(settings).expect_err("of another kind");
            let expected = format!("unknown field `{field}`");
            assert!(error.to_string().contains(&expected), "{error}");
        }
    }

    #[test]
    fn schedules_have_specific_rules() {
        let expected = "train.schedule.warmup_steps = 0: must be at least 1 with kind = inverse_sqrt, \
            which falls as the root of warmup_steps / step";
        let settings = "schedule = { kind = \"inverse_sqrt\", warmup_steps = 0 }";
        assert_eq!(error_of(with(settings)), expected);
        for (steps, decay_steps, cooldown_steps, end) in
            [(50, 0, 51, 50), (50, 0, 0, 50), (50, 40, 41, 40)]
        {
            let settings = format!(
                "steps = {steps}\nschedule = {{ kind = \"warmup_stable_decay\", \
                decay_steps = {decay_steps}, cooldown_steps = {cooldown_steps} }}"
            );
            let expected = format!(
                "train.schedule.cooldown_steps = {cooldown_steps}: must be between 1 and {end}, the step where \
                the decay ends, with kind = warmup_stable_decay"
            );
            assert_eq!(error_of(with(&settings)), expected);
        }
    }

    #[test]
    fn group_errors_name_the_table() {
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
        for kind in [OptimizerKind::Muon, OptimizerKind::NorMuon] {
            let expected = format!(
                "train.groups.matrices.beta1 = 0.8: must be absent with optimizer = {}, whose decay for matrices is \
                train.optimizer.momentum",
                kind.name()
            );
            let error = error_of(|c| {
                c.optimizer = kind.into();
                c.groups.matrices.beta1 = Some(0.8);
            });
            assert_eq!(error, expected);
        }
    }
}

//! A run that is about to start.

use std::sync::Arc;

use burn::tensor::Device;
use emberlm_checkpoint::{BaseModel, Model, ModelError};
use emberlm_data::ChatTemplateSpec;
use emberlm_kernels::TrainingBackend;

use super::{RunOptions, RunResult, RunStart, RunWeights, train_with};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::hooks::Hook;
use crate::peers::{Peers, SingleProcess};
use crate::step::engine::EngineOptions;

/// A run that is about to start: its configuration, and the settings that are not part of it.
///
/// ```no_run
/// use burn::backend::{Autodiff, Flex};
/// use emberlm_trainer::{DataConfig, Training, presets};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut config = presets::run("pocket-tales")?;
/// config.data = DataConfig::of("my-dataset");
/// config.train.steps = 100;
/// let result = Training::<Autodiff<Flex>>::new(config, "my-run")
///     .say(|line| println!("{line}"))
///     .run()?;
/// println!("{}", result.run.display());
/// # Ok(())
/// # }
/// ```
#[must_use = "`run` starts it"]
pub struct Training<B: TrainingBackend> {
    config: RunConfig,
    start: RunStart,
    weights: Option<RunWeights<B>>,
    options: RunOptions,
    device: Device<B>,
    peers: Arc<dyn Peers<B::InnerBackend>>,
}

impl<B: TrainingBackend> Training<B> {
    /// A run with new weights, on the default device, without output. A path starts a new run in that directory; for a run
    /// that continues, see [`RunStart`].
    pub fn new(config: RunConfig, start: impl Into<RunStart>) -> Self {
        Self {
            config,
            start: start.into(),
            weights: None,
            options: RunOptions::default(),
            device: Default::default(),
            peers: Arc::new(SingleProcess),
        }
    }

    /// Sets the initial weights of a run without a checkpoint.
    pub fn weights(mut self, weights: impl Into<RunWeights<B>>) -> Self {
        self.weights = Some(weights.into());
        self
    }

    /// Fine-tunes `model`, of any kind: its weights, tokenizer, chat template and files. If the configuration has
    /// `train.adapter`, the run trains an adapter of it.
    ///
    /// # Errors
    /// A file of the model cannot be read.
    pub fn fine_tuning(mut self, model: &Model) -> Result<Self, ModelError> {
        self.weights = Some(model.reopen()()?.into());
        self.options.base = match &self.config.train.adapter {
            Some(_) => Some(BaseModel::of(model)?),
            None => None,
        };
        self.options.source = model.source_files()?;
        if self.config.reads_records() {
            self.options.tokenizer = model.tokenizer()?;
            let template = model.chat_template()?;
            self.options.chat_template = template.as_ref().map(ChatTemplateSpec::from);
        }
        Ok(self)
    }

    /// Sets all options.
    pub fn options(mut self, options: RunOptions) -> Self {
        self.options = options;
        self
    }

    /// Calls `say` with each line of the progress output ([`RunOptions::say`]).
    pub fn say(mut self, say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.options.say = Arc::new(say);
        self
    }

    /// Adds the program's code at steps, evaluations and checkpoints.
    pub fn hook(mut self, hook: impl Hook + 'static) -> Self {
        self.options.hooks.push(Box::new(hook));
        self
    }

    /// Sets the device.
    pub fn device(mut self, device: Device<B>) -> Self {
        self.device = device;
        self
    }

    /// Makes this one of several processes, which share the micro-batches of each step. Only rank 0 writes into the run's
    /// directory. A stop that one process requests ends all of them after the same step.
    pub fn peers(mut self, peers: Arc<dyn Peers<B::InnerBackend>>) -> Self {
        self.peers = peers;
        self
    }

    /// Trains the model, from the beginning or from a checkpoint.
    ///
    /// # Errors
    /// Every failure of the run: an invalid configuration, data or weights that cannot be read, a peer that cannot be
    /// reached or has another configuration. An interruption is not an error.
    pub fn run(self) -> Result<RunResult, TrainError> {
        let engine = EngineOptions::of::<B>(&self.config.train, &self.device);
        train_with(
            self.config,
            self.start,
            self.weights,
            self.options,
            self.device,
            engine,
            self.peers,
        )
    }
}

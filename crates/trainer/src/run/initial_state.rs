//! The initial state of a run: weights, optimizer state and position.

use std::path::PathBuf;

use burn::module::AutodiffModule;
use burn::tensor::Device;
use burn::tensor::backend::Backend as BurnBackend;
use emberlm_checkpoint::CheckpointError;
use emberlm_kernels::TrainingBackend;
use emberlm_model::weights::Parts;

use crate::checkpoint::State;
use crate::config::run_config;
use crate::config::{RunConfig, TrainConfig};
use crate::error::TrainError;
use crate::objective::model::TrainingModel;
use crate::optimizer::Optimizer;
use crate::peers::Rank;
use crate::run::model::{initial, load, resume};
use crate::run::{RunInputs, RunStart, RunWeights};
use crate::step::ema::Average;
use crate::step::frozen::freeze;

/// The initial state of a run, new or from a checkpoint.
pub(crate) struct InitialState<B: TrainingBackend> {
    pub(crate) model: TrainingModel<B>,
    pub(crate) optimizer: Optimizer<B::InnerBackend>,
    pub(crate) average: Option<Average<B::InnerBackend>>,
    pub(crate) state: State,
    /// The backend of the checkpoint.
    pub(crate) resumed_backend: Option<String>,
    /// The newest existing checkpoint.
    pub(crate) checkpoint: Option<PathBuf>,
    /// Notes on what a fork does not continue.
    pub(crate) notes: Vec<String>,
}

impl<B: TrainingBackend> InitialState<B> {
    pub(crate) fn new(
        start: &RunStart,
        weights: Option<RunWeights<B>>,
        config: &RunConfig,
        inputs: &RunInputs,
        rank: Rank,
        device: &Device<B>,
    ) -> Result<Self, TrainError> {
        let (checkpoint, fork) = (start.checkpoint(), start.fork());
        let mut state = State::default();
        let seed = config.train.seed;
        let model = match (checkpoint, weights) {
            (Some(checkpoint), _) => resume::<B>(&inputs.model, checkpoint, device)?,
            (None, Some(weights)) => {
                let adapter = config.train.adapter.as_ref();
                weights.load(&inputs.model, seed, adapter, device)?
            }
            (None, None) => initial::<B>(&inputs.model, &config.train, device).into(),
        };
        let model = freeze(model, &config.train.frozen)?;
        let mut optimizer = Optimizer::new(&config.train, model.parameters()).sharded(rank);
        if let Some(checkpoint) = checkpoint {
            state = checkpoint.state.clone().unwrap_or_default();
            if state.step > config.train.steps {
                return Err(TrainError::StepsMade {
                    path: checkpoint.path.clone(),
                    made: state.step,
                    steps: config.train.steps,
                });
            }
        }
        let keeps_optimizer = fork.is_none_or(|fork| fork.keeps_optimizer(config));
        if let Some(checkpoint) = checkpoint.filter(|_| keeps_optimizer) {
            let parts = Parts::of::<B, _>(&model);
            let mut failed = None;
            // One by one, since a rank holds a part of them only.
            let tensors = checkpoint.optimizer()?.map_while(|tensor| {
                let tensor = tensor.map_err(|error| failed = Some(error));
                tensor.ok()
            });
            let restored = optimizer.restore(state.updates, tensors, &parts, device);
            if let Some(error) = failed {
                return Err(error.into());
            }
            restored.map_err(|name| CheckpointError::Damaged {
                path: checkpoint.path.clone(),
                reason: format!("its optimizer's tensor {name} is unexpected or missing"),
            })?;
        }
        let averaged = match checkpoint {
            Some(checkpoint) if checkpoint.holds_average() => {
                Some(load::<B::InnerBackend>(&inputs.model, checkpoint, device)?)
            }
            _ => None,
        };
        let decay = config.train.ema;
        let average =
            (decay > 0.0).then(|| Average::new(averaged.unwrap_or_else(|| model.valid()), decay));
        let notes = fork.map(|fork| fork.adapt(&mut state, config, inputs));
        state.data.clone_from(&inputs.identities);
        state.settings = Some(run_config::to_toml(&fixed_settings(config))?);
        state.temporary = false;
        let backend = B::InnerBackend::name(device);
        let before = std::mem::replace(&mut state.backend, backend);
        Ok(Self {
            model,
            optimizer,
            average,
            state,
            resumed_backend: checkpoint.map(|_| before),
            checkpoint: checkpoint.map(|checkpoint| checkpoint.path.clone()),
            notes: notes.unwrap_or_default(),
        })
    }
}

/// The settings that a checkpoint keeps: without those that depend on the machine and may differ between ranks.
fn fixed_settings(config: &RunConfig) -> RunConfig {
    let mut config = config.clone();
    let TrainConfig {
        loader_workers,
        exchange,
        ..
    } = TrainConfig::default();
    config.train.loader_workers = loader_workers;
    config.train.exchange = exchange;
    config
}

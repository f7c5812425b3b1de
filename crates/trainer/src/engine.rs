//! One training step: micro-batches in, outcome out. The engine neither logs nor saves; a driver does.
//!
//! ```text
//! micro-batches ─► loss ─► gradients ┐ × accumulation, summed (the loss is a mean over the step's targets)
//!                  sum over all ranks ─► one norm over all gradients
//!                  decide ─► one clip, one learning rate, one update ─► settle ─► outcome
//! ```
//!
//! [`ReadPolicy`] says who decides whether a step updates the weights. Where reading a number is free, the host reads the
//! loss and the norm and judges them before the update. On a device that works behind the host, reading waits for
//! everything that the device was asked for. There a [`Guard`] on the device decides, the step stays [`pending`], and
//! [`settle`] reads and judges all pending steps at once when something is due. The outcome is the same to the bit.

use std::sync::Arc;

use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use emberlm_kernels::{Backend, Precision, TrainingBackend};
use emberlm_model::{Decoder, ExpertLoad};

use crate::checkpoint::State;
use crate::config::{SkipConfig, TrainConfig};
use crate::ema::Average;
use crate::gradients::{self, StepGradients, StepNumbers};
use crate::guard::Guard;
use crate::loss_scale::LossScale;
use crate::optimizer::{Optimizer, Snapshot};
use crate::peers::{Peers, PeersError, Rank};
use crate::schedule::LearningRateSchedule;
use crate::skip::{SkipHistory, StepDecision};
use crate::stop::StopSignal;
use crate::training_model::TrainingModel;

mod outcome;
mod pending;
mod settle;

pub use outcome::{SkippedStep, StepMetrics, StepOutcome, StepReport};
pub(crate) use pending::StepBatches;
use pending::{PendingStep, PendingSteps, StepFigures};

/// When the host reads a step's loss and gradient norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPolicy {
    /// Before its update.
    EveryStep,
    /// When something is due after it; until then a guard on the device decides. The outcome is the same.
    WhenDue,
}

impl ReadPolicy {
    /// `WhenDue` on devices that work behind the host, unless the settings judge steps by a window on the host.
    fn of<B: Backend>(config: &TrainConfig) -> Self {
        match B::works_behind() && matches!(config.skip, SkipConfig::NonFinite(_)) {
            true => Self::WhenDue,
            false => Self::EveryStep,
        }
    }
}

/// The engine's settings that the backend and the device decide.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EngineOptions {
    /// When the host reads steps.
    pub(crate) read_policy: ReadPolicy,
    /// The initial scale of a loss whose scale adapts; none for one that is fixed, and for none.
    pub(crate) loss_scale: Option<LossScale>,
}

impl EngineOptions {
    pub(crate) fn of<B: Backend>(config: &TrainConfig, device: &Device<B>) -> Self {
        let precision = &config.precision;
        let half = precision.products == Precision::F16 && B::multiplies_in(Precision::F16, device);
        Self {
            read_policy: ReadPolicy::of::<B>(config),
            loss_scale: (half && precision.loss_scale == 0.0).then(LossScale::default),
        }
    }
}

/// The position of a run, as far as its steps decide it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StepPosition {
    /// Steps that were judged.
    pub(crate) step: usize,
    /// The figures of the latest steps.
    pub(crate) watch: SkipHistory,
    /// The scale of the loss, where it adapts.
    pub(crate) loss_scale: Option<LossScale>,
}

impl StepPosition {
    /// The position that a checkpoint holds.
    pub(crate) fn of(state: &State) -> Self {
        Self {
            step: state.step,
            watch: state.watch.clone(),
            loss_scale: state.loss_scale,
        }
    }
}

/// The engine: the optimizer, the average of the weights, and the steps that are still to be judged.
pub(crate) struct StepEngine<B: TrainingBackend> {
    config: TrainConfig,
    schedule: LearningRateSchedule,
    read_policy: ReadPolicy,
    peers: Arc<dyn Peers<B::InnerBackend>>,
    optimizer: Optimizer<B::InnerBackend>,
    average: Option<Average<B::InnerBackend>>,
    position: StepPosition,
    pending: PendingSteps<B>,
    /// Ends a step between two micro-batches.
    stop: Option<StopSignal>,
    /// The tokens of each expert in this rank's micro-batches of the newest step.
    expert_load: ExpertLoad,
}

impl<B: TrainingBackend> StepEngine<B> {
    /// An engine at a position of a run.
    pub(crate) fn new(
        config: TrainConfig,
        read_policy: ReadPolicy,
        peers: Arc<dyn Peers<B::InnerBackend>>,
        optimizer: Optimizer<B::InnerBackend>,
        average: Option<Average<B::InnerBackend>>,
        position: StepPosition,
    ) -> Self {
        Self {
            schedule: LearningRateSchedule::new(config.schedule.clone(), config.steps),
            config,
            read_policy,
            peers,
            optimizer,
            average,
            position,
            pending: PendingSteps::default(),
            stop: None,
            expert_load: ExpertLoad::default(),
        }
    }

    /// The engine with a signal that ends a step between two of its micro-batches. With other ranks, which would wait for
    /// this one, steps are made to their end.
    pub(crate) fn stopped_by(mut self, stop: StopSignal) -> Self {
        self.stop = Some(stop).filter(|_| self.rank().world_size() == 1);
        self
    }

    /// The position after the last step that was judged.
    pub(crate) fn position(&self) -> &StepPosition {
        &self.position
    }

    /// The tokens of each expert in this rank's micro-batches of the newest step that was made.
    pub(crate) fn expert_load(&self) -> &ExpertLoad {
        &self.expert_load
    }

    /// The number of steps that were made: those that were judged and those that are pending.
    pub(crate) fn steps_made(&self) -> usize {
        self.position.step + self.pending.len()
    }

    /// The rank of this process.
    pub(crate) fn rank(&self) -> Rank {
        self.peers.rank()
    }

    /// The run's settings.
    pub(crate) fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// The micro-batches of a step that has to be computed again, because a step before it was skipped.
    pub(crate) fn batches_again(&mut self) -> Option<StepBatches<B>> {
        self.pending.again()
    }

    /// Makes one step of this rank's micro-batches. `due`: the caller needs its outcome now.
    ///
    /// # Errors
    /// A peer cannot be reached.
    pub(crate) fn step(
        &mut self,
        model: TrainingModel<B>,
        batches: StepBatches<B>,
        due: bool,
    ) -> (TrainingModel<B>, Result<StepReport, PeersError>) {
        let targets = match self.peers.sum_count(batches.targets) {
            Ok(0) => return (model, Ok(self.pass_over(batches))),
            Ok(targets) => targets,
            Err(error) => return (model, Err(error)),
        };
        let guard = self.pending.begin();
        let numbers = StepNumbers {
            step: self.steps_made(),
            targets,
            scale: self.loss_scale(),
            rank: self.rank(),
        };
        let learning_rate = self.schedule.at(numbers.step);
        let made = match self.gradients(&model, &batches, numbers) {
            Ok(Some(made)) => made,
            Ok(None) => return (model, Ok(StepReport::abandoned())),
            Err(error) => return (model, Err(error)),
        };
        let (model, figures) = self.decide_and_update(model, made, learning_rate, guard);
        self.pending.push(PendingStep {
            batches,
            targets,
            learning_rate,
            figures,
        });
        let report = match self.settles(due) {
            true => self.settle(),
            false => StepReport::deferred(),
        };
        (model, Ok(report))
    }

    /// The complete gradients of a step: the one place where ranks exchange them. None if the step was abandoned.
    fn gradients(
        &mut self,
        model: &TrainingModel<B>,
        batches: &StepBatches<B>,
        numbers: StepNumbers,
    ) -> Result<Option<StepGradients<B::InnerBackend>>, PeersError> {
        let (config, stop) = (&self.config, self.stop.as_ref());
        let made = gradients::of_micro_batches(model, &batches.batches, numbers, config, stop);
        let Some(made) = made else {
            return Ok(None);
        };
        self.expert_load = made.expert_load;
        // Outside of the backend's threads, since it waits for other processes.
        let summed = crate::peers::all_reduce(&*self.peers, model, made.loss, made.grads)?;
        Ok(Some(B::run(|| {
            gradients::finish(model, summed, config, numbers.scale)
        })))
    }

    /// Decides whether a step updates the weights, and updates them.
    fn decide_and_update(
        &mut self,
        model: TrainingModel<B>,
        made: StepGradients<B::InnerBackend>,
        learning_rate: f64,
        before: Option<Guard<B::InnerBackend>>,
    ) -> (TrainingModel<B>, StepFigures<B::InnerBackend>) {
        let StepGradients {
            loss,
            norm,
            factor,
            grads,
        } = made;
        let figures = match self.read_policy {
            ReadPolicy::EveryStep => {
                let read = B::run(|| gradients::read([(loss, norm)])).pop();
                let (loss, norm) = read.unwrap_or((f64::NAN, f64::NAN));
                let verdict = self.judge(loss, norm);
                StepFigures::Judged {
                    loss,
                    norm,
                    verdict,
                }
            }
            ReadPolicy::WhenDue => {
                let guard = Guard::new(&loss, &norm, before.as_ref());
                StepFigures::OnDevice { loss, norm, guard }
            }
        };
        let guard = match &figures {
            StepFigures::Judged { verdict, .. } if *verdict != StepDecision::Accept => {
                return (model, figures);
            }
            StepFigures::Judged { .. } => None,
            StepFigures::OnDevice { guard, .. } => Some(guard),
        };
        let model = self.update(model, grads, factor, learning_rate, guard);
        (model, figures)
    }

    /// The update of the weights, of the optimizer's state and of the average.
    fn update(
        &mut self,
        model: TrainingModel<B>,
        grads: GradientsParams,
        factor: Option<Tensor<B::InnerBackend, 1>>,
        learning_rate: f64,
        guard: Option<&Guard<B::InnerBackend>>,
    ) -> TrainingModel<B> {
        let optimizer = &mut self.optimizer;
        let model =
            B::run(|| optimizer.guarded_update::<B, _>(model, grads, factor, learning_rate, guard));
        if let Some(average) = &mut self.average {
            average.guarded_update(&model.valid().decoder, self.optimizer.updates(), guard);
        }
        model
    }

    /// The factor on the loss of the steps made now.
    fn loss_scale(&self) -> Option<f64> {
        let fixed = self.config.precision.loss_scale;
        let adaptive = || self.position.loss_scale.map(|scale| scale.factor());
        (fixed > 0.0).then_some(fixed).or_else(adaptive)
    }

    /// The weights that the model is used with: their average, where there is one.
    pub(crate) fn decoder(&self, model: &TrainingModel<B>) -> Decoder<B::InnerBackend> {
        match &self.average {
            Some(average) => average.decoder().clone(),
            None => model.valid().decoder,
        }
    }

    /// Returns true if [`StepEngine::decoder`] is an average.
    pub(crate) fn averages(&self) -> bool {
        self.average.is_some()
    }

    /// The number of updates that were made.
    pub(crate) fn updates(&self) -> u64 {
        self.optimizer.updates()
    }

    /// The optimizer's state.
    pub(crate) fn optimizer(&self) -> Snapshot<B::InnerBackend> {
        self.optimizer.snapshot()
    }
}

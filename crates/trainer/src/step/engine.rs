//! The engine of the training step: it turns micro-batches into an update and reports the outcome. Logging
//! and saving are up to the driver.
//!
//! ```text
//! micro-batches ─► loss ─► gradients ┐ × accumulation, summed (the loss is a mean over the step's targets)
//!                  sum over all ranks ─► one norm over all gradients
//!                  decide ─► one clip, one learning rate, one update ─► settle ─► outcome
//!                            (with several ranks, of each rank's shard; then all shards are gathered)
//! ```
//!
//! [`ReadPolicy`] determines who decides whether a step updates the weights. On a synchronous device, the
//! host reads the loss and the gradient norm and judges them before the update. On an asynchronous device,
//! reading would wait for all queued work. There, a [`Guard`] on the device decides, the step stays
//! [`pending`], and [`settle`] reads and judges all pending steps at once when something is due. Both
//! policies give bit-identical results.

use std::panic::resume_unwind;
use std::sync::{Arc, mpsc};
use std::{mem, thread};

use burn::tensor::{Device, Tensor};
use emberlm_kernels::{Backend, Precision, TrainingBackend};
use emberlm_model::{CompleteGradient, ExpertLoad, GradientSink};
use serde::{Deserialize, Serialize};

use crate::checkpoint::State;
use crate::checkpoint::shards::ShardWriter;
use crate::config::{SkipConfig, TrainConfig};
use crate::objective::CompletionScores;
use crate::objective::model::TrainingModel;
use crate::optimizer::Optimizer;
use crate::optimizer::decay::decay_factor;
use crate::optimizer::guard::Guard;
use crate::optimizer::loss_scale::LossScale;
use crate::optimizer::schedule::LearningRateSchedule;
use crate::optimizer::skip::{SkipHistory, StepDecision};
use crate::peers::gather::Gather;
use crate::peers::{Peers, PeersError, exchange};
use crate::report::events::LayerNorms;
use crate::step::clip::global_norm;
use crate::step::ema::Average;
use crate::step::gradients::{
    self, CompleteGradients, MicroBatchGradients, StepGradients, StepNumbers,
};
use crate::stop::StopSignal;

mod average;
mod norms;
mod outcome;
mod pending;
mod ranks;
mod settle;

pub use outcome::{SkippedStep, StepMetrics, StepOutcome, StepReport};
pub(crate) use pending::StepBatches;
use pending::{PendingStep, PendingSteps, StepFigures};

/// When the host reads a step's loss and gradient norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ReadPolicy {
    /// Before the update.
    EveryStep,
    /// When a later action needs it; until then a guard on the device decides. The outcome is the same.
    WhenDue,
}

impl ReadPolicy {
    /// `WhenDue` on asynchronous devices, unless the host must judge each step by a window of previous ones, or samples
    /// from its weights.
    fn of<B: Backend>(config: &TrainConfig) -> Self {
        // Completions are sampled from weights whose step has been judged.
        let samples = config.objective.samples();
        let by_guard = matches!(config.skip, SkipConfig::NonFinite(_)) && !samples;
        match B::is_asynchronous() && by_guard {
            true => Self::WhenDue,
            false => Self::EveryStep,
        }
    }
}

/// Engine settings that depend on the backend and the device. All ranks have the same ones
/// ([`RankDevices::options`](crate::step::devices::RankDevices::options)).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EngineOptions {
    /// When the host reads a step's loss and gradient norm.
    pub(crate) read_policy: ReadPolicy,
    /// The initial adaptive loss scale. `None` for a fixed scale or none.
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

/// The part of a run's state that its steps determine.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StepPosition {
    /// The number of judged steps.
    pub(crate) step: usize,
    /// The losses and norms of the latest steps.
    pub(crate) watch: SkipHistory,
    /// The loss scale, if it is adaptive.
    pub(crate) loss_scale: Option<LossScale>,
}

impl StepPosition {
    /// The position stored in a checkpoint.
    pub(crate) fn of(state: &State) -> Self {
        Self {
            step: state.step,
            watch: state.watch.clone(),
            loss_scale: state.loss_scale,
        }
    }
}

/// The training engine: the optimizer, the average of the weights, and the steps that are not judged yet.
pub(crate) struct StepEngine<B: TrainingBackend> {
    config: TrainConfig,
    schedule: LearningRateSchedule,
    read_policy: ReadPolicy,
    peers: Arc<dyn Peers<B::InnerBackend>>,
    optimizer: Optimizer<B::InnerBackend>,
    /// Writes the optimizer's state of several ranks into checkpoints.
    shard_writer: Option<ShardWriter>,
    average: Option<Average<B::InnerBackend>>,
    /// The gather of the newest update, with several ranks, and the guard of the update.
    gather: Option<(Gather, Option<Guard<B::InnerBackend>>)>,
    position: StepPosition,
    pending: PendingSteps<B>,
    /// A request to stop, checked between two micro-batches.
    stop: Option<StopSignal>,
    /// The tokens of each expert in the newest step.
    expert_load: ExpertLoad,
    /// The scores of the completions of the newest step.
    completions: CompletionScores,
    /// The norms by layer of the newest step, on rank 0, if they were due.
    norms: Option<Vec<LayerNorms>>,
}

impl<B: TrainingBackend> StepEngine<B> {
    /// Creates an engine at a position of a run.
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
            shard_writer: None,
            average,
            gather: None,
            position,
            pending: PendingSteps::default(),
            stop: None,
            expert_load: ExpertLoad::default(),
            completions: CompletionScores::default(),
            norms: None,
        }
    }

    /// Lets `stop` abandon a step between two of its micro-batches. Has no effect with several ranks: the
    /// others would wait for this one.
    pub(crate) fn stopped_by(mut self, stop: StopSignal) -> Self {
        self.stop = Some(stop).filter(|_| self.rank().world_size() == 1);
        self
    }

    /// The position after the last judged step.
    pub(crate) fn position(&self) -> &StepPosition {
        &self.position
    }

    /// Tokens of each expert in the newest step, if it was due; otherwise in this rank's micro-batches.
    pub(crate) fn expert_load(&self) -> &ExpertLoad {
        &self.expert_load
    }

    /// The scores of the completions of the newest step.
    pub(crate) fn completions(&self) -> &CompletionScores {
        &self.completions
    }

    /// The number of steps made, both judged and pending.
    pub(crate) fn steps_made(&self) -> usize {
        self.position.step + self.pending.len()
    }

    /// The training configuration.
    pub(crate) fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// The micro-batches of a step that must be recomputed because an earlier step was skipped.
    pub(crate) fn batches_to_recompute(&mut self) -> Option<StepBatches<B>> {
        self.pending.next_recompute()
    }

    /// Makes one step from this rank's micro-batches. `due` is true if the caller needs the outcome now.
    ///
    /// # Errors
    /// A peer cannot be reached.
    pub(crate) fn step(
        &mut self,
        model: TrainingModel<B>,
        batches: StepBatches<B>,
        due: bool,
    ) -> (TrainingModel<B>, Result<StepReport, PeersError>) {
        let [targets, positions] = match self.sum_step_counts(&batches) {
            Ok([0, _]) => {
                let finished = self.finish_gather(&model);
                return (model, finished.map(|()| self.pass_over(batches)));
            }
            Ok(counts) => counts,
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
        self.optimizer
            .set_decay_factor(decay_factor(&self.config, numbers.step));
        let mut made = match self.gradients(&model, &batches, numbers) {
            Ok(Some(made)) => made,
            Ok(None) => return (model, Ok(StepReport::abandoned())),
            Err(error) => return (model, Err(error)),
        };
        let norms = due.then(|| self.begin_norms(&model, &mut made, &batches, numbers));
        let (model, figures) = self.decide_and_update(model, made, learning_rate, guard);
        if due && let Err(error) = self.finish_gather(&model).and(self.sum_expert_load()) {
            return (model, Err(error));
        }
        self.norms = norms.flatten().map(|norms| norms.finish(&model));
        self.pending.push(PendingStep {
            batches,
            targets,
            positions,
            learning_rate,
            figures,
        });
        let report = match self.settles(due) {
            true => self.settle(),
            false => StepReport::deferred(),
        };
        (model, Ok(report))
    }

    /// The complete gradients of a step; with several ranks, those of this rank's shard. Only here do ranks exchange
    /// gradients. `None` if the step was abandoned.
    fn gradients(
        &mut self,
        model: &TrainingModel<B>,
        batches: &StepBatches<B>,
        numbers: StepNumbers,
    ) -> Result<Option<StepGradients<B::InnerBackend>>, PeersError> {
        let device = model.device();
        let clip_norm = self.config.clip_norm;
        let complete = |loss, norm, summed, grads| {
            let (norm, factor) = gradients::clipping(norm, clip_norm, numbers.scale, &device);
            StepGradients {
                loss,
                norm,
                summed,
                factor,
                grads,
            }
        };
        let Some(shards) = self.optimizer.shards().cloned() else {
            let Some(made) = self.micro_batches(model, batches, numbers, None) else {
                return Ok(None);
            };
            self.completions = self.sum_completions(&made.completions)?;
            return Ok(Some(B::run(|| {
                let norm = global_norm::<B, _>(model, &made.grads);
                complete(made.loss, norm, None, CompleteGradients::All(made.grads))
            })));
        };
        let peers = Arc::clone(&self.peers);
        let indices = exchange::indices(&shards, model);
        // The gradients of the last blocks are exchanged by another thread while those of the first are computed.
        let (made, shard) = thread::scope(|scope| {
            let (sender, arriving) = mpsc::channel();
            let exchange =
                || exchange::reduce_scatter::<B::InnerBackend>(&*peers, &shards, arriving, &device);
            let exchange = thread::Builder::new().spawn_scoped(scope, exchange);
            let sink = GradientSink::new(move |complete: Vec<CompleteGradient<_>>| {
                let indexed = complete
                    .into_iter()
                    .map(|it| (indices.get(&it.id).copied(), it.gradient));
                // An exchange that has failed receives no more, and its error is returned below.
                let _ = sender.send(indexed.collect());
            });
            let made = self.micro_batches(model, batches, numbers, Some(&sink));
            sink.close();
            let shard = exchange.map(|thread| thread.join());
            (made, shard)
        });
        let shard = match shard {
            Ok(shard) => shard.unwrap_or_else(|panic| resume_unwind(panic)),
            Err(source) => Err(exchange::no_thread(&shards, "gradients", &source)),
        };
        // The pass has waited for the parameters that it used.
        self.finish_gather(model)?;
        let shard = shard?;
        let Some(made) = made else {
            return Ok(None);
        };
        self.completions = self.sum_completions(&made.completions)?;
        let own = B::run(|| exchange::own_figures(made.loss, &shard));
        let all = self.peers.gather_numbers(&own)?;
        let sums = exchange::sum_figures(&shards, &shard.are_present, &all)?;
        Ok(Some(B::run(|| {
            let number = |x| Tensor::from_floats([x], &device);
            complete(
                number(sums.loss),
                sums.norm.map(number),
                Some(gradients::judged(sums.loss, sums.norm, numbers.scale)),
                CompleteGradients::Shard {
                    gradients: shard,
                    squares: sums.squares,
                },
            )
        })))
    }

    /// The loss and the gradients of this rank's micro-batches.
    fn micro_batches(
        &mut self,
        model: &TrainingModel<B>,
        batches: &StepBatches<B>,
        numbers: StepNumbers,
        sink: Option<&GradientSink<B>>,
    ) -> Option<MicroBatchGradients<B>> {
        let (config, stop) = (&self.config, self.stop.as_ref());
        let batches = &batches.batches;
        let mut made = gradients::of_micro_batches(model, batches, numbers, config, stop, sink)?;
        self.expert_load = mem::take(&mut made.expert_load);
        Some(made)
    }

    /// Decides whether the step counts, and updates the weights if it does.
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
            summed,
            factor,
            grads,
        } = made;
        let figures = match self.read_policy {
            ReadPolicy::EveryStep => {
                // All ranks have the same sums, and so the same verdict on any device.
                let read = summed.or_else(|| B::run(|| gradients::read([(loss, norm)])).pop());
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

    /// Updates the weights, the optimizer's state and the average; with several ranks, the average later, when all
    /// parameters have arrived.
    fn update(
        &mut self,
        model: TrainingModel<B>,
        grads: CompleteGradients<B::InnerBackend>,
        factor: Option<Tensor<B::InnerBackend, 1>>,
        learning_rate: f64,
        guard: Option<&Guard<B::InnerBackend>>,
    ) -> TrainingModel<B> {
        let optimizer = &mut self.optimizer;
        let model = match (grads, optimizer.shards().cloned()) {
            (CompleteGradients::Shard { gradients, .. }, Some(shards)) => {
                let are_present = gradients.are_present.clone();
                let own = B::run(|| {
                    optimizer.update_shard::<B, _>(
                        &shards,
                        &model,
                        gradients,
                        factor,
                        learning_rate,
                        guard,
                    )
                });
                let (peers, device) = (Arc::clone(&self.peers), model.device());
                let (gather, model) =
                    Gather::begin::<B, _>(peers, shards, are_present, own, model, device);
                self.gather = Some((gather, guard.cloned()));
                return model;
            }
            (CompleteGradients::All(grads), _) => B::run(|| {
                optimizer.guarded_update::<B, _>(model, grads, factor, learning_rate, guard)
            }),
            // Only a sharded optimizer has gradients of a shard.
            (CompleteGradients::Shard { .. }, None) => model,
        };
        self.update_average(&model, guard);
        model
    }

    /// The current loss scale.
    fn loss_scale(&self) -> Option<f64> {
        let fixed = self.config.precision.loss_scale;
        let adaptive = || self.position.loss_scale.map(|scale| scale.factor());
        (fixed > 0.0).then_some(fixed).or_else(adaptive)
    }
}

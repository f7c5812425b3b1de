//! The way into Burn's learner: a learning strategy that trains by steps.
//!
//! Burn's own strategy validates, saves and resumes by epochs, sums accumulated gradients without a mean, and keeps a
//! second copy of the model while the optimizer runs; this one takes the model out of the learner, drops the rest, and
//! hands it to the loop in `training`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::Device;
use burn::train::{
    Learner, LearningComponentsMarker, SupervisedLearningStrategy,
    SupervisedTrainingEventProcessor, TrainLoader, TrainingComponents, ValidLoader,
};
use emberlm_data::Tokenizer;
use emberlm_kernels::{Backend, Precision, TrainingBackend};
use emberlm_model::DecoderConfig;

use crate::checkpoint::{About, State};
use crate::config::TrainConfig;
use crate::data::Validation;
use crate::ema::Average;
use crate::error::TrainError;
use crate::events::Event;
use crate::file_check::FileCheck;
use crate::loader::Failure;
use crate::loss_scale::LossScale;
use crate::optimizer::Optimizer;
use crate::recorder::Recorder;
use crate::trainee::Trainee;
use crate::training::Training;

/// What Burn's learner is made of here. Its scheduler and optimizer are there for the type's sake: this strategy
/// carries its own.
pub type Components<B> = LearningComponentsMarker<
    B,
    burn::optim::lr_scheduler::constant::ConstantLr,
    Trainee<B>,
    burn::optim::adaptor::OptimizerAdaptor<burn::optim::AdamW, Trainee<B>, B>,
>;

/// What the loop has found out when it ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progressed {
    /// Where the run stands.
    pub state: State,
    /// The newest sample.
    pub sample: Option<String>,
    /// The newest checkpoint.
    pub checkpoint: Option<PathBuf>,
    /// Whether it was stopped before its last step.
    pub interrupted: bool,
}

/// Where the loop begins, besides the model.
pub(crate) struct Position<B: Backend> {
    pub(crate) optimizer: Optimizer<B>,
    pub(crate) average: Option<Average<B>>,
    pub(crate) state: State,
    pub(crate) recorder: Recorder,
    /// The check of the files whose blocks are not verified as they are read.
    pub(crate) file_check: FileCheck,
}

/// When the host looks at what a step has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Before its update.
    EveryStep,
    /// When there is something to be done after it; until then a guard on the device decides. The outcome is the same.
    WhenDue,
}

/// What a run's backend and device make of its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct How {
    /// When the host looks at steps.
    pub(crate) reads: Reads,
    /// Where the loss's scale begins that finds itself; none for one that is fixed, and for none.
    pub(crate) scale: Option<LossScale>,
}

impl How {
    pub(crate) fn of<B: Backend>(config: &TrainConfig, device: &Device<B>) -> Self {
        let half = config.precision == Precision::F16 && B::multiplies_in(Precision::F16, device);
        Self {
            reads: Reads::of::<B>(config),
            scale: (half && config.loss_scale == 0.0).then(LossScale::default),
        }
    }
}

impl Reads {
    /// Where reading waits for everything, as late as the settings let it be: the window of `skip_deviations` is on the
    /// host.
    pub(crate) fn of<B: Backend>(config: &TrainConfig) -> Self {
        match B::works_behind() && config.skip_deviations == 0.0 {
            true => Self::WhenDue,
            false => Self::EveryStep,
        }
    }
}

/// The loop's surroundings.
pub struct StepStrategy<B: TrainingBackend> {
    /// How to train.
    pub(crate) config: TrainConfig,
    /// What is trained.
    pub(crate) model: DecoderConfig,
    /// Tokens of a sequence.
    pub(crate) seq_len: usize,
    /// When it looks at its steps.
    pub(crate) reads: Reads,
    /// Where the run's files go.
    pub(crate) run: PathBuf,
    /// What the model is, for its checkpoints.
    pub(crate) about: Arc<About>,
    /// What its samples are decoded with.
    pub(crate) tokenizer: Tokenizer,
    /// What it is validated on.
    pub(crate) validation: Validation,
    /// The lowest validation loss that any model can have, where it is known.
    pub(crate) floor: Option<f64>,
    /// What to show of a resumed run before it goes on.
    pub(crate) past: Vec<Event>,
    /// Where to train.
    pub(crate) device: Device<B>,
    /// Where a loader leaves its error.
    pub(crate) failure: Failure,
    /// Where the loop begins: taken when it does.
    pub(crate) position: Mutex<Option<Position<B::InnerBackend>>>,
    /// What came of it: the loop has no other way out of Burn's learner.
    pub(crate) result: Arc<Mutex<Option<Result<Progressed, TrainError>>>>,
}

pub(crate) type Processor<B> = SupervisedTrainingEventProcessor<Components<B>>;

impl<B: TrainingBackend> SupervisedLearningStrategy<Components<B>> for StepStrategy<B> {
    fn fit(
        &self,
        components: TrainingComponents<Components<B>>,
        learner: Learner<Components<B>>,
        train: TrainLoader<Components<B>>,
        _validation: ValidLoader<Components<B>>,
        _starting_epoch: usize,
    ) -> (Trainee<B>, Processor<B>) {
        let model = learner.model();
        // The learner's own copy would keep the update from happening in place.
        drop(learner);
        let (processor, interrupter) = (components.event_processor, components.interrupter);
        let position = lock(&self.position).take();
        let Some(position) = position else {
            // It has been trained already.
            return (model, processor);
        };
        let mut training = Training::new(self, position, processor, interrupter);
        let (model, ended) = training.run(model, &mut train.iter());
        let result = ended.map(|()| training.progressed);
        *lock(&self.result) = Some(result);
        (model, training.processor)
    }
}

/// What a mutex holds, also after another thread has panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

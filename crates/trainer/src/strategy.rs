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
use emberlm_data::{TokenSplit, Tokenizer};
use emberlm_kernels::TrainingBackend;

use crate::checkpoint::{Best, Description};
use crate::config::TrainConfig;
use crate::error::TrainError;
use crate::loader::Failure;
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
    /// Updates made.
    pub step: usize,
    /// The newest validation loss.
    pub validation_loss: Option<f64>,
    /// The lowest one.
    pub best: Option<Best>,
    /// The newest sample.
    pub sample: Option<String>,
    /// The last checkpoint written.
    pub checkpoint: Option<PathBuf>,
    /// Whether it was stopped before its last step.
    pub interrupted: bool,
}

/// The loop's surroundings.
pub struct StepStrategy<B: TrainingBackend> {
    /// How to train.
    pub config: TrainConfig,
    /// Tokens of a sequence.
    pub seq_len: usize,
    /// Where the run's files go.
    pub run: PathBuf,
    /// What the model is, for its checkpoints.
    pub description: Description,
    /// What its samples are decoded with.
    pub tokenizer: Tokenizer,
    /// What it is validated on; empty for none.
    pub validation: TokenSplit,
    /// Where to train.
    pub device: Device<B>,
    /// Where a loader leaves its error.
    pub(crate) failure: Failure,
    /// What came of it: the loop has no other way out of Burn's learner.
    pub result: Arc<Mutex<Option<Result<Progressed, TrainError>>>>,
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
        let mut training = Training::new(self, processor, interrupter);
        let (model, ended) = training.run(model, &mut train.iter());
        let result = ended.map(|()| training.progressed);
        let mut slot = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(result);
        (model, training.processor)
    }
}

//! The learning strategy that Burn's learner trains with: by steps instead of epochs.
//!
//! Burn's own strategy validates, saves and resumes by epochs, and sums accumulated gradients without a mean.

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::train::{
    Learner, LearningComponentsMarker, SupervisedLearningStrategy,
    SupervisedTrainingEventProcessor, TrainLoader, TrainingComponents, ValidLoader,
};
use emberlm_kernels::TrainingBackend;

use crate::driver::{Driver, RunResult};
use crate::error::TrainError;
use crate::optimizer::Optimizer;
use crate::schedule::LearningRateSchedule;
use crate::training_model::TrainingModel;

/// The learner of a run: its model, its optimizer and its learning rates.
pub(crate) type Components<B> = LearningComponentsMarker<
    B,
    LearningRateSchedule,
    TrainingModel<B>,
    Optimizer<<B as burn::tensor::backend::AutodiffBackend>::InnerBackend>,
>;

pub(crate) type Processor<B> = SupervisedTrainingEventProcessor<Components<B>>;

/// Trains the learner's model by a [`Driver`].
pub(crate) struct StepStrategy<B: TrainingBackend> {
    /// `fit` takes `&self`, but training changes the driver, and its result has no other way out of Burn's learner.
    driver: Mutex<Driver<B>>,
}

impl<B: TrainingBackend> StepStrategy<B> {
    pub(crate) fn new(driver: Driver<B>) -> Self {
        Self {
            driver: Mutex::new(driver),
        }
    }

    /// The result of the training, once.
    ///
    /// # Errors
    /// The reason that it ended.
    pub(crate) fn take_result(&self) -> Result<RunResult, TrainError> {
        let result = self.lock().take_result();
        result.unwrap_or(Err(TrainError::NoResult))
    }

    /// The driver, also after another thread has panicked.
    fn lock(&self) -> MutexGuard<'_, Driver<B>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: TrainingBackend> SupervisedLearningStrategy<Components<B>> for StepStrategy<B> {
    fn fit(
        &self,
        components: TrainingComponents<Components<B>>,
        learner: Learner<Components<B>>,
        train: TrainLoader<Components<B>>,
        _validation: ValidLoader<Components<B>>,
        _starting_epoch: usize,
    ) -> (TrainingModel<B>, Processor<B>) {
        let model = learner.model();
        // The driver's engine has the same optimizer and learning rates. The learner keeps a second handle on every
        // parameter while its optimizer works, so that none could be updated in place.
        drop(learner);
        let mut processor = components.event_processor;
        let model = self.lock().run(model, &mut train.iter(), &mut processor);
        (model, processor)
    }
}

//! The learning strategy for Burn's learner: it trains by steps instead of epochs.
//!
//! Burn's own strategy validates, saves and resumes by epochs, and sums accumulated gradients instead of
//! averaging them.

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

/// The component types of the learner: model, optimizer and learning rate schedule.
pub(crate) type Components<B> = LearningComponentsMarker<
    B,
    LearningRateSchedule,
    TrainingModel<B>,
    Optimizer<<B as burn::tensor::backend::AutodiffBackend>::InnerBackend>,
>;

pub(crate) type Processor<B> = SupervisedTrainingEventProcessor<Components<B>>;

/// Trains the learner's model with a [`Driver`].
pub(crate) struct StepStrategy<B: TrainingBackend> {
    /// `fit` takes `&self`, but training mutates the driver, which also carries the result out of Burn's
    /// learner.
    driver: Mutex<Driver<B>>,
}

impl<B: TrainingBackend> StepStrategy<B> {
    pub(crate) fn new(driver: Driver<B>) -> Self {
        Self {
            driver: Mutex::new(driver),
        }
    }

    /// Takes the result of the training.
    ///
    /// # Errors
    /// The run failed or ended without a result.
    pub(crate) fn take_result(&self) -> Result<RunResult, TrainError> {
        let result = self.lock().take_result();
        result.unwrap_or(Err(TrainError::NoResult))
    }

    /// Locks the driver, even if another thread panicked while it held the lock.
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
        // The driver's engine has its own optimizer and schedule. The learner would keep a second handle on
        // every parameter and so prevent in-place updates.
        drop(learner);
        let mut processor = components.event_processor;
        let model = self.lock().run(model, &mut train.iter(), &mut processor);
        (model, processor)
    }
}

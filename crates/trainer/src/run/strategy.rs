//! The learning strategy for Burn's learner: it trains by steps instead of epochs.
//!
//! Burn's own strategy validates, saves and resumes by epochs, and sums accumulated gradients instead of
//! averaging them.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use burn::train::renderer::CliMetricsRenderer;
use burn::train::{
    Learner, LearningComponentsMarker, SupervisedLearningStrategy, SupervisedTraining,
    SupervisedTrainingEventProcessor, TrainLoader as BurnLoader, TrainingComponents,
    TrainingStrategy, ValidLoader,
};
use emberlm_kernels::TrainingBackend;

use crate::error::TrainError;
use crate::objective::loader::TrainLoader;
use crate::objective::model::TrainingModel;
use crate::optimizer::Optimizer;
use crate::optimizer::schedule::LearningRateSchedule;
use crate::run::driver::{Driver, RunResult};
use crate::stop::StopSignal;

/// The component types of the learner: model, optimizer and learning rate schedule.
pub(crate) type Components<B> = LearningComponentsMarker<
    B,
    LearningRateSchedule,
    TrainingModel<B>,
    Optimizer<<B as burn::tensor::backend::AutodiffBackend>::InnerBackend>,
>;

/// Trains the learner's model with a [`Driver`]. `fit` has no exclusive reference to the strategy and returns only the
/// model, so it takes the driver from its cell and leaves the result in the other one.
struct StepStrategy<B: TrainingBackend> {
    driver: Cell<Option<Driver<B>>>,
    result: Cell<Option<Result<RunResult, TrainError>>>,
}

/// Launches Burn's learner in the directory of the run, and waits for its end. The driver evaluates and displays metrics
/// by itself: the learner has no metrics, its renderer prints nothing, and its second loader is not read.
pub(crate) fn launch<B: TrainingBackend>(
    driver: Driver<B>,
    learner: Learner<Components<B>>,
    loader: TrainLoader<Device<B>>,
    run: &Path,
    stop: &StopSignal,
) -> Result<RunResult, TrainError> {
    let strategy = Arc::new(StepStrategy {
        driver: Cell::new(Some(driver)),
        result: Cell::new(None),
    });
    let loader = Arc::new(loader);
    SupervisedTraining::new(run, loader.clone(), loader)
        .with_application_logger(None)
        .with_interrupter(stop.interrupter())
        .renderer(CliMetricsRenderer::new())
        .with_training_strategy(TrainingStrategy::Custom(strategy.clone()))
        .launch(learner);
    strategy.result.take().unwrap_or(Err(TrainError::NoResult))
}

impl<B: TrainingBackend> SupervisedLearningStrategy<Components<B>> for StepStrategy<B> {
    fn fit(
        &self,
        components: TrainingComponents<Components<B>>,
        learner: Learner<Components<B>>,
        train: BurnLoader<Components<B>>,
        _validation: ValidLoader<Components<B>>,
        _starting_epoch: usize,
    ) -> (
        TrainingModel<B>,
        SupervisedTrainingEventProcessor<Components<B>>,
    ) {
        let mut model = learner.model();
        // The driver's engine has its own optimizer and schedule. The learner would keep a second handle on
        // every parameter and so prevent in-place updates.
        drop(learner);
        if let Some(driver) = self.driver.take() {
            let result;
            (model, result) = driver.run(model, &mut train.iter());
            self.result.set(Some(result));
        }
        (model, components.event_processor)
    }
}

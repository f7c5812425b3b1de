//! The average of the weights.

use burn::module::AutodiffModule;
use emberlm_kernels::TrainingBackend;

use super::StepEngine;
use crate::objective::model::TrainingModel;
use crate::optimizer::guard::Guard;

impl<B: TrainingBackend> StepEngine<B> {
    /// Updates the average, if there is one, with the weights after the last update.
    pub(super) fn update_average(
        &mut self,
        model: &TrainingModel<B>,
        guard: Option<&Guard<B::InnerBackend>>,
    ) {
        if let Some(average) = &mut self.average {
            average.guarded_update(&model.valid(), self.optimizer.updates(), guard);
        }
    }

    /// The weights to use the model with: their average, if there is one.
    pub(crate) fn evaluated(&self, model: &TrainingModel<B>) -> TrainingModel<B::InnerBackend> {
        match &self.average {
            Some(average) => average.model().clone(),
            None => model.valid(),
        }
    }

    /// Returns true if [`StepEngine::evaluated`] is an average.
    pub(crate) fn averages(&self) -> bool {
        self.average.is_some()
    }
}

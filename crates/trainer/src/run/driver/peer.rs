//! The part of every rank in evaluations and checkpoints.

use std::ops::ControlFlow;

use emberlm_kernels::TrainingBackend;

use super::validate::Evaluator;
use super::{Driver, position};
use crate::error::TrainError;
use crate::objective::model::TrainingModel;

impl<B: TrainingBackend> Driver<B> {
    /// Writes the checkpoint before the first step, if that is set.
    pub(super) fn save_first(&mut self, model: &TrainingModel<B>) -> Result<(), TrainError> {
        if !self.saves_first {
            return Ok(());
        }
        match &mut self.rank_zero {
            Some(rank_zero) => {
                let state = position(&self.state, &self.engine);
                rank_zero.save_last(&self.engine, model, state)
            }
            None => self.save_as_peer(),
        }
    }

    /// Computes this rank's share of an evaluation. Its outcome is the same on all ranks, so that they end early together.
    pub(super) fn evaluate_as_peer(&mut self, model: &TrainingModel<B>) -> Result<(), TrainError> {
        let evaluated = self.engine.evaluated(model);
        let evaluator = Evaluator::new(
            &self.validation,
            self.tasks.as_deref(),
            &self.engine,
            &self.stop,
        );
        // A stop ends all ranks before the next step.
        if let ControlFlow::Continue(Some(found)) = evaluator.evaluate(&evaluated)? {
            let step = self.step();
            let interval = self.engine.config().evaluation.interval;
            self.state.record_validation(found.loss, step, interval);
        }
        if B::is_asynchronous() {
            // Evaluation and training use device memory differently.
            B::memory_cleanup(&model.device());
        }
        Ok(())
    }

    /// Writes this rank's part of the optimizer's state into the checkpoints that rank 0 begins.
    pub(super) fn save_as_peer(&self) -> Result<(), TrainError> {
        while self.engine.agree_to_save(false)? {
            // Only rank 0 has the state of all.
            let _ = self.engine.optimizer_state()?;
        }
        Ok(())
    }
}

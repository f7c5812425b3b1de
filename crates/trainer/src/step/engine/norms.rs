//! Norms by layer of a step of the engine.

use std::mem;

use emberlm_kernels::TrainingBackend;

use super::{StepBatches, StepEngine};
use crate::objective::model::TrainingModel;
use crate::peers::shards::present;
use crate::report::events::LayerNorms;
use crate::step::gradients::{CompleteGradients, StepGradients, StepNumbers};
use crate::step::norms::{NormsBeforeUpdate, gradient_squares};

impl<B: TrainingBackend> StepEngine<B> {
    /// The norms by layer of the newest step, on rank 0, if they were due.
    pub(crate) fn norms(&self) -> Option<&[LayerNorms]> {
        self.norms.as_deref()
    }

    /// The part of the norms that is computed before the update. `None` if they are not due, and on ranks other than 0. The
    /// gradients are those of all ranks; all ranks have the whole weights.
    pub(super) fn begin_norms(
        &self,
        model: &TrainingModel<B>,
        made: &mut StepGradients<B::InnerBackend>,
        batches: &StepBatches<B>,
        numbers: StepNumbers,
    ) -> Option<NormsBeforeUpdate<B>> {
        if !self.rank().is_zero() || !self.config.norms_are_due(numbers.step + 1) {
            return None;
        }
        let squares = match (&mut made.grads, self.optimizer.shards()) {
            (CompleteGradients::All(grads), _) => {
                // Threads cannot share gradients, so they are moved.
                let moved = mem::take(grads);
                let (squares, moved) = B::run(|| (gradient_squares::<B>(model, &moved), moved));
                *grads = moved;
                squares
            }
            (CompleteGradients::Shard { gradients, squares }, Some(shards)) => {
                let present = present(shards.parameters(), &gradients.are_present);
                let of = present.zip(squares.iter());
                of.map(|((parameter, _), &of)| (parameter.path.clone(), of.into()))
                    .collect()
            }
            (CompleteGradients::Shard { .. }, None) => Vec::new(),
        };
        let batch = batches.batches.first();
        Some(B::run(|| {
            NormsBeforeUpdate::new(model, squares, numbers.scale.unwrap_or(1.0), batch)
        }))
    }
}

//! The rollouts of a run that learns from rewards, with its reference model.

use std::sync::Arc;

use burn::module::AutodiffModule;
use emberlm_kernels::TrainingBackend;

use super::RunInputs;
use crate::config::TrainConfig;
use crate::error::TrainError;
use crate::initial_state::InitialState;
use crate::objective::{ReferenceModel, Rollouts};
use crate::peers::Rank;
use crate::stop::StopSignal;

/// The rollouts of a run; `None` for other objectives.
///
/// # Errors
/// There are several processes, or the weights that the run started with are not available.
pub(super) fn of_run<B: TrainingBackend>(
    inputs: &RunInputs,
    initial: &InitialState<B>,
    train: &TrainConfig,
    rank: Rank,
    stop: &StopSignal,
) -> Result<Option<Rollouts<B::InnerBackend>>, TrainError> {
    let Some((prompts, task)) = inputs.rewards() else {
        return Ok(None);
    };
    let refuse = |field, value: String, rule: &str| TrainError::Setting {
        table: "train.objective",
        field,
        value,
        rule: rule.to_owned(),
    };
    if rank.world_size() > 1 {
        let rule = "must be trained by a single process";
        return Err(refuse("kind", train.objective.kind().to_owned(), rule));
    }
    let reference = match (task.config.beta > 0.0, &train.adapter) {
        (false, _) => None,
        (true, Some(_)) => Some(ReferenceModel::WithoutAdapter),
        (true, None) if initial.checkpoint.is_none() => {
            let model = initial.model.valid();
            let model = model.with_precision(train.precision.products);
            Some(ReferenceModel::Weights(Box::new(model)))
        }
        (true, None) => {
            let rule = "must be 0 to resume a run that trains all weights";
            return Err(refuse("beta", task.config.beta.to_string(), rule));
        }
    };
    Ok(Some(Rollouts::new(
        Arc::clone(task),
        prompts.clone(),
        reference,
        train,
        stop.clone(),
        initial.state.rollout.clone(),
    )))
}

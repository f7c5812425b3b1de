//! The rollouts of a run that learns from rewards, with its reference model.

use std::sync::Arc;

use burn::module::AutodiffModule;
use burn::tensor::Device;
use emberlm_checkpoint::Model;
use emberlm_kernels::TrainingBackend;

use super::{RunInputs, RunWeights};
use crate::config::TrainConfig;
use crate::error::TrainError;
use crate::objective::model::TrainingModel;
use crate::objective::{ReferenceModel, References, Rollouts};
use crate::run::initial_state::InitialState;
use crate::run::model::initial;
use crate::stop::StopSignal;

/// The rollouts of a run; `None` for other objectives.
///
/// # Errors
/// The weights that the run started with are not available.
pub(super) fn of_run<B: TrainingBackend>(
    inputs: &RunInputs,
    initial: &InitialState<B>,
    train: &TrainConfig,
    references: Option<&References>,
    stop: &StopSignal,
) -> Result<Option<Rollouts<B::InnerBackend>>, TrainError> {
    let Some((prompts, task)) = inputs.rewards() else {
        return Ok(None);
    };
    let reference = match (task.config.beta > 0.0, &train.adapter) {
        (false, _) => None,
        (true, Some(_)) => Some(ReferenceModel::WithoutAdapter),
        (true, None) => {
            let model = match initial.checkpoint.is_none() {
                true => initial.model.valid(),
                false => first_weights::<B>(inputs, train, &initial.model.device())?,
            };
            let model = model.with_precision(train.precision.products);
            if !references.is_some_and(|references| references.is_of_model(&model)) {
                return Err(TrainError::References {
                    path: train.from.clone(),
                    reason: "the weights are not those that the run has started with".to_owned(),
                });
            }
            Some(ReferenceModel::Weights(Box::new(model)))
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

/// The weights that a resumed run has started with: those of `train.from`, or initial ones.
fn first_weights<B: TrainingBackend>(
    inputs: &RunInputs,
    train: &TrainConfig,
    device: &Device<B>,
) -> Result<TrainingModel<B::InnerBackend>, TrainError> {
    let from = &train.from;
    if from.as_os_str().is_empty() {
        let model = initial::<B>(&inputs.model, train, device);
        return Ok(TrainingModel::from(model).valid());
    }
    let opened = Model::open(from).and_then(|model| model.decoder::<B>(device));
    let decoder = opened.map_err(|error| TrainError::References {
        path: from.clone(),
        reason: error.to_string(),
    })?;
    let weights = RunWeights::from(decoder).load(&inputs.model, train.seed, None, device)?;
    Ok(weights.valid())
}

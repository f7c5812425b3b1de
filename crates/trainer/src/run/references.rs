//! The log-probabilities of a run's reference model: read from the run's directory, or computed from its initial weights.

use burn::module::AutodiffModule;
use emberlm_kernels::TrainingBackend;

use super::{Fork, RunInputs, RunStart};
use crate::config::TrainConfig;
use crate::error::TrainError;
use crate::objective::References;
use crate::run::initial_state::InitialState;
use crate::stop::StopSignal;

/// The reference log-probabilities of a run whose loss has a reference model; `None` for other runs.
///
/// # Errors
/// The file of a resumed run is missing, damaged or of other data; or the run is stopped before they are computed.
pub(super) fn of_run<B: TrainingBackend>(
    inputs: &RunInputs,
    start: &RunStart,
    initial: &InitialState<B>,
    train: &TrainConfig,
    stop: &StopSignal,
    say: &(dyn Fn(&str) + Send + Sync),
) -> Result<Option<References>, TrainError> {
    let pairs = inputs.preferences();
    let has_reference = match (pairs, inputs.rewards()) {
        (Some((pairs, _)), _) => pairs.loss().has_reference(),
        // Without its adapter, the model is the reference model.
        (None, Some((_, task))) => task.config.beta > 0.0 && train.adapter.is_none(),
        (None, None) => false,
    };
    let Some(data) = inputs.identities.first().filter(|_| has_reference) else {
        return Ok(None);
    };
    let run = start.fork().map_or(start.path(), Fork::parent);
    let model = initial
        .model
        .valid()
        .with_precision(train.precision.products);
    let stored = References::open(run)?.filter(|stored| stored.is_of_data(data));
    match (start.checkpoint(), stored) {
        // The initial weights are gone.
        (Some(_), Some(stored)) => return Ok(Some(stored)),
        (Some(_), None) => {
            return Err(TrainError::References {
                path: run.to_owned(),
                reason: match start.fork() {
                    Some(_) => "the run has no reference log-probabilities of this data: a fork with this objective must keep the data",
                    None => "the run has no reference log-probabilities of its data",
                }
                .to_owned(),
            });
        }
        (None, Some(stored)) if stored.is_of_model(&model) => return Ok(Some(stored)),
        (None, _) => {}
    }
    let Some((pairs, held_out)) = pairs else {
        return Ok(Some(References::of_model(&model, data.clone())));
    };
    let count = pairs.len() + held_out.len();
    say(&format!(
        "computing the reference log-probabilities of {count} pairs"
    ));
    let data = data.clone();
    let found = References::compute(&model, data, pairs, held_out, train.micro_batch, stop)?;
    match found {
        Some(found) => Ok(Some(found)),
        None => Err(TrainError::Discarded {
            run: run.to_owned(),
            step: 0,
            last: None,
        }),
    }
}

//! The weights of the datasets of a mix, which stages change at once or in a transition.

use emberlm_data::{DataError, Mix};

use super::TABLE;
use crate::config::check::{F32_RULE, is_in_f32, require};
use crate::config::{DataConfig, TrainConfig};
use crate::error::TrainError;

/// The most changes of a transition. In longer ones, each change lasts for several steps.
const MOST_CHANGES: usize = 1024;

/// A change of the weights of the datasets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WeightChange {
    /// Completed steps before the change.
    pub(crate) step: usize,
    /// The new weights.
    pub(crate) weights: Vec<f64>,
    /// True within a transition and at its end: the division of the sequences continues.
    pub(crate) continues: bool,
}

impl WeightChange {
    /// The mix with this change from the sequence number `first` on.
    ///
    /// # Errors
    /// See [`Mix::with_weights_from`].
    pub(crate) fn applied_to(&self, mix: Mix, first: u64) -> Result<Mix, DataError> {
        match self.continues {
            true => mix.with_weights_continued_from(first, &self.weights),
            false => mix.with_weights_from(first, &self.weights),
        }
    }
}

impl TrainConfig {
    /// The changes of the weights of the datasets, in the order of their steps. `weights` are those of `data.mix`.
    pub(crate) fn weight_changes(&self, weights: &[f64]) -> Vec<WeightChange> {
        let mut changes = Vec::new();
        let mut before = weights;
        for stage in &self.stages {
            let now = stage.weights.as_deref().unwrap_or(weights);
            if now == before {
                continue;
            }
            let transition = stage.transition;
            // A pure function of the transition's length, so that a run may be extended.
            let length = transition.div_ceil(MOST_CHANGES).max(1);
            for begin in (0..transition).step_by(length) {
                let end = begin.saturating_add(length).min(transition);
                // The mean share of these steps.
                let progress = (begin as f64 + end as f64) / (2.0 * transition as f64);
                changes.push(WeightChange {
                    step: stage.step.saturating_add(begin),
                    weights: between(before, now, progress),
                    continues: begin > 0,
                });
            }
            changes.push(WeightChange {
                step: stage.step.saturating_add(transition),
                weights: now.to_vec(),
                continues: transition > 0,
            });
            before = now;
        }
        changes
    }

    /// Checks the lengths of the transitions.
    ///
    /// # Errors
    /// A stage without weights has a transition, or the next stage begins before the end of one.
    pub(super) fn check_transitions(&self) -> Result<(), TrainError> {
        let nexts = self.stages.iter().skip(1).map(Some).chain([None]);
        for (stage, next) in self.stages.iter().zip(nexts) {
            let transition = stage.transition;
            let check = |holds, rule: &str| require(TABLE, "transition", transition, holds, rule);
            let rule = "must be 0 in a stage without weights";
            check(transition == 0 || stage.weights.is_some(), rule)?;
            if let Some(next) = next {
                let most = next.step.saturating_sub(stage.step);
                let rule = format!(
                    "must be at most {most}, since the next stage begins at step {}",
                    next.step
                );
                check(transition <= most, &rule)?;
            }
        }
        Ok(())
    }

    /// Checks the weights of the stages for the datasets of `data`.
    ///
    /// # Errors
    /// They are not as many as the datasets, one of them is out of range, or all are 0.
    pub(in crate::config) fn check_mix(&self, data: &DataConfig) -> Result<(), TrainError> {
        let datasets = data.mix.len();
        for weights in self.stages.iter().filter_map(|s| s.weights.as_ref()) {
            let shown = format!("{weights:?}");
            let check = |holds, rule: &str| require(TABLE, "weights", &shown, holds, rule);
            check(datasets > 0, "must be absent without data.mix")?;
            check(
                !self.overfit_batch,
                "must be absent with train.overfit_batch",
            )?;
            let rule =
                format!("must have one weight for each of the {datasets} datasets of data.mix");
            check(weights.len() == datasets, &rule)?;
            let holds = weights
                .iter()
                .all(|&weight| weight >= 0.0 && weight.is_finite());
            check(holds, "must be at least 0 and finite")?;
            let holds = weights
                .iter()
                .all(|&weight| weight == 0.0 || is_in_f32(weight));
            check(holds, F32_RULE)?;
            let holds = weights.iter().any(|&weight| weight > 0.0);
            check(holds, "must have a weight above 0")?;
        }
        Ok(())
    }
}

/// The shares at `progress` from 0 to 1 between those of two lists of weights.
fn between(from: &[f64], to: &[f64], progress: f64) -> Vec<f64> {
    let [from_sum, to_sum] = [from, to].map(|weights| weights.iter().sum::<f64>());
    let shares = from.iter().zip(to).map(|(from, to)| {
        let (from, to) = (from / from_sum, to / to_sum);
        from * (1.0 - progress) + to * progress
    });
    shares.collect()
}

//! Divides a step into smaller micro-batches to save memory.

use std::cmp::Reverse;

use serde::Serialize;

use crate::config::{EvaluationConfig, TrainConfig};

/// A division of a step into micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Sequences per micro-batch.
    pub micro_batch: usize,
    /// Micro-batches per step.
    pub accumulation: usize,
    /// Recompute blocks in the backward pass.
    pub recompute: bool,
    /// Sequences per batch of an evaluation.
    pub evaluation_batch: usize,
}

impl Plan {
    /// The division in the configuration.
    pub fn of(train: &TrainConfig) -> Self {
        Self {
            micro_batch: train.micro_batch,
            accumulation: train.accumulation,
            recompute: train.recompute,
            evaluation_batch: train.evaluation.batch,
        }
    }

    /// The options of `emberlm train` that apply this division to a configuration.
    pub fn options(self, train: &TrainConfig) -> String {
        let (micro_batch, accumulation) = (self.micro_batch, self.accumulation);
        let recompute = match (self.recompute, train.recompute) {
            (true, _) => " --recompute",
            (false, true) => " --set train.recompute=false",
            (false, false) => "",
        };
        let batch = self.evaluation_batch;
        let evaluation = match batch == train.evaluation.batch {
            true => String::new(),
            false => format!(" --set train.evaluation.batch={batch}"),
        };
        format!(
            "--set train.micro_batch={micro_batch} --accumulation {accumulation}{recompute}{evaluation}"
        )
    }

    /// The configuration with this division.
    pub fn over(self, train: &TrainConfig) -> TrainConfig {
        TrainConfig {
            micro_batch: self.micro_batch,
            accumulation: self.accumulation,
            recompute: self.recompute,
            evaluation: EvaluationConfig {
                batch: self.evaluation_batch,
                ..train.evaluation.clone()
            },
            ..train.clone()
        }
    }
}

/// The search limit for the smaller factor of a step's sequences.
const LARGEST: usize = 1 << 16;

/// Every division of the configuration's step into equal micro-batches; the tokens per step stay the same.
/// The fastest come first: larger micro-batches before smaller ones, and all of these before divisions that recompute
/// blocks. The evaluation batch is the configured one, or one that is no larger than the micro-batch.
pub fn plans(train: &TrainConfig) -> Vec<Plan> {
    let sequences = train.micro_batch.saturating_mul(train.accumulation);
    let mut sizes: Vec<usize> = (1..=LARGEST)
        .take_while(|n| n * n <= sequences)
        .filter(|n| sequences.is_multiple_of(*n))
        .flat_map(|n| [n, sequences / n])
        .collect();
    sizes.sort_unstable_by_key(|&size| Reverse(size));
    sizes.dedup();
    let with = |recompute| {
        sizes.iter().flat_map(move |&micro_batch| {
            let plan = move |evaluation_batch| Plan {
                micro_batch,
                accumulation: sequences / micro_batch,
                recompute,
                evaluation_batch,
            };
            let own = train.evaluation.batch;
            let smaller = (micro_batch < own).then_some(micro_batch);
            std::iter::once(own).chain(smaller).map(plan)
        })
    };
    with(false).chain(with(true)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_complete_and_fastest_first() {
        let train = TrainConfig {
            micro_batch: 4,
            accumulation: 3,
            evaluation: EvaluationConfig {
                batch: 1,
                ..EvaluationConfig::default()
            },
            ..TrainConfig::default()
        };
        let plans = plans(&train);
        let sizes: Vec<_> = plans.iter().map(|plan| plan.micro_batch).collect();
        assert_eq!(sizes, [12, 6, 4, 3, 2, 1, 12, 6, 4, 3, 2, 1]);
        for (i, plan) in plans.into_iter().enumerate() {
            assert_eq!(plan.micro_batch * plan.accumulation, 12);
            assert_eq!(plan.recompute, i >= 6);
            assert_eq!(Plan::of(&plan.over(&train)), plan);
        }
    }

    #[test]
    fn the_evaluation_batch_can_shrink_to_the_micro_batch() {
        let mut train = TrainConfig {
            micro_batch: 2,
            ..TrainConfig::default()
        };
        train.evaluation.batch = 16;
        let plans = plans(&train);
        let batches: Vec<_> = plans.iter().map(|plan| plan.evaluation_batch).collect();
        assert_eq!(batches, [16, 2, 16, 1, 16, 2, 16, 1]);
        assert_eq!(
            plans[3].options(&train),
            "--set train.micro_batch=1 --accumulation 2 --set train.evaluation.batch=1"
        );
    }
}

//! Ways to make the same step with less memory.

use std::cmp::Reverse;

use serde::Serialize;

use crate::config::TrainConfig;

/// How a step is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Sequences per micro-batch.
    pub micro_batch: usize,
    /// Micro-batches per step.
    pub accumulation: usize,
    /// Whether blocks are computed again for their gradients.
    pub recompute: bool,
}

impl Plan {
    /// As the configuration has it.
    pub fn of(train: &TrainConfig) -> Self {
        Self {
            micro_batch: train.micro_batch,
            accumulation: train.accumulation,
            recompute: train.recompute,
        }
    }

    /// The configuration with this in it.
    pub fn over(self, train: &TrainConfig) -> TrainConfig {
        TrainConfig {
            micro_batch: self.micro_batch,
            accumulation: self.accumulation,
            recompute: self.recompute,
            ..train.clone()
        }
    }
}

/// Of two factors of a step, the smaller one is looked for up to here.
const LARGEST: usize = 1 << 16;

/// Every division of the configuration's step into whole micro-batches, so that its tokens stay the same; the fastest
/// first: large micro-batches before small ones, and all of them before those that compute blocks twice.
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
        sizes.iter().map(move |&micro_batch| Plan {
            micro_batch,
            accumulation: sequences / micro_batch,
            recompute,
        })
    };
    with(false).chain(with(true)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_division_of_the_step_the_fastest_first() {
        let train = TrainConfig {
            micro_batch: 4,
            accumulation: 3,
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
}

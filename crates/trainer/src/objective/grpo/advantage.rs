//! The advantages of the completions of a step: their rewards relative to those of the other completions of their prompt.
//!
//! ```text
//! advantage = (r − mean of the group) / (s + 1e-4)     s: standard deviation of the group or of the step; or not divided
//! ```
//!
//! A completion without a reward has the advantage 0, and does not count in means and deviations.

use crate::config::RewardScale;

/// Added to standard deviations, as in TRL.
const SMALLEST: f64 = 1e-4;

/// The advantages of completions with these `rewards`, the groups of `group` completions one after another.
pub fn advantages(rewards: &[Option<f64>], group: usize, scale: RewardScale) -> Vec<f64> {
    let of_step = deviation(rewards);
    let mut found = Vec::with_capacity(rewards.len());
    for rewards in rewards.chunks(group.max(1)) {
        let divisor = match scale {
            RewardScale::None => 1.0,
            RewardScale::Group => deviation(rewards) + SMALLEST,
            RewardScale::Batch => of_step + SMALLEST,
        };
        let mean = mean(rewards);
        let advantage =
            |reward: &Option<f64>| reward.map_or(0.0, |reward| (reward - mean) / divisor);
        found.extend(rewards.iter().map(advantage));
    }
    found
}

fn mean(rewards: &[Option<f64>]) -> f64 {
    let count = rewards.iter().flatten().count();
    rewards.iter().flatten().sum::<f64>() / count.max(1) as f64
}

/// The standard deviation with Bessel's correction; 0 for fewer than two rewards.
pub(super) fn deviation(rewards: &[Option<f64>]) -> f64 {
    let (mean, count) = (mean(rewards), rewards.iter().flatten().count());
    if count < 2 {
        return 0.0;
    }
    let squares = rewards
        .iter()
        .flatten()
        .map(|reward| (reward - mean).powi(2));
    (squares.sum::<f64>() / (count - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_without_differences_has_no_advantages() {
        let rewards = [Some(1.0), Some(1.0), None, Some(0.0), None, None];
        let found = advantages(&rewards, 3, RewardScale::Group);
        assert_eq!(found, [0.0; 6]);
    }
}

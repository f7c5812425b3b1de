//! Settings of group relative policy optimization: sampling, loss and rewards.

use serde::{Deserialize, Serialize};

use crate::config::check::{Must, Range, require};
use crate::config::reward::RewardConfig;
use crate::config::settings::{Settings, settings};
use crate::error::TrainError;

/// The mean that turns the losses of tokens into the loss of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrpoLoss {
    /// The mean over each completion, then over completions (Shao et al. 2024).
    Grpo,
    /// The mean over the tokens of each micro-batch, then over micro-batches.
    Bnpo,
    /// The sum over tokens divided by completions times `max_new_tokens` (Liu et al. 2025, "Understanding R1-Zero-Like
    /// Training").
    DrGrpo,
    /// The mean over all tokens of a step (Yu et al. 2025, "DAPO").
    #[default]
    Dapo,
}

impl GrpoLoss {
    /// The factor of each token's loss of a completion of `length` tokens, in a sum that is divided by the step's
    /// completions. `per_token` are the completions per token of the micro-batch and of the step.
    pub fn token_scale(self, length: usize, per_token: [f64; 2], max_new_tokens: usize) -> f64 {
        let [of_micro_batch, of_step] = per_token;
        match self {
            Self::Grpo => 1.0 / length.max(1) as f64,
            Self::Bnpo => of_micro_batch,
            Self::DrGrpo => 1.0 / max_new_tokens as f64,
            Self::Dapo => of_step,
        }
    }
}

/// The divisor of a reward's difference from the mean of its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RewardScale {
    /// 1.
    None,
    /// The standard deviation of the group's rewards.
    #[default]
    Group,
    /// The standard deviation of the step's rewards.
    Batch,
}

settings! {
    /// Settings of group relative policy optimization.
    pub struct GrpoConfig in "train.objective" {
        /// Completions that are sampled for each prompt. A step has micro_batch × accumulation completions, a multiple of it.
        pub group: usize = 8, COMPARED, 2..=MOST;
        /// Maximum number of tokens of a completion.
        pub max_new_tokens: usize = 256, 1..=MOST;
        /// Divides the logits that completions are sampled from.
        pub temperature: f64 = 1.0, Range::Positive;
        /// Number of most probable tokens to sample from; 0 for all.
        pub top_k: usize = 0;
        /// Samples from the smallest set of most probable tokens whose probabilities reach this sum; 1 for all.
        pub top_p: f64 = 1.0, Range::Positive, Must("must be at most 1", |share: &f64| *share <= 1.0);
        /// Completions that are sampled at the same time. Each has a key-value cache.
        pub slots: usize = 16, 1..=MOST;
        /// The mean over tokens: grpo, bnpo, dr_grpo or dapo.
        pub loss: GrpoLoss = GrpoLoss::default();
        /// The divisor of advantages: none, group or batch (standard deviations).
        pub scale_rewards: RewardScale = RewardScale::default();
        /// The ratio of probabilities is clipped below 1 minus this.
        pub epsilon_low: f64 = 0.2, Range::Share;
        /// The ratio of probabilities is clipped above 1 plus this.
        pub epsilon_high: f64 = 0.2, Range::NotNegative;
        /// Weight of the KL divergence from the reference model: the model without its adapter, or the weights that the run starts with.
        pub beta: f64 = 0.0, Range::NotNegative;
        /// Steps that train on the same completions.
        pub iterations: usize = 1, 1..=MOST;
        /// The rewards, whose weighted sum is maximized.
        pub rewards: Vec<RewardConfig> = Vec::new(), SCORED;
    }
}

/// The upper bound of counts.
const MOST: usize = 1 << 20;
/// The rule of groups.
const COMPARED: Must<usize> = Must(
    "must be at least 2: a completion is compared with the others of its prompt",
    |group: &usize| *group >= 2,
);
/// The rule of `rewards`.
const SCORED: Must<Vec<RewardConfig>> = Must(
    "must have at least one reward, which scores the completions that the run samples",
    |rewards: &Vec<RewardConfig>| !rewards.is_empty(),
);

impl GrpoConfig {
    pub(super) fn check(&self) -> Result<(), TrainError> {
        self.rewards.iter().try_for_each(RewardConfig::check_rules)
    }

    /// Checks that `completions` of a step are whole groups.
    ///
    /// # Errors
    /// They are not.
    pub(crate) fn check_step(&self, completions: usize) -> Result<(), TrainError> {
        let rule = format!(
            "must divide the {completions} completions of a step: micro_batch × accumulation"
        );
        let holds = completions.is_multiple_of(self.group.max(1));
        require(Self::TABLE, "group", self.group, holds, &rule)
    }
}

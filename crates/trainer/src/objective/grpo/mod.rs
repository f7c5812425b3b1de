//! Group relative policy optimization (Shao et al. 2024, "DeepSeekMath"): a decoder learns from the rewards of completions
//! that it samples itself.
//!
//! | module | contents |
//! |---|---|
//! | `prompts` | the prompts of a run |
//! | `sampling` | completions of prompts, sampled by the engine from the current weights |
//! | `rewards` | the rewards of completions |
//! | `task` | sampled and rewarded completions, and their evaluation |
//! | `advantage` | rewards relative to the other completions of a prompt |
//! | `rollout` | the micro-batches of a step: sampled, rewarded, with the log-probabilities of the loss |
//! | `batch`, `loss` | the loss of a micro-batch, and its derivatives |
//! | `scores` | the figures of the log |

mod advantage;
mod batch;
mod loss;
mod open;
mod prompts;
mod rewards;
mod rollout;
mod sampling;
mod scores;
mod task;

pub use advantage::advantages;
pub use batch::{PolicyBatch, PolicySequence};
pub use loss::PolicyLoss;
pub(crate) use prompts::{PromptSet, PromptSource};
pub(crate) use rewards::Rewards;
pub use rollout::Rollout;
pub(crate) use rollout::{ReferenceModel, Rollouts};
pub(crate) use scores::PolicyScores;
pub(crate) use task::{RewardTask, RewardValidation};

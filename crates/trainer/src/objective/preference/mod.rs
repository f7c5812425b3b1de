//! Learning from preferences: DPO and its variants, ORPO, SimPO and KTO.
//!
//! Every loss is a scalar function of the log-probabilities of a pair's two completions, so one mechanism computes the
//! gradients of all of them in one pass:
//!
//! ```text
//! hidden states ─► per sequence i: the cross-entropy Lᵢ of its targets       fused head loss, on the device
//!                  Lᵢ ─► host: loss and wᵢ = ∂loss/∂Lᵢ in f64                 `loss`
//!                  backward pass of Σ wᵢ · Lᵢ, whose gradient is the loss's
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `loss` | the losses, their derivatives and rewards |
//! | `batch` | the pairs of a batch, and the differentiable sum of their losses |
//! | `pairs` | tokenized pairs, in the order of training |
//! | `read` | reads and tokenizes the records of a run |
//! | `reference` | log-probabilities of the reference model, stored with the run |
//! | `scores` | mean loss, rewards, margin and accuracy |

mod batch;
mod loss;
mod open;
mod pairs;
mod read;
mod reference;
mod scores;

pub use batch::{PreferenceBatch, PreferenceSequence};
pub use loss::PreferenceLoss;
pub(crate) use pairs::PairSet;
pub(crate) use read::PairSource;
pub(crate) use reference::{FILE as REFERENCE_FILE, References};
pub use scores::PreferenceScores;

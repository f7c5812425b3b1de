//! The training objectives other than next-token prediction: what is computed from a window of tokens or from a record before it
//! becomes a batch.
//!
//! | module | contents |
//! |---|---|
//! | `source` | [`TrainSource`]: the batches of a run, a function of the number of their first sequence |
//! | `host_batch` | a batch in the host's memory |
//! | `masked_lm` | masked tokens (BERT, RoBERTa) |
//! | `span_corruption` | removed spans (T5) |
//! | `record_source` | reads labelled texts and pairs of texts, and tokenizes them |
//! | `record_splits` | divides records into those to train on and those to evaluate on |
//! | `encode_records` | tokenizes records with completions |
//! | `conversations` | reads conversations, and tokenizes them for supervised fine-tuning of decoders |
//! | `records` | batches of labelled texts, pairs of texts and conversations |
//! | `preference` | pairs of a chosen and a rejected completion (DPO, ORPO, SimPO), and labelled ones (KTO), for decoders |
//! | `grpo` | sampled completions with rewards, for decoders |
//! | `completions` | batches of the two, whose loss the host computes |
//! | `scores` | accuracy and F1 of predicted labels |

mod completions;
mod conversations;
mod encode_records;
pub(crate) mod gradient_sums;
pub(crate) mod grpo;
mod host_batch;
pub(crate) mod loader;
pub(crate) mod masked_lm;
mod mean;
mod model_config;
pub(crate) mod preference;
mod record_source;
mod record_splits;
mod records;
pub(crate) mod sample;
mod scores;
mod source;
pub(crate) mod span_corruption;
pub(crate) mod training_model;

pub use completions::{CompletionBatch, CompletionScores};
pub(crate) use conversations::ConversationSource;
pub(crate) use grpo::PolicyScores;
pub use grpo::{PolicyBatch, PolicyLoss, PolicySequence, Rollout, advantages};
pub(crate) use grpo::{
    PromptSet, PromptSource, ReferenceModel, RewardTask, RewardValidation, Rewards, Rollouts,
};
pub(crate) use host_batch::HostBatch;
pub(crate) use masked_lm::MaskedLm;
pub(crate) use model_config::adapted;
pub use model_config::{AnyConfig, CheckedModel};
pub(crate) use preference::PreferenceScores;
pub(crate) use preference::REFERENCE_FILE;
pub(crate) use preference::{PairSet, PairSource, References};
pub use preference::{PreferenceBatch, PreferenceLoss, PreferenceSequence};
pub(crate) use record_source::{Labels, RecordSource};
pub(crate) use records::RecordSet;
pub(crate) use scores::ClassScores;
pub(crate) use source::{HostBatches, TrainSource, WindowTask};
pub(crate) use span_corruption::SpanCorruption;

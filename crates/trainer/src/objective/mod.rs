//! The objectives: from data to batches and losses, and the model that is trained on them.
//!
//! | module | contents |
//! |---|---|
//! | `model` | the models that can be trained, their configuration, and the sums of their gradients |
//! | `source`, `host_batch`, `loader` | the batches of a run: a function of the number of their first sequence, in the host's memory, and as tensors |
//! | `mlm` | masked tokens (BERT, RoBERTa) |
//! | `span_corruption` | removed spans (T5) |
//! | `records` | labelled texts, pairs of texts and conversations: their files, splits, tokens and batches |
//! | `classify` | accuracy and F1 of predicted labels |
//! | `preference` | pairs of a chosen and a rejected completion (DPO, ORPO, SimPO), and labelled ones (KTO), for decoders |
//! | `grpo` | sampled completions with rewards, for decoders |
//! | `completions` | batches of the two, whose loss the host computes |
//! | `sample` | samples of a model, and the prompts that they answer |

mod classify;
mod completions;
pub(crate) mod grpo;
mod host_batch;
pub(crate) mod loader;
pub(crate) mod mlm;
pub(crate) mod model;
pub(crate) mod preference;
mod records;
pub(crate) mod sample;
mod source;
pub(crate) mod span_corruption;

pub(crate) use classify::ClassScores;
pub use completions::{CompletionBatch, CompletionScores};
pub(crate) use grpo::PolicyScores;
pub use grpo::{PolicyBatch, PolicyLoss, PolicySequence, Rollout, advantages};
pub(crate) use grpo::{
    PromptSet, PromptSource, ReferenceModel, RewardTask, RewardValidation, Rewards, Rollouts,
};
pub(crate) use host_batch::HostBatch;
pub(crate) use mlm::MaskedLm;
pub(crate) use model::config::adapted;
pub use model::config::{AnyConfig, CheckedModel};
pub(crate) use preference::{PairSet, PairSource, PreferenceScores, REFERENCE_FILE, References};
pub use preference::{PreferenceBatch, PreferenceLoss, PreferenceSequence};
pub(crate) use records::RecordSet;
pub(crate) use records::conversations::ConversationSource;
pub(crate) use records::source::{Labels, RecordSource};
pub(crate) use source::{HostBatches, TrainSource, WindowTask};
pub(crate) use span_corruption::SpanCorruption;

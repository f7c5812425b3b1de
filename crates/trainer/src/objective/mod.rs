//! The objectives: from data to batches and losses, and the model that is trained on them.
//!
//! | module | contents |
//! |---|---|
//! | `model` | the models that can be trained, their configuration, and the sums of their gradients |
//! | `source`, `host_batch`, `loader`, `repeated` | the batches of a run: a function of the number of their first sequence, in the host's memory, as tensors, and those of one step over and over |
//! | `inputs`, `open`, `validation` | the inputs of a run, how objectives open them, and the data of its evaluations |
//! | `next_token` | the next token, of datasets or conversations |
//! | `mlm` | masked tokens (BERT, RoBERTa) |
//! | `span_corruption` | removed spans (T5) |
//! | `records` | labelled texts, pairs of texts and conversations: their files, splits, tokens and batches |
//! | `seq2seq` | target texts |
//! | `classify` | accuracy and F1 of predicted labels |
//! | `preference` | pairs of a chosen and a rejected completion (DPO, ORPO, SimPO), and labelled ones (KTO), for decoders |
//! | `grpo` | sampled completions with rewards, for decoders |
//! | `completions` | batches of the two, whose loss the host computes |
//! | `sample` | samples of a model, and the prompts that they answer |

use crate::config::{ObjectiveConfig, RunConfig};
use crate::error::TrainError;

mod classify;
mod completions;
pub(crate) mod grpo;
mod host_batch;
mod inputs;
pub(crate) mod loader;
pub(crate) mod mlm;
pub(crate) mod model;
mod next_token;
mod open;
pub(crate) mod preference;
mod records;
mod repeated;
pub(crate) mod sample;
mod seq2seq;
mod source;
pub(crate) mod span_corruption;
pub(crate) mod validation;

pub(crate) use classify::ClassScores;
pub use completions::{CompletionBatch, CompletionScores};
pub(crate) use grpo::PolicyScores;
pub use grpo::{PolicyBatch, PolicyLoss, PolicySequence, Rollout, advantages};
pub(crate) use grpo::{PromptSet, ReferenceModel, RewardTask, RewardValidation, Rollouts};
pub(crate) use host_batch::HostBatch;
pub(crate) use inputs::{DataContext, RunInputs};
pub(crate) use model::config::adapted;
pub use open::resolve_model;
pub(crate) use preference::{PairSet, PreferenceScores, REFERENCE_FILE, References};
pub use preference::{PreferenceBatch, PreferenceLoss, PreferenceSequence};
pub(crate) use records::RecordSet;
pub(crate) use records::conversations::ConversationSource;
pub(crate) use records::source::{Labels, RecordSource};
pub(crate) use source::{HostBatches, TrainSource, WindowTask};

/// An objective, which its settings implement.
pub(crate) trait Objective {
    /// Opens the data and resolves the model of a run with this objective, which is one of its model's.
    ///
    /// # Errors
    /// The data cannot be opened, or does not fit the model; or a setting is not supported.
    fn open(
        &self,
        config: &mut RunConfig,
        context: &dyn DataContext,
    ) -> Result<RunInputs, TrainError>;

    /// The number of records of an epoch; `None` for datasets of tokens.
    ///
    /// # Errors
    /// The records cannot be read.
    fn records(&self, _: &RunConfig) -> Result<Option<usize>, TrainError> {
        Ok(None)
    }

    /// The most tokens of an encoder–decoder's target for sources of `source` tokens.
    ///
    /// # Errors
    /// The sources are too short.
    fn target_tokens(&self, source: usize) -> Result<usize, TrainError> {
        Ok(source)
    }

    /// The share of the tokens that have a loss; `None` for all. The others have no logits.
    fn learnt_share(&self) -> Option<f64> {
        None
    }
}

impl ObjectiveConfig {
    /// The objective.
    pub(crate) fn objective(&self) -> Box<dyn Objective> {
        match self {
            Self::NextToken(config) => Box::new(config.clone()),
            Self::Mlm(config) => Box::new(config.clone()),
            Self::Classify(config) => Box::new(config.clone()),
            Self::SpanCorruption(config) => Box::new(config.clone()),
            Self::Seq2seq(config) => Box::new(config.clone()),
            Self::Dpo(config) => Box::new(PreferenceLoss::from(config)),
            Self::Orpo(config) => Box::new(PreferenceLoss::from(config)),
            Self::Simpo(config) => Box::new(PreferenceLoss::from(config)),
            Self::Kto(config) => Box::new(PreferenceLoss::from(config)),
            Self::Grpo(config) => Box::new(config.clone()),
        }
    }
}

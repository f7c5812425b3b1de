//! The error type of the trainer.

use std::path::PathBuf;

use emberlm_checkpoint::{CheckpointError, ModelError};
use emberlm_data::{ChatError, DataError, TokenizerError};
use emberlm_generate::GenerateError;
use emberlm_model::{AdapterError, ConfigError, HuggingFaceError, ModelKind, WeightsError};

use crate::peers::PeersError;

mod run_config;
mod task;

pub use run_config::RunConfigError;
pub use task::TaskError;

/// An error of a hook.
pub type HookError = Box<dyn std::error::Error + Send + Sync>;

/// An error during training, evaluation or checkpointing.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A training setting has an invalid value.
    #[error("{table}.{field} = {value}: {rule}")]
    Setting {
        /// The table, `train` or `data`.
        table: &'static str,
        /// The field.
        field: &'static str,
        /// The value.
        value: String,
        /// The violated rule.
        rule: String,
    },
    /// A metric cannot be recorded.
    #[error("the metric `{name}`: {rule}")]
    Metric {
        /// The metric's name.
        name: String,
        /// The violated rule.
        rule: &'static str,
    },
    /// A hook failed.
    #[error("a hook of the run failed: {0}")]
    Hook(#[source] HookError),
    /// Datasets of a mix have different tokenizers.
    #[error("{} and {} have different tokenizers: {first_tokenizer} and {other_tokenizer}{}", first.display(), other.display(), vocabularies(first_tokenizer, other_tokenizer))]
    Tokenizers {
        /// The first dataset of the mix.
        first: PathBuf,
        /// The tokenizer of `first`.
        first_tokenizer: String,
        /// Another dataset.
        other: PathBuf,
        /// The tokenizer of `other`.
        other_tokenizer: String,
    },
    /// The configuration describes another model than a decoder.
    #[error("the configuration's model is {}, and only decoders are supported here", kind.named())]
    NotADecoder {
        /// The kind of model.
        kind: ModelKind,
    },
    /// The weights are those of another kind of model.
    #[error("the weights are those of {}, and the configuration's model is {}", weights.named(), model.named())]
    OtherModel {
        /// The kind of the weights' model.
        weights: ModelKind,
        /// The kind of the configuration's model.
        model: ModelKind,
    },
    /// The base model of an adapter is not recorded.
    #[error("a run with an adapter needs its base model: set `RunOptions::base`")]
    NoBase,
    /// The adapter cannot be added to the model.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// A record has a label that the model does not know.
    #[error("{}: record {record} has the label `{label}`, but the model has {known}", path.display())]
    UnknownLabel {
        /// The file.
        path: PathBuf,
        /// The position of the record in its file, from 1.
        record: u64,
        /// The label.
        label: String,
        /// The model's labels.
        known: String,
    },
    /// All records have the same label, so there is nothing to learn.
    #[error("{}: all records have the label `{label}`, and a classifier needs at least 2 labels", path.display())]
    SingleLabel {
        /// The file.
        path: PathBuf,
        /// The label.
        label: String,
    },
    /// A text has no tokens.
    #[error("{}: record {record} has a text without tokens", path.display())]
    EmptyRecord {
        /// The file.
        path: PathBuf,
        /// The position of the record in its file, from 1.
        record: u64,
    },
    /// A record is not a pair of completions, or a conversation.
    #[error("{}: line {line}: {reason}", path.display())]
    Preference {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
        /// The violated rule.
        reason: String,
    },
    /// Too many sampled completions have no reward.
    #[error("{failed} of {completions} completions lack a reward: {reason}")]
    Rewards {
        /// The number of those that lack a reward.
        failed: usize,
        /// The number of sampled completions.
        completions: usize,
        /// The rank that has the first reason.
        rank: usize,
        /// The first reason.
        reason: String,
    },
    /// The chat template of the model to start from cannot be used.
    #[error("the model's chat template: {0}")]
    ChatTemplate(#[source] ChatError),
    /// The log-probabilities of the reference model cannot be used.
    #[error("{}: {reason}", path.display())]
    References {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A completion has no finite log-probability under the reference model.
    #[error("the model to start from gives a completion a log-probability that is not finite")]
    NonFiniteReference,
    /// The masks of a dataset exclude every token from the loss.
    #[error("{}: its masks exclude every token of the train split from the loss", path.display())]
    NothingLearnt {
        /// The dataset.
        path: PathBuf,
    },
    /// A model setting has an invalid value.
    #[error(transparent)]
    Model(#[from] ConfigError),
    /// The model that the run starts from cannot be read.
    #[error(transparent)]
    Opened(#[from] ModelError),
    /// The configuration cannot be written into the run's directory.
    #[error(transparent)]
    Config(#[from] RunConfigError),
    /// The dataset cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A task of `train.evaluation.tasks` cannot be used.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// Records of texts cannot be read.
    #[error(transparent)]
    Records(DataError),
    /// A file that was being verified during training is damaged. Any step since the start may have read it.
    #[error("{source}; checkpoints after step {begun_at} may have been trained on damaged data")]
    DamagedData {
        /// The file and its damage.
        source: DataError,
        /// The step at which the run was started or resumed.
        begun_at: usize,
    },
    /// The tokenizer cannot be read or written.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Weights cannot be read or written.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A Hugging Face directory cannot be read, or its format cannot express the model.
    #[error(transparent)]
    HuggingFace(#[from] HuggingFaceError),
    /// A sample could not be generated.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// A file of the run cannot be read or written.
    #[error("{path}: {action}: {source}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The directory already holds a run.
    #[error("{path} already holds a run")]
    RunExists {
        /// The directory.
        path: PathBuf,
    },
    /// The directory of a new run is already used for something else.
    #[error("{path} is the directory of {what} and cannot hold a run")]
    NotForRun {
        /// The directory.
        path: PathBuf,
        /// The kind of directory: a dataset, a model or a checkpoint.
        what: &'static str,
    },
    /// A symbolic link is in place of a file or folder of a run.
    #[error("{path} is a symbolic link, and its target would be changed")]
    RunLink {
        /// The link.
        path: PathBuf,
    },
    /// The directory holds no run.
    #[error("{path} holds no run")]
    NoRun {
        /// The directory.
        path: PathBuf,
    },
    /// Another process is training the run.
    #[error("{path} is being trained by {}", trainer(.process))]
    RunLocked {
        /// The directory.
        path: PathBuf,
        /// The process ID; empty if its lock file was removed.
        process: String,
    },
    /// The run directory is not the one that this process started with.
    #[error("{path} was removed, renamed or replaced while it was being trained")]
    RunReplaced {
        /// The directory.
        path: PathBuf,
    },
    /// The lock file is gone, so another process may have locked the run.
    #[error("{path} was removed or replaced, and another process can train the same run")]
    LockReplaced {
        /// The lock file.
        path: PathBuf,
    },
    /// The run cannot be resumed on other data.
    #[error("{checkpoint} cannot be resumed: {dataset}: {difference}")]
    ResumeData {
        /// The checkpoint.
        checkpoint: PathBuf,
        /// The dataset.
        dataset: PathBuf,
        /// The difference from the data of the checkpoint.
        difference: String,
    },
    /// The data has another tokenizer than the checkpoint.
    #[error("{checkpoint} cannot be resumed: {dataset}: it has another tokenizer")]
    ResumeTokenizer {
        /// The checkpoint.
        checkpoint: PathBuf,
        /// The dataset.
        dataset: PathBuf,
    },
    /// The run has made more steps than it is to make.
    #[error("{path} has already made {made} steps, more than train.steps = {steps}")]
    StepsMade {
        /// The run's directory or the checkpoint.
        path: PathBuf,
        /// The completed steps.
        made: usize,
        /// The configured number of steps.
        steps: usize,
    },
    /// The last checkpoint could not be written.
    #[error("the run ended at step {step} without a checkpoint: {reason}{}", last_good(.last))]
    NoCheckpoint {
        /// The step.
        step: usize,
        /// The reason.
        reason: String,
        /// The last checkpoint written.
        last: Option<PathBuf>,
    },
    /// A checkpoint cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Too many consecutive steps were skipped.
    #[error("{skipped} steps in a row were skipped, the last one, {step}, because {reason}{}", last_good(.last))]
    Diverged {
        /// The last step.
        step: usize,
        /// The number of consecutive skipped steps.
        skipped: usize,
        /// The reason the last one was skipped.
        reason: String,
        /// The last checkpoint written.
        last: Option<PathBuf>,
    },
    /// The training processes cannot exchange their gradients.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// The training processes cannot share the micro-batches of a step evenly.
    #[error(
        "train.accumulation = {accumulation}: must be a multiple of the number of ranks, {ranks}, which share a step's micro-batches"
    )]
    UnevenRanks {
        /// Micro-batches per step.
        accumulation: usize,
        /// The number of ranks.
        ranks: usize,
    },
    /// The training processes do not train the same run. All of them return this error.
    #[error("rank {rank} of {world_size} does not train the same run as rank 0: {difference}")]
    RanksDiffer {
        /// The first rank that differs from rank 0.
        rank: usize,
        /// The number of ranks.
        world_size: usize,
        /// The first difference.
        difference: String,
    },
    /// The run was stopped without a checkpoint of its last steps.
    #[error("the run was stopped after step {step} without saving{}", kept(.last))]
    Discarded {
        /// The run's directory.
        run: PathBuf,
        /// The last complete step.
        step: usize,
        /// The newest checkpoint.
        last: Option<PathBuf>,
    },
    /// The dashboard cannot use the terminal.
    #[error("the dashboard cannot use the terminal: {0}")]
    Terminal(#[source] std::io::Error),
    /// The run ended without a result.
    #[error("the run ended without a result")]
    NoResult,
}

impl TrainError {
    /// The rank that reports an error that all processes of a run have at the same step. `None` for errors of this process.
    pub fn reporting_rank(&self) -> Option<usize> {
        match self {
            Self::RanksDiffer { .. } | Self::Diverged { .. } => Some(0),
            Self::Rewards { rank, .. } => Some(*rank),
            _ => None,
        }
    }
}

/// The clause of an error message that names the last good checkpoint.
fn last_good(last: &Option<PathBuf>) -> String {
    match last {
        Some(path) => format!("; the last good checkpoint is {}", path.display()),
        None => "; there is no checkpoint yet".to_owned(),
    }
}

/// The clause of an error message that names the newest checkpoint.
fn kept(last: &Option<PathBuf>) -> String {
    match last {
        Some(path) => format!("; its newest checkpoint is {}", path.display()),
        None => "; it has no checkpoint".to_owned(),
    }
}

/// The process that trains a run, by its ID if that is available.
fn trainer(process: &str) -> String {
    match process {
        "" => "another process".to_owned(),
        number => format!("process {number}"),
    }
}

/// The clause of an error message that distinguishes tokenizers of the same kind.
fn vocabularies(first: &str, other: &str) -> &'static str {
    match first == other {
        true => ", with other vocabularies",
        false => "",
    }
}

impl TrainError {
    /// Maps an I/O error of `action` on `path`, for `map_err`.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            path,
            action,
            source,
        }
    }
}

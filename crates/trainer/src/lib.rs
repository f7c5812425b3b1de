//! Training on Burn's learner, organized by steps instead of epochs.
//!
//! Rooms, each of which imports only from those above it:
//!
//! | room | contents |
//! |---|---|
//! | [`memory`], [`peak`], [`read`], `stop` | the machine's memory and speed, reads from the device, requests to stop |
//! | [`peers`] | the processes that train a model together |
//! | [`error`] | the error type |
//! | [`config`] | the settings of a run: tables, [`presets`] and their layers ([`run_config`]) |
//! | [`data`] | the datasets of a run, their identity and check |
//! | `report` | [`metrics`], [`events`] and their displays: [`dashboard`], lines, [`tensorboard`] |
//! | `objective` | the objectives: from data to batches and losses, and the model that is trained on them |
//! | [`optimizer`] | the update: rules, [`schedule`], guards, skipped steps ([`skip`]), [`loss_scale`] |
//! | [`checkpoint`] | a checkpoint with the state of its run |
//! | `step` | one training step, from micro-batches to its outcome |
//! | [`mod@evaluate`] | the loss over a split, validation, published [`tasks`] |
//! | [`fit`] | predicts the memory of a run |
//! | [`mod@bench`], [`memory_report`] | measure the speed and the memory of steps |
//! | [`hooks`] | custom code at steps, evaluations and checkpoints |
//! | [`run`] | a run from its configuration to its result: inputs, Burn's learner, `driver`, [`folder`], [`resume`] |
//!
//! Main types and functions:
//!
//! | item | purpose |
//! |---|---|
//! | [`RunConfig`], [`TrainConfig`], [`DataConfig`] | a run's configuration: the tables of `config.toml` |
//! | [`presets`], [`run_config`] | named configurations, and overrides from TOML files and the command line |
//! | [`Training`] | starts or resumes a run |
//! | [`RunResult`] | the result of a run |
//! | [`checkpoint::Checkpoint`] | a checkpoint with the state of its run |
//! | [`evaluate()`], [`Evaluation`] | the loss over a split |
//! | [`tasks`] | HellaSwag and LAMBADA |
//! | [`fit`] | predicts the memory of a run |
//!
//! ```
//! use emberlm_trainer::{presets, run_config};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = ["train.steps=10".to_owned(), "model.d_model=64".to_owned()];
//! let config = run_config::layered(presets::run("pocket-tales")?, None, &settings)?;
//! assert_eq!(config.model.d_model, 64);
//! let text = run_config::to_toml(&config)?;
//! assert!(text.contains("d_model = 64"));
//! # Ok(())
//! # }
//! ```
//!
//! The workspace example `train` shows a complete training program.

#![recursion_limit = "256"]

// Test helpers shared with the integration tests refer to this crate by its name.
#[cfg(test)]
extern crate self as emberlm_trainer;

pub mod bench;
pub mod checkpoint;
pub mod config;
pub mod data;
pub mod error;
pub mod evaluate;
pub mod fit;
pub mod hooks;
pub mod memory;
pub mod memory_report;
mod objective;
pub mod optimizer;
pub mod peak;
pub mod peers;
pub mod read;
mod report;
pub mod run;
mod step;
mod stop;

pub use burn::train::Interrupter;
pub use config::{
    DataConfig, Group, Groups, MixedDataset, ObjectiveConfig, OptimizerConfig, OptimizerKind,
    RunConfig, ScheduleConfig, ScheduleKind, SkipConfig, TrainConfig,
};
pub use config::{epochs, presets, run_config};
pub use data::file_check::FileCheck;
pub use data::{TrainingData, file_check, identity};
pub use error::TrainError;
pub use evaluate::{
    Evaluation, PositionLosses, evaluate, evaluate_among, evaluate_observed, evaluate_positions,
    evaluate_positions_among, evaluated_windows, tasks,
};
pub use hooks::Hook;
pub use objective::model::{BatchPass, TokenBatch, TrainingModel};
pub use objective::{
    CompletionBatch, CompletionScores, PolicyBatch, PolicyLoss, PolicySequence, PreferenceBatch,
    PreferenceLoss, PreferenceSequence, advantages,
};
pub use optimizer::{loss_scale, schedule, skip};
pub use peers::{
    AddressTransport, DeviceMemoryPeers, Divided, OrderedPeers, Peers, PeersError, Piece, Rank,
    SingleProcess, Transport,
};
pub use report::metrics::Metric;
pub use report::{Say, dashboard, events, metrics, tensorboard};
pub use run::divergence::Divergence;
pub use run::folder::RunFolder;
pub use run::{
    Fork, Renderer, RunOptions, RunResult, RunStart, RunWeights, Training, ancestry, divergence,
    folder, formats, resume,
};
pub use step::engine::StepMetrics;
pub use step::{clip, ema};

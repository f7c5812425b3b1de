//! Training on Burn's learner, organized by steps instead of epochs.
//!
//! Modules:
//!
//! | module | purpose |
//! |---|---|
//! | [`config`] | the settings of a run |
//! | [`run`] | a run: inputs, `initial_state` (new or restored by [`resume`]), launch, result |
//! | `strategy`, `driver` | the training loop; rank 0 also logs, evaluates, samples and saves |
//! | `engine` | one training step, from micro-batches to its outcome |
//! | `gradients`, [`clip`], [`loss_scale`], [`peers`] | gradients over all micro-batches and ranks |
//! | [`skip`], `guard` | decides whether a step updates the weights, on the host or on the device |
//! | [`optimizer`], [`schedule`], [`ema`] | the update, its learning rate, and the moving average of the weights |
//! | `objective` | masked tokens, span corruption, labelled texts and pairs of texts |
//! | `training_model`, `loader`, [`data`], [`identity`], [`file_check`] | the model and its data, as Burn's learner expects them |
//! | [`divergence`] | detects diverged runs |
//! | `recorder`, [`events`], [`tensorboard`], [`checkpoint`], [`folder`] | the files of a run |
//! | [`metrics`], [`dashboard`], `plain`, `pace`, [`peak`] | metrics of a run and their renderers |
//! | [`hooks`] | custom code at steps, evaluations and checkpoints |
//! | `validation`, [`mod@evaluate`], [`tasks`] | validation loss and published evaluation tasks |
//! | [`fit`], [`memory`], [`memory_report`], [`mod@bench`] | predicts and measures the memory and the speed of a run |
//!
//! Main types and functions:
//!
//! | item | purpose |
//! |---|---|
//! | [`RunConfig`], [`TrainConfig`], [`DataConfig`] | a run's configuration: the tables of `config.toml` |
//! | [`presets`], [`run_config`] | named configurations, and overrides from TOML files and the command line |
//! | [`train`] | starts or resumes a run |
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
//! assert_eq!(config.model.decoder()?.d_model, 64);
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

pub mod ancestry;
pub mod bench;
pub mod checkpoint;
pub mod clip;
pub mod config;
pub mod dashboard;
pub mod data;
pub mod divergence;
mod divided;
mod driver;
pub mod ema;
mod engine;
pub mod epochs;
pub mod error;
pub mod evaluate;
pub mod events;
mod exportable;
pub mod file_check;
pub mod fit;
pub mod folder;
pub mod formats;
mod frozen;
mod gradients;
mod growing;
mod guard;
pub mod hooks;
pub mod identity;
mod initial_state;
mod loader;
pub mod loss_scale;
pub mod memory;
pub mod memory_report;
mod messages;
pub mod metrics;
mod objective;
pub mod optimizer;
mod pace;
pub mod peak;
pub mod peers;
mod plain;
pub mod presets;
pub mod read;
mod recorder;
pub mod resume;
pub mod run;
pub mod run_config;
mod sample;
pub mod schedule;
pub mod skip;
mod spread;
mod stop;
mod strategy;
pub mod tasks;
pub mod tensorboard;
mod training_model;
mod validation;

pub use burn::train::Interrupter;
pub use config::{
    DataConfig, Group, Groups, MixedDataset, ObjectiveConfig, OptimizerConfig, OptimizerKind,
    RunConfig, RunModel, ScheduleConfig, ScheduleKind, SkipConfig, TrainConfig,
};
pub use data::TrainingData;
pub use divergence::Divergence;
pub use engine::StepMetrics;
pub use error::TrainError;
pub use evaluate::{
    Evaluation, PositionLosses, evaluate, evaluate_among, evaluate_observed, evaluate_positions,
    evaluate_positions_among, evaluated_windows,
};
pub use file_check::FileCheck;
pub use folder::RunFolder;
pub use hooks::Hook;
pub use metrics::Metric;
pub use objective::{
    CompletionBatch, CompletionScores, PolicyBatch, PolicyLoss, PolicySequence, PreferenceBatch,
    PreferenceLoss, PreferenceSequence, advantages,
};
pub use peers::{
    AddressTransport, DeviceMemoryPeers, Divided, OrderedPeers, Peers, PeersError, Piece, Rank,
    SingleProcess, Transport,
};
pub use run::{Fork, Renderer, RunOptions, RunResult, RunStart, RunWeights, train, train_as_peer};
pub use training_model::{BatchPass, TokenBatch, TrainingModel};

//! Training on Burn's learner, by steps instead of epochs.
//!
//! Map: [`config`] is what a run is told, [`schedule`] the rate at a step, [`optimizer`] what turns gradients into
//! updates, with [`clip`]ping and a [`loss_scale`], [`skip`] which steps are not made, and [`ema`] an average of the weights; `trainee` is the
//! model as Burn's learner takes it, `loader` its batches of the run's [`data`]; [`mod@strategy`] hands them to the loop, `training`, which takes
//! `gradients` under a `guard`, [`mod@read`]s what it has found, asks [`mod@evaluate`], measures its `pace` beside the machine's [`peak`], and tells `metrics` to a
//! renderer: Burn's [`dashboard`] or [`plain`] lines. A `recorder` writes its [`events`] and [`tensorboard`] files, which
//! are `growing`, and its [`checkpoint`]s into its [`folder`]. [`run`] puts them together, from the `begin`ning or by
//! [`resume`], on data with an [`identity`], whose files a [`file_check`] verifies where they have no block hashes. [`tasks`] scores published evaluation tasks; [`memory`] is what the process
//! holds, [`memory_report`] what a step holds of a device's own, and [`fit`] what a run will take.

//!
//! | type | purpose |
//! |---|---|
//! | [`RunConfig`], [`TrainConfig`], [`DataConfig`] | a run's configuration: the tables of `config.toml` |
//! | [`presets`], [`run_config`] | named configurations, and TOML files and settings over them |
//! | [`train`] | trains a model from its beginning or from a checkpoint |
//! | [`Outcome`] | the result of a run |
//! | [`checkpoint::Checkpoint`] | a checkpoint with the position of its run |
//! | [`evaluate()`], [`Evaluation`] | the loss of a split |
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
//! The example `train` of the workspace trains a model from these parts.

#![recursion_limit = "256"]

// What the tests of the library share with those of the crate names it as they do.
#[cfg(test)]
extern crate self as emberlm_trainer;

mod begin;
pub mod bench;
pub mod checkpoint;
pub mod clip;
pub mod config;
pub mod dashboard;
pub mod data;
pub mod ema;
pub mod error;
pub mod evaluate;
pub mod events;
pub mod file_check;
pub mod fit;
pub mod folder;
mod gradients;
mod growing;
mod guard;
pub mod identity;
mod loader;
pub mod loss_scale;
pub mod memory;
pub mod memory_report;
mod metrics;
mod notes;
pub mod optimizer;
mod pace;
pub mod peak;
pub mod plain;
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
pub mod strategy;
pub mod tasks;
pub mod tensorboard;
mod trainee;
mod training;

pub use burn::train::Interrupter;
pub use config::{
    DataConfig, Group, Groups, MixedDataset, OptimizerKind, RunConfig, Schedule, TrainConfig,
};
pub use data::TrainingData;
pub use error::TrainError;
pub use evaluate::{Evaluation, PositionLosses, evaluate, evaluate_observed, evaluate_positions};
pub use file_check::FileCheck;
pub use folder::RunFolder;
pub use run::{Beginning, Outcome, Renderer, Surroundings, train};

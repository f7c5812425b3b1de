//! Training on Burn's learner, by steps instead of epochs.
//!
//! Map: [`config`] is what a run is told, [`schedule`] the rate at a step, [`optimizer`] AdamW with [`clip`]ping;
//! `trainee` is the model as Burn's learner takes it and `loader` its data; [`mod@strategy`] hands them to the loop,
//! `training`, which asks [`mod@evaluate`], writes [`events`] and [`checkpoint`]s and tells `metrics` to a renderer:
//! Burn's [`dashboard`] or [`plain`] lines. [`run`] puts them together. [`memory`] is what the process holds, and [`fit`]
//! what a run will take.

#![recursion_limit = "256"]

pub mod bench;
pub mod checkpoint;
pub mod clip;
pub mod config;
pub mod dashboard;
pub mod error;
pub mod evaluate;
pub mod events;
pub mod fit;
mod loader;
pub mod memory;
mod metrics;
pub mod optimizer;
pub mod plain;
pub mod run;
mod sample;
pub mod schedule;
pub mod strategy;
mod trainee;
mod training;

pub use burn::train::Interrupter;
pub use config::{DataConfig, Group, Groups, OptimizerKind, RunConfig, Schedule, TrainConfig};
pub use error::TrainError;
pub use evaluate::{Evaluation, evaluate};
pub use run::{Outcome, Renderer, train};

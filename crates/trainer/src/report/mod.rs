//! The reports of a run: metrics, events, and their displays.
//!
//! | module | purpose |
//! |---|---|
//! | [`metrics`] | the declarations and values of metrics |
//! | [`events`], `append` | the log `events.jsonl`, on a file that only grows |
//! | [`tensorboard`] | event files for TensorBoard |
//! | [`dashboard`], `plain` | the displays of a run in a terminal and as lines of text |
//! | `messages`, `pace` | notes on a run, and its speed |
//! | `spread` | mean and standard deviation |

use std::sync::Arc;

pub(crate) mod append;
pub mod dashboard;
pub mod events;
pub(crate) mod messages;
pub mod metrics;
pub(crate) mod pace;
pub(crate) mod plain;
pub(crate) mod spread;
pub mod tensorboard;

/// Receives the lines of a run's output, one at a time.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

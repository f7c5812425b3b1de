//! Many runs of one file, and what comes of them together.
//!
//! Map: `file` is the TOML, `random` draws configurations, `stopping` has the rules of early stopping, `plan` its runs with names and checked configurations, `record` keeps a folder to one plan,
//! `children` runs them as processes that `progress` shows, `summary` compares them with `statistics` over seeds.

mod children;
mod file;
mod plan;
mod progress;
mod random;
mod record;
mod statistics;
mod stopping;
mod summary;

pub use children::{Ended, Judging, is_done, run_all};
pub use file::SweepFile;
pub use plan::{Plan, Planned};
pub use progress::Progress;
pub use record::{FILE as SWEEP_FILE, Record};
pub use summary::Summary;

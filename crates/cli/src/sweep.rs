//! Sweeps: training many configurations from one file and comparing their results.
//!
//! | module | contents |
//! |---|---|
//! | `file` | the sweep's TOML file |
//! | `random` | random search: draws configurations |
//! | `stopping` | early-stopping rules |
//! | `plan` | the sweep's runs, with names and validated configurations |
//! | `record` | keeps a sweep folder to one plan |
//! | `children`, `progress` | runs as child processes, and their progress |
//! | `summary`, `statistics` | comparison of runs, with statistics over seeds |

mod children;
mod file;
mod plan;
mod progress;
mod random;
mod record;
mod statistics;
mod stopping;
mod summary;

pub use children::{EarlyStopper, RunOutcome, is_done, run_all};
pub use file::SweepFile;
pub use plan::{Plan, PlannedRun};
pub use progress::Progress;
pub use record::{FILE as SWEEP_FILE, Record};
pub use summary::Summary;

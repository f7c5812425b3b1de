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

use emberlm_data::formats::FileFormat;
use schemars::schema_for;

pub use children::{EarlyStopper, RunOutcome, is_done, run_all};
pub use file::SweepFile;
pub use plan::{Plan, PlannedRun};
pub use progress::Progress;
pub use record::{FILE as SWEEP_FILE, Record};
pub use stopping::format as early_stop_format;
pub use summary::Summary;

/// The name of the comparison's plot in a sweep's folder.
pub const PLOT_FILE: &str = "sweep.svg";
/// The name of the comparison's page in a sweep's folder.
pub const PAGE_FILE: &str = "sweep.html";

/// The documentation of the files in a sweep's folder.
pub fn formats() -> Vec<FileFormat> {
    vec![
        FileFormat::new(SWEEP_FILE, "the configuration of each run")
            .with_schema(schema_for!(Record)),
        FileFormat::new(PLOT_FILE, "the comparison of the runs as a plot"),
        FileFormat::new(PAGE_FILE, "the comparison of the runs as a page"),
        FileFormat::new(format!("RUN/{}", children::LOG), "the output of a run"),
    ]
}

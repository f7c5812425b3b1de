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

use emberlm_data::formats::FileFormat;
use schemars::schema_for;

pub use children::{Ended, Judging, is_done, run_all};
pub use file::SweepFile;
pub use plan::{Plan, Planned};
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

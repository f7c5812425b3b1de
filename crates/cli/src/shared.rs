//! Exports for `emberlm-bench`, which shares parts of the command line.

use std::process::ExitCode;

use clap::Parser;

pub use crate::args::parse;
pub use crate::backend::{BackendArg, Job};
pub use crate::commands::prepare::{PrepareArgs, options as prepare_options};
pub use crate::commands::train::datasets::config as datasets;
pub use crate::error::CliError;
pub use crate::model::open as open_model;
pub use crate::output::{Align, Table, print, print_json};
pub use crate::ranks::Ranks;
pub use crate::values::{packing_parser, precision_parser, weights_parser};

/// Runs a program with its own command-line definition `C`. `run` receives the arguments, and its error is
/// printed.
pub fn main<C: Parser>(run: impl FnOnce(C) -> Result<(), CliError>) -> ExitCode {
    crate::run(parse, run)
}

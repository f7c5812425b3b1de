//! `cargo xtask reference`: writes the generated pages of `docs/reference` from the program's own definitions.
//! A test of the command line fails if a page is stale.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::bench;
use crate::error::Error;
use crate::python::absolute;
use crate::workspace;

/// The names of the pages in `emberlm reference`.
const PAGES: [&str; 5] = ["commands", "configuration", "metrics", "http-api", "files"];

/// Arguments of `cargo xtask reference`.
#[derive(Debug, clap::Args)]
pub struct ReferenceArgs {
    /// Use this binary instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Writes all pages.
pub fn run(args: &ReferenceArgs) -> Result<ExitCode, Error> {
    let metadata = workspace::metadata()?;
    let binary = match &args.binary {
        Some(binary) => absolute(binary)?,
        None => bench::release(&metadata)?,
    };
    let folder = metadata.workspace_root.as_std_path().join("docs/reference");
    for page in PAGES {
        let mut command = Command::new(&binary);
        let text = workspace::stdout(command.args(["reference", page]))?;
        let path = folder.join(format!("{page}.md"));
        std::fs::write(&path, text).map_err(Error::write(&path))?;
        println!("wrote {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

//! `cargo xtask bench load`: the time to load a model, and the memory in addition to its weights.

use std::process::Command;

use super::programs::{Program, build};
use crate::{error::Error, workspace};

/// Arguments of `cargo xtask bench load`.
#[derive(Debug, clap::Args)]
pub struct LoadArgs {
    /// The model; its initial weights are written and read.
    #[arg(long, default_value = "pythia-160m")]
    preset: String,
    /// The backend to build and measure.
    #[arg(long, default_value = "flex")]
    backend: String,
}

/// Builds, writes the model as a Hugging Face directory in each data type, and loads each.
pub fn run(args: &LoadArgs) -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    build(&args.backend)?;
    let [emberlm, bench] = [Program::Emberlm, Program::Bench].map(|it| it.path(&metadata));
    let folder = metadata.target_directory.join("bench-load");
    let own = folder.join("own");
    let new = [
        "new",
        "--preset",
        &args.preset,
        "--force",
        "--out",
        own.as_str(),
    ];
    workspace::success(Command::new(&emberlm).args(new))?;
    for element in ["f32", "bf16", "f16"] {
        let out = folder.join(element);
        let export = [
            "export",
            own.as_str(),
            "--force",
            "--dtype",
            element,
            "--out",
            out.as_str(),
        ];
        workspace::success(Command::new(&emberlm).args(export))?;
        let load = ["bench-load", out.as_str(), "--backend", &args.backend];
        workspace::success(Command::new(&bench).args(load))?;
    }
    Ok(())
}

//! `cargo xtask bench load`: the time to load a model, and the memory in addition to its weights.

use std::process::Command;

use emberlm_system::measure::{Ratio, Unit};

use super::programs::{Field, Program, build, contender};
use super::session::Session;
use crate::{error::Error, workspace};

/// The formats that the model is stored in.
const FORMATS: [&str; 3] = ["f32", "bf16", "f16"];

const FIELDS: [Field; 4] = [
    Field("seconds", "", Unit::Seconds),
    Field("weights_mib", "weights", Unit::Bytes),
    Field("peak_rss_mib", "peak", Unit::Bytes),
    Field("peak_of_weights", "peak / weights", Unit::Ratio),
];

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
pub fn run(args: &LoadArgs, session: &mut Session) -> Result<(), Error> {
    build(&args.backend)?;
    let path = |program: Program| program.path(&session.metadata);
    let (emberlm, bench) = (path(Program::Emberlm), path(Program::Bench));
    let folder = session.folder("bench-load")?;
    let own = folder.join("own");
    let mut new = Command::new(&emberlm);
    new.args(["new", "--preset", &args.preset, "--force", "--out"]);
    workspace::success(new.arg(&own))?;
    let mut contenders = Vec::new();
    for format in FORMATS {
        let out = folder.join(format);
        let mut export = Command::new(&emberlm);
        export.arg("export").arg(&own);
        export.args(["--force", "--dtype", format, "--out"]);
        workspace::success(export.arg(&out))?;
        let bench = &bench;
        contenders.push(contender(
            &format!("stored in {format}"),
            &FIELDS,
            move || {
                let mut command = Command::new(bench);
                command.arg("bench-load").arg(&out);
                command.args(["--backend", &args.backend]);
                command
            },
        ));
    }
    let rounds = session.rounds(1);
    session.compare(&args.preset, Ratio::OtherToFirst, rounds, contenders)?;
    Ok(())
}

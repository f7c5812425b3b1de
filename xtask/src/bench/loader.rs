//! `cargo xtask bench loader`: the speed of batches, compared with the training speed of a small model on the
//! CPU.

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::process::Command;

use emberlm_system::measure::{Ratio, Unit};

use super::programs::{Field, Program, build, contender};
use super::session::Session;
use super::training::Training;
use crate::{error::Error, workspace};

/// Arguments of `cargo xtask bench loader`.
#[derive(Debug, clap::Args)]
pub struct LoaderArgs {
    /// The backend to build and measure.
    #[arg(long, default_value = "flex")]
    backend: String,
    /// Batches to measure of each loading mode.
    #[arg(long, default_value = "20000")]
    batches: NonZero<usize>,
    /// Training steps of char-nano to measure.
    #[arg(long, default_value = "100")]
    steps: NonZero<usize>,
}

const FIELDS: [Field; 1] = [Field("tokens_per_second", "", Unit::TokensPerSecond)];

/// Documents per dataset, of 100 to 4,100 bytes each: about 4 MB, which stay in the page cache after
/// preparation.
const DOCUMENTS: usize = 2000;

/// The required speed of a loading thread relative to the trainer.
const GOAL: f64 = 50.0;

/// Builds, prepares two datasets and measures.
pub fn run(args: &LoaderArgs, session: &mut Session) -> Result<(), Error> {
    build(&args.backend)?;
    let path = |program: Program| program.path(&session.metadata);
    let (emberlm, bench) = (path(Program::Emberlm), path(Program::Bench));
    let folder = session.folder("bench-loader")?;
    for name in ["a", "b"] {
        prepare(emberlm.as_std_path(), &folder, name)?;
    }
    let training = Training::new("char-nano", [args.steps.get(), 12, 64]);
    let mut contenders = vec![contender("training of char-nano", &FIELDS, || {
        let mut command = Command::new(&bench);
        training.ours(&mut command, &args.backend);
        command
    })];
    for (name, data, documents) in [
        ("stream", &["a"][..], "stream"),
        ("isolated", &["a"], "isolated"),
        ("mix", &["a=0.7", "b=0.3"], "stream"),
    ] {
        for workers in ["0", "1", "2"] {
            let (bench, folder) = (&bench, &folder);
            let name = format!("{name}, {workers} workers");
            contenders.push(contender(&name, &FIELDS, move || {
                let mut command = Command::new(bench);
                command.current_dir(folder).arg("bench-loader");
                command.args(["--backend", &args.backend]);
                command.args(["--batches", &args.batches.to_string()]);
                command.args(["--documents", documents, "--workers", workers]);
                command.arg("--data").args(data);
                command
            }));
        }
    }
    let rounds = session.rounds(1);
    let made = session.compare("12 × 64", Ratio::OtherToFirst, rounds, contenders)?;
    let others = made.programs.iter().skip(1);
    let ratios = others.filter_map(|it| made.ratio_of(it, "tokens/s"));
    let least = ratios.fold(f64::INFINITY, f64::min);
    let what = "the slowest loader relative to the training";
    session.record.goal(what, least, GOAL);
    Ok(())
}

/// Prepares a dataset of many documents with arbitrary words.
fn prepare(binary: &Path, folder: &Path, name: &str) -> Result<(), Error> {
    let texts = folder.join(format!("texts-{name}"));
    let write = || {
        fs::create_dir_all(&texts)?;
        for i in 0..DOCUMENTS {
            let text = format!("{name} {i} and so on, ").repeat(300);
            let len = 100 + i * 7919 % 4001;
            fs::write(
                texts.join(format!("{i:05}.txt")),
                &text[..len.min(text.len())],
            )?;
        }
        Ok(())
    };
    write().map_err(Error::write(&texts))?;
    let mut command = Command::new(binary);
    command.arg("prepare").arg(&texts);
    command.args(["--tokenizer", "byte", "--force", "--out"]);
    workspace::stdout(command.arg(folder.join(name))).map(drop)
}

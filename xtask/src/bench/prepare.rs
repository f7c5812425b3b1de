//! `cargo xtask bench prepare`: converts text to shards, compared with tiktoken-rs on one thread and Python's
//! tiktoken on the same number of threads.

mod corpus;
mod report;
mod run;

use std::{
    fs,
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
};

use cargo_metadata::Metadata;

use self::corpus::{Corpus, Form};
use self::report::{PrepareReport, Round};
use self::run::Run;
use super::programs::{Program, build};
use super::report::Report;
use crate::{error::Error, workspace};

/// Maximum size of the peers' text. Their speed does not depend on the size, but their run time does.
const PEER_BYTES: u64 = 64 << 20;

/// Arguments of `cargo xtask bench prepare`.
#[derive(Debug, clap::Args)]
pub struct PrepareArgs {
    /// The size of the corpus, which is prepared once as JSON lines and once as one text: a number with KiB,
    /// MiB or GiB.
    #[arg(long, default_value = "2GiB", value_parser = size)]
    size: u64,
    /// The tokenizer.
    #[arg(long, value_enum, default_value = "gpt2")]
    tokenizer: Vocabulary,
    /// Tokenizer threads of emberlm and Python [default: one per core].
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// The text that the corpus repeats [default: this project's documentation and source].
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// A Python interpreter with tiktoken, whose runs are interleaved with ours.
    #[arg(long, value_name = "PYTHON")]
    peer: Option<PathBuf>,
    /// Runs of each program; medians are printed.
    #[arg(long, default_value = "3")]
    rounds: NonZero<usize>,
    /// Keep the corpus and the dataset prepared from the single text.
    #[arg(long)]
    keep: bool,
    /// Print one line of JSON instead of the table.
    #[arg(long)]
    json: bool,
}

/// The vocabularies that all programs support.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Vocabulary {
    Gpt2,
    P50k,
    Cl100k,
    O200k,
}

impl Vocabulary {
    /// The name in all programs.
    fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::P50k => "p50k",
            Self::Cl100k => "cl100k",
            Self::O200k => "o200k",
        }
    }
}

/// Parses a size such as `2GiB`.
fn size(text: &str) -> Result<u64, String> {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = units
        .into_iter()
        .find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, bytes)));
    let (number, unit) = unit.ok_or("must end in KiB, MiB or GiB")?;
    let number: u64 = number.trim().parse().map_err(|_| "must be a number")?;
    let bytes = number.checked_mul(unit).filter(|&bytes| bytes > 0);
    bytes.ok_or_else(|| "must be above 0".to_owned())
}

/// Creates the corpus, builds, measures and prints.
pub fn run(args: &PrepareArgs) -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    build("flex")?;
    let folder = metadata.target_directory.join("bench-prepare");
    let folder = folder.as_std_path();
    let corpus = Corpus::make(args.text.as_deref(), args.size, &metadata, folder)?;
    let programs = Programs {
        args,
        metadata: &metadata,
        corpus: &corpus,
        folder,
        threads: threads(args),
    };
    let report = programs.measure();
    match args.keep {
        true => eprintln!("the corpus and the dataset are in {}", folder.display()),
        false => remove(folder)?,
    }
    let report = report?;
    report.print(args.json);
    Ok(())
}

fn remove(folder: &Path) -> Result<(), Error> {
    fs::remove_dir_all(folder).map_err(|source| Error::Write {
        path: folder.to_owned(),
        source,
    })
}

fn threads(args: &PrepareArgs) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    args.threads.map_or_else(cores, NonZero::get)
}

/// The command lines of all programs.
struct Programs<'a> {
    args: &'a PrepareArgs,
    metadata: &'a Metadata,
    corpus: &'a Corpus,
    folder: &'a Path,
    threads: usize,
}

impl Programs<'_> {
    fn measure(&self) -> Result<PrepareReport, Error> {
        let rounds = self.args.rounds.get();
        let round = |number| {
            eprintln!("round {number} of {rounds}");
            self.round()
        };
        let first = round(1)?;
        let rest = (2..=rounds).map(round).collect::<Result<_, _>>()?;
        Ok(PrepareReport::new(self.threads, first, rest))
    }

    fn round(&self) -> Result<Round, Error> {
        let take = |command: &mut Command, form| -> Result<Run, Error> {
            let run = Run::take(command, form)?;
            let (name, form, speed) = (&run.program, form.name(), run.speed());
            eprintln!("  {name}, {form}: {speed:.2} MB/s");
            Ok(run)
        };
        let python = |python| take(&mut self.python(python)?, Form::Records);
        Ok(Round {
            ours: [
                take(&mut self.ours(Form::Records), Form::Records)?,
                take(&mut self.ours(Form::Text), Form::Text)?,
            ],
            single: take(&mut self.tiktoken_rs(), Form::Records)?,
            python: self.args.peer.as_deref().map(python).transpose()?,
        })
    }

    fn binary(&self) -> Command {
        let mut command = Command::new(Program::Bench.path(self.metadata));
        let tokenizer = self.args.tokenizer.name();
        command.args(["bench-prepare", "--tokenizer", tokenizer]);
        command
            .arg("--out")
            .arg(self.folder.join("out"))
            .arg("--force");
        command
    }

    fn ours(&self, form: Form) -> Command {
        let mut command = self.binary();
        command
            .args(["--threads", &self.threads.to_string()])
            .arg(self.corpus.path(form));
        command
    }

    fn tiktoken_rs(&self) -> Command {
        let mut command = self.binary();
        command.args(["--tiktoken", "--limit", &PEER_BYTES.to_string()]);
        command.arg(self.corpus.path(Form::Records));
        command
    }

    fn python(&self, python: &Path) -> Result<Command, Error> {
        let mut command = Command::new(python);
        let root = &self.metadata.workspace_root;
        command
            .arg(root.join("xtask/peers/tiktoken_prepare.py"))
            .arg(crate::fixtures::vocabularies()?)
            .arg(self.corpus.path(Form::Records))
            .args(["--tokenizer", self.args.tokenizer.name()])
            .args(["--threads", &self.threads.to_string()])
            .args(["--limit", &PEER_BYTES.to_string()]);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("2GiB"), Ok(2 << 30));
        assert_eq!(size("3 KiB"), Ok(3072));
        for wrong in ["2", "GiB", "0MiB", "-1KiB", "99999999999999GiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn peer_files_exist() {
        let root = workspace::metadata().unwrap().workspace_root;
        assert!(root.join("xtask/peers/tiktoken_prepare.py").is_file());
    }
}

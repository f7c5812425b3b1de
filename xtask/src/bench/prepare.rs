//! `cargo xtask bench prepare`: text to shards, beside tiktoken-rs on one thread and Python's tiktoken on as many.

mod corpus;

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
};

use cargo_metadata::Metadata;
use serde_json::{Value, json};

use self::corpus::Corpus;
use super::train::build;
use crate::{error::Error, workspace};

/// What the peers tokenize at most: their speed does not depend on how much there is, but their time does.
const PEER_BYTES: u64 = 64 << 20;

/// Arguments of `cargo xtask bench prepare`.
#[derive(Debug, clap::Args)]
pub struct PrepareArgs {
    /// How large the corpus is, once as JSON lines and once as one text: a number with KiB, MiB or GiB.
    #[arg(long, default_value = "2GiB", value_parser = size)]
    size: u64,
    /// The tokenizer: gpt2, cl100k or o200k.
    #[arg(long, default_value = "gpt2")]
    tokenizer: String,
    /// Threads that tokenize, ours and Python's; by default one per core.
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// The text that the corpus repeats; by default this project's own documentation and source.
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// A Python interpreter with tiktoken, to run it in turns with ours.
    #[arg(long, value_name = "PYTHON")]
    peer: Option<PathBuf>,
    /// Runs of each program, of which the medians are printed.
    #[arg(long, default_value = "3")]
    rounds: NonZero<usize>,
    /// Print one line of JSON in place of the table.
    #[arg(long)]
    json: bool,
}

/// A size such as `2GiB`.
fn size(text: &str) -> Result<u64, String> {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = units
        .into_iter()
        .find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, bytes)));
    let (number, unit) = unit.ok_or("it must end in KiB, MiB or GiB")?;
    let number: u64 = number.trim().parse().map_err(|_| "it must be a number")?;
    let bytes = number.checked_mul(unit).filter(|&bytes| bytes > 0);
    bytes.ok_or_else(|| "it must be above 0".to_owned())
}

/// One run of a program.
#[derive(Debug, Clone, PartialEq)]
struct Run {
    program: String,
    /// What it was given.
    corpus: &'static str,
    threads: u64,
    bytes: u64,
    tokens: u64,
    seconds: f64,
    peak_rss_mib: u64,
}

impl Run {
    /// Runs a program that ends by printing its figures as a line of JSON.
    fn take(command: &mut Command, corpus: &'static str) -> Result<Self, Error> {
        let output = workspace::stdout(command)?;
        Self::parse(&output, corpus).map_err(|field| Error::Measurement {
            command: workspace::shown(command),
            field,
            output: output.trim().to_owned(),
        })
    }

    /// Reads the last line; the error is the first field that is missing or of another kind.
    fn parse(output: &str, corpus: &'static str) -> Result<Self, &'static str> {
        let line = output.trim().lines().next_back().unwrap_or_default();
        let fields: Value = serde_json::from_str(line).map_err(|_| "program")?;
        let whole = |name| fields[name].as_u64().ok_or(name);
        Ok(Self {
            program: fields["program"].as_str().ok_or("program")?.to_owned(),
            corpus,
            threads: whole("threads")?,
            bytes: whole("bytes")?,
            tokens: whole("tokens")?,
            seconds: fields["seconds"].as_f64().ok_or("seconds")?,
            peak_rss_mib: whole("peak_rss_mib")?,
        })
    }

    /// Millions of bytes of text per second.
    fn speed(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds
    }

    fn to_json(&self) -> Value {
        json!({
            "program": self.program,
            "corpus": self.corpus,
            "threads": self.threads,
            "bytes": self.bytes,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "mb_per_second": self.speed(),
            "tokens_per_second": self.tokens as f64 / self.seconds,
            "peak_rss_mib": self.peak_rss_mib,
        })
    }
}

/// The medians: ours on records and on one text, tiktoken-rs, and Python's tiktoken where it ran.
struct Report {
    cores: usize,
    rounds: usize,
    records: Run,
    text: Run,
    single: Run,
    python: Option<Run>,
}

/// Makes the corpus, builds, measures and prints.
pub fn run(args: &PrepareArgs) -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    let folder = metadata.target_directory.join("bench-prepare");
    let folder = folder.as_std_path();
    let corpus = Corpus::make(args.text.as_deref(), args.size, &metadata, folder)?;
    build("flex")?;
    let programs = Programs {
        args,
        metadata: &metadata,
        corpus: &corpus,
        folder,
        threads: threads(args),
    };
    let report = programs.measure()?;
    match args.json {
        true => println!("{}", report.to_json()),
        false => print!("{}", report.to_table()),
    }
    Ok(())
}

fn threads(args: &PrepareArgs) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    args.threads.map_or_else(cores, NonZero::get)
}

/// How each program is called.
struct Programs<'a> {
    args: &'a PrepareArgs,
    metadata: &'a Metadata,
    corpus: &'a Corpus,
    folder: &'a Path,
    threads: usize,
}

impl Programs<'_> {
    /// All in turns, so that a change in the machine's load meets all.
    fn measure(&self) -> Result<Report, Error> {
        let rounds = self.args.rounds.get();
        let mut all: Vec<Vec<Run>> = Vec::new();
        for _ in 0..rounds {
            let mut round = vec![
                Run::take(&mut self.ours(&self.corpus.records), "JSON lines")?,
                Run::take(&mut self.ours(&self.corpus.text), "one text")?,
                Run::take(&mut self.tiktoken_rs(), "JSON lines")?,
            ];
            if let Some(python) = &self.args.peer {
                round.push(Run::take(&mut self.python(python)?, "JSON lines")?);
            }
            all.push(round);
        }
        let median = |program: usize| {
            let mut runs: Vec<&Run> = all.iter().filter_map(|round| round.get(program)).collect();
            runs.sort_by(|a, b| a.speed().total_cmp(&b.speed()));
            runs.get(runs.len().saturating_sub(1) / 2)
                .map(|&run| run.clone())
        };
        let missing = || Error::Measurement {
            command: "bench prepare".to_owned(),
            field: "program",
            output: String::new(),
        };
        Ok(Report {
            cores: self.threads,
            rounds,
            records: median(0).ok_or_else(missing)?,
            text: median(1).ok_or_else(missing)?,
            single: median(2).ok_or_else(missing)?,
            python: median(3),
        })
    }

    fn binary(&self) -> Command {
        let binary = format!("emberlm{}", std::env::consts::EXE_SUFFIX);
        let mut command = Command::new(self.metadata.target_directory.join("release").join(binary));
        command.args(["bench-prepare", "--tokenizer", &self.args.tokenizer]);
        command
            .arg("--out")
            .arg(self.folder.join("out"))
            .arg("--force");
        command
    }

    fn ours(&self, input: &Path) -> Command {
        let mut command = self.binary();
        command
            .args(["--threads", &self.threads.to_string()])
            .arg(input);
        command
    }

    fn tiktoken_rs(&self) -> Command {
        let mut command = self.binary();
        command.args(["--tiktoken", "--limit", &PEER_BYTES.to_string()]);
        command.arg(&self.corpus.records);
        command
    }

    fn python(&self, python: &Path) -> Result<Command, Error> {
        let mut command = Command::new(python);
        let root = &self.metadata.workspace_root;
        command
            .arg(root.join("xtask/peers/tiktoken_prepare.py"))
            .arg(crate::fixtures::vocabularies()?)
            .arg(&self.corpus.records)
            .args(["--tokenizer", &self.args.tokenizer])
            .args(["--threads", &self.threads.to_string()])
            .args(["--limit", &PEER_BYTES.to_string()]);
        Ok(command)
    }
}

impl Report {
    fn ratios(&self) -> (f64, Option<f64>) {
        let ours = self.records.speed();
        (
            ours / (self.cores as f64 * self.single.speed()),
            self.python.as_ref().map(|python| ours / python.speed()),
        )
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        [&self.records, &self.text, &self.single]
            .into_iter()
            .chain(&self.python)
    }

    fn to_json(&self) -> Value {
        let (of_single, of_python) = self.ratios();
        json!({
            "rounds": self.rounds,
            "runs": self.runs().map(Run::to_json).collect::<Vec<_>>(),
            "ratio_to_threads_times_tiktoken_rs": of_single,
            "ratio_to_python": of_python,
        })
    }

    fn to_table(&self) -> String {
        let mut text = format!(
            "{:<36} {:<10} {:>7} {:>9} {:>8} {:>12} {:>9}\n",
            "program", "corpus", "threads", "MB", "MB/s", "tokens/s", "peak MiB"
        );
        for run in self.runs() {
            text += &format!(
                "{:<36} {:<10} {:>7} {:>9.1} {:>8.2} {:>12.0} {:>9}\n",
                run.program,
                run.corpus,
                run.threads,
                run.bytes as f64 / 1e6,
                run.speed(),
                run.tokens as f64 / run.seconds,
                run.peak_rss_mib
            );
        }
        let (of_single, of_python) = self.ratios();
        let (threads, rounds) = (self.cores, self.rounds);
        text += &format!(
            "prepare on JSON lines: {of_single:.2} x {threads} threads x tiktoken-rs, medians of {rounds}\n"
        );
        if let Some(ratio) = of_python {
            text += &format!("prepare on JSON lines: {ratio:.2} x Python's tiktoken\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(bytes: u64, seconds: f64) -> Run {
        let line = json!({
            "program": "p", "threads": 2, "bytes": bytes, "tokens": 10, "seconds": seconds, "peak_rss_mib": 5,
        });
        Run::parse(&format!("warming up\n{line}\n"), "one text").unwrap()
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("2GiB"), Ok(2 << 30));
        assert_eq!(size("3 KiB"), Ok(3072));
        for wrong in ["2", "GiB", "0MiB", "-1KiB", "99999999999999GiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ratios_are_of_speeds() {
        let report = Report {
            cores: 2,
            rounds: 1,
            records: example(120_000_000, 1.0),
            text: example(1, 1.0),
            single: example(30_000_000, 1.0),
            python: Some(example(80_000_000, 2.0)),
        };
        assert_eq!(report.ratios(), (2.0, Some(3.0)));
        let table = report.to_table();
        assert!(table.contains("2.00 x 2 threads x tiktoken-rs"), "{table}");
        assert!(table.ends_with("3.00 x Python's tiktoken\n"), "{table}");
        assert_eq!(report.to_json()["runs"][0]["mb_per_second"], 120.0);
    }

    #[test]
    fn a_missing_figure_is_named() {
        assert_eq!(Run::parse("", "one text"), Err("program"));
        let line = r#"{"program": "p", "threads": 2}"#;
        assert_eq!(Run::parse(line, "one text"), Err("bytes"));
    }

    #[test]
    fn the_peer_is_where_it_is_looked_for() {
        let root = workspace::metadata().unwrap().workspace_root;
        assert!(root.join("xtask/peers/tiktoken_prepare.py").is_file());
    }
}

//! `cargo xtask bench prepare`: converts text to shards, compared with tiktoken-rs on one thread and Python's
//! tiktoken on the same number of threads.

mod corpus;

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
};

use emberlm_system::measure::{Comparison, Contender, Metric, Ratio, Record, Unit, median};

use self::corpus::{Corpus, Form};
use super::programs::{Field, Program, build, last_json, sample};
use super::session::{Session, cores, remove};
use crate::error::Error;

/// The required speed per thread relative to tiktoken-rs on one thread.
const TIKTOKEN_RS_GOAL: f64 = 0.9;

/// The required speed relative to Python's tiktoken.
const PYTHON_GOAL: f64 = 3.0;

/// The limit of our process's memory in MiB, for a corpus of any length.
const MEMORY_GOAL: f64 = 300.0;

const TIKTOKEN_RS: &str = "tiktoken-rs";
const PYTHON: &str = "Python's tiktoken";

const FIELDS: [Field; 3] = [
    Field("threads", "threads", Unit::Count),
    Field("peak_rss_mib", "peak", Unit::Bytes),
    Field("bytes", "text", Unit::Bytes),
];

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
    #[arg(long, value_parser = ["gpt2", "p50k", "cl100k", "o200k"], default_value = "gpt2")]
    tokenizer: String,
    /// Tokenizer threads of emberlm and Python [default: one per core].
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// The text that the corpus repeats [default: this project's documentation and source].
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// A Python interpreter with tiktoken, whose runs are interleaved with ours.
    #[arg(long, value_name = "PYTHON")]
    peer: Option<PathBuf>,
    /// Keep the corpus and the dataset prepared from the single text.
    #[arg(long)]
    keep: bool,
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

/// Creates the corpus, builds and measures.
pub fn run(args: &PrepareArgs, session: &mut Session) -> Result<(), Error> {
    build("flex")?;
    let folder = session.folder("bench-prepare")?;
    let corpus = Corpus::make(args.text.as_deref(), args.size, &session.root(), &folder)?;
    let programs = Programs {
        args,
        binary: Program::Bench.path(&session.metadata).into(),
        script: session.root().join("xtask/peers/tiktoken_prepare.py"),
        corpus: &corpus,
        folder: &folder,
        threads: args.threads.map_or_else(cores, NonZero::get),
    };
    let measured = programs.measure(session);
    match args.keep {
        true => eprintln!("the corpus and the dataset are in {}", folder.display()),
        false => remove(&folder)?,
    }
    measured
}

/// The command lines of all programs.
struct Programs<'a> {
    args: &'a PrepareArgs,
    binary: PathBuf,
    script: PathBuf,
    corpus: &'a Corpus,
    folder: &'a Path,
    threads: usize,
}

impl Programs<'_> {
    fn measure(&self, session: &mut Session) -> Result<(), Error> {
        let python = self.args.peer.as_deref();
        let vocabularies = python
            .map(|_| crate::fixtures::vocabularies())
            .transpose()?;
        let mut contenders: Vec<Contender<'_, Error>> = [Form::Records, Form::Text]
            .map(|form| contender(form.name(), move || self.ours(form)))
            .into();
        contenders.push(contender(TIKTOKEN_RS, || self.tiktoken_rs()));
        if let Some((python, vocabularies)) = python.zip(vocabularies.as_ref()) {
            let command = move || self.python(python, vocabularies.as_ref());
            contenders.push(contender(PYTHON, command));
        }
        let rounds = session.rounds(3);
        let workload = self.args.tokenizer.clone();
        let made = session.compare(workload, Ratio::FirstToOther, rounds, contenders)?;
        let made = made.clone();
        conclude(&mut session.record, &made, self.threads);
        Ok(())
    }

    fn binary(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(["bench-prepare", "--tokenizer", &self.args.tokenizer]);
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

    fn python(&self, python: &Path, vocabularies: &Path) -> Command {
        let mut command = Command::new(python);
        command.arg(&self.script).arg(vocabularies);
        command.arg(self.corpus.path(Form::Records));
        command.args(["--tokenizer", &self.args.tokenizer]);
        command.args(["--threads", &self.threads.to_string()]);
        command.args(["--limit", &PEER_BYTES.to_string()]);
        command
    }
}

/// A program, which prints the bytes and tokens of the text and the seconds.
fn contender<'a>(name: &str, mut command: impl FnMut() -> Command + 'a) -> Contender<'a, Error> {
    Contender::new(name, move || {
        let output = last_json(&mut command(), "seconds")?;
        let mut sample = sample(&output, &FIELDS);
        let per_second = |key| {
            let amount: Option<f64> = serde_json::Value::as_f64(&output[key]);
            amount.unwrap_or(f64::NAN) / output["seconds"].as_f64().unwrap_or(f64::NAN)
        };
        let text = Metric::new("", Unit::TextBytesPerSecond);
        let tokens = Metric::new("", Unit::TokensPerSecond);
        let speeds = [(text, per_second("bytes")), (tokens, per_second("tokens"))];
        sample.values.splice(0..0, speeds);
        Ok(sample)
    })
}

/// Adds the goals of speed and of memory to the record.
fn conclude(record: &mut Record, made: &Comparison, threads: usize) {
    for form in [Form::Records.name(), Form::Text.name()] {
        if let Some(ratio) = ratio(made, form, TIKTOKEN_RS) {
            let what = format!("{form}, speed per thread relative to {TIKTOKEN_RS}");
            record.goal(&what, ratio / threads as f64, TIKTOKEN_RS_GOAL);
        }
        if let Some(ratio) = ratio(made, form, PYTHON) {
            let what = format!("{form}, speed relative to {PYTHON}");
            record.goal(&what, ratio, PYTHON_GOAL);
        }
    }
    let ours = made.programs.iter().take(2);
    let peaks = ours.filter_map(|it| it.figure("peak, MiB"));
    let peak = peaks.flat_map(|it| it.values.iter().copied());
    let peak = peak.fold(0.0, f64::max);
    let verdict = match peak < MEMORY_GOAL * f64::from(1 << 20) {
        true => "below",
        false => "NOT BELOW",
    };
    let shown = Unit::Bytes.shown(peak);
    record.notes.push(format!(
        "highest peak of prepare: {shown}, {verdict} the limit of {MEMORY_GOAL} MiB"
    ));
}

/// The median of the rounds' ratios of two programs' speeds.
fn ratio(made: &Comparison, above: &str, below: &str) -> Option<f64> {
    let speeds = |name| Some(&made.program(name)?.figure("MB/s")?.values);
    let rounds = speeds(above)?.iter().zip(speeds(below)?);
    Some(median(rounds.map(|(above, below)| above / below).collect()))
}

#[cfg(test)]
mod tests {
    use emberlm_system::measure::Sample;

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
    fn goals_compare_runs_of_the_same_round() {
        let mut made = Comparison::new("gpt2", Ratio::FirstToOther);
        // The machine is slow in the second round.
        for (speed, ours) in [(1.0, 120e6), (0.5, 120e6), (0.5, 600e6), (1.0, 120e6)] {
            let mut add = |name, bytes| {
                let text = (Metric::new("", Unit::TextBytesPerSecond), speed * bytes);
                let peak = (Metric::new("peak", Unit::Bytes), 5.0 * f64::from(1 << 20));
                let values = vec![text, peak];
                let version = None;
                made.add(name, Sample { version, values });
            };
            add(Form::Records.name(), ours);
            add(Form::Text.name(), ours / 2.0);
            add(TIKTOKEN_RS, 30e6);
            add(PYTHON, 40e6);
        }
        let mut record = Record::new("bench prepare", "abc");
        conclude(&mut record, &made, 2);
        let expected = [
            "prepare, JSON lines, speed per thread relative to tiktoken-rs: 2.00, at least the goal of 0.9",
            "prepare, JSON lines, speed relative to Python's tiktoken: 3.00, at least the goal of 3",
            "prepare, one text, speed per thread relative to tiktoken-rs: 1.00, at least the goal of 0.9",
            "prepare, one text, speed relative to Python's tiktoken: 1.50, BELOW the goal of 3",
            "highest peak of prepare: 5.0 MiB, below the limit of 300 MiB",
        ];
        assert_eq!(record.notes, expected);
    }
}

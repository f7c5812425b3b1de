//! `cargo xtask bench char-nano`: complete runs of nanoGPT's character model on Tiny Shakespeare with
//! evaluations and checkpoints, interleaved with nanoGPT's own runs.
//!
//! Both programs train the same number of steps of 12 × 64 characters with the same learning rates, evaluate
//! eight times on the same number of tokens, and write a checkpoint after each evaluation. Times are those of
//! the whole processes, including Python's start. Losses are computed afterwards on the whole validation split
//! in windows of 64.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use emberlm_system::measure::{Contender, Metric, Ratio, Sample, Unit};

use super::programs::{OursArgs, Program, PythonArgs, last_json};
use super::session::{Session, remove};
use crate::{error::Error, workspace};

/// Evaluations per run.
const EVALUATIONS: usize = 8;
/// Batches of 12 × 64 tokens per split in an evaluation of nanoGPT.
const EVALUATION_BATCHES: usize = 20;
/// Tokens of an evaluation. nanoGPT evaluates both splits; emberlm evaluates the same number of tokens of one.
const EVALUATION_TOKENS: usize = 2 * EVALUATION_BATCHES * 12 * 64;

/// nanoGPT's script that prepares its data, and the text, which the script downloads if it does not exist.
const PREPARE: &str = "data/shakespeare_char/prepare.py";
const TEXT: &str = "data/shakespeare_char/input.txt";

/// The settings for CPUs in nanoGPT's README, without the length of the run.
const SETTINGS: [&str; 12] = [
    "config/train_shakespeare_char.py",
    "--device=cpu",
    "--compile=False",
    "--log_interval=1",
    "--block_size=64",
    "--batch_size=12",
    "--n_layer=4",
    "--n_head=4",
    "--n_embd=128",
    "--dropout=0.0",
    // Writes a checkpoint at each evaluation, as our run does, instead of only at a lower loss.
    "--always_save_checkpoint=True",
    "--wandb_log=False",
];

/// Arguments of `cargo xtask bench char-nano`.
#[derive(Debug, clap::Args)]
pub struct CharNanoArgs {
    /// A checkout of nanoGPT. Its own script prepares Tiny Shakespeare in it.
    #[arg(long, value_name = "PATH")]
    nanogpt: PathBuf,
    /// Steps per run, a multiple of 8.
    #[arg(long, default_value_t = 2000, value_parser = steps)]
    steps: usize,
    /// The seed of emberlm's initial weights and data order; nanoGPT's are fixed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    ours: OursArgs,
    #[command(flatten)]
    python: PythonArgs,
}

fn steps(text: &str) -> Result<usize, String> {
    let steps: usize = text.parse().map_err(|_| "must be a number")?;
    match steps > 0 && steps.is_multiple_of(EVALUATIONS) {
        true => Ok(steps),
        false => Err(format!("must be a multiple of {EVALUATIONS}")),
    }
}

/// Prepares the data for both programs, builds and measures.
pub fn run(args: &CharNanoArgs, session: &mut Session) -> Result<(), Error> {
    let python = args.python.ready(&session.metadata)?;
    let folder = session.folder("bench-char-nano")?;
    let programs = Programs {
        args,
        binary: args.ours.ready(Program::Emberlm, session)?,
        python,
        data: folder.join("data"),
        run: folder.join("run"),
        out: folder.join("nanogpt"),
        log: folder.join("log.txt"),
        loss: session.root().join("xtask/peers/nanogpt_loss.py"),
    };
    programs.prepare()?;
    let contenders = vec![
        Contender::new("emberlm", || programs.ours()),
        Contender::new("nanoGPT", || programs.nanogpt()),
    ];
    let workload = format!("char-nano on Tiny Shakespeare, {} steps", args.steps);
    let rounds = session.rounds(3);
    session.compare(workload, Ratio::FirstToOther, rounds, contenders)?;
    Ok(())
}

/// The command lines of both programs, and their paths.
struct Programs<'a> {
    args: &'a CharNanoArgs,
    binary: PathBuf,
    python: PathBuf,
    /// emberlm's dataset.
    data: PathBuf,
    /// emberlm's run folder.
    run: PathBuf,
    /// nanoGPT's folder of checkpoints.
    out: PathBuf,
    /// The script that computes nanoGPT's loss.
    loss: PathBuf,
    /// The output of the latest run.
    log: PathBuf,
}

impl Programs<'_> {
    fn prepare(&self) -> Result<(), Error> {
        let mut command = self.in_checkout(PREPARE);
        workspace::success(command.stdout(Stdio::null()))?;
        let mut command = Command::new(&self.binary);
        command
            .arg("prepare")
            .arg(self.args.nanogpt.join(TEXT))
            .arg("--out")
            .arg(&self.data);
        command.args(["--tokenizer", "char", "--force"]);
        workspace::stdout(&mut command).map(|_| ())
    }

    fn ours(&self) -> Result<Sample, Error> {
        remove(&self.run)?;
        let seconds = timed(&mut self.train(), &self.log)?;
        let mut command = Command::new(&self.binary);
        command
            .arg("eval")
            .arg(&self.run)
            .arg("--data")
            .arg(&self.data);
        command.args(["--backend", &self.args.ours.backend, "--json"]);
        completed(seconds, &mut command)
    }

    fn train(&self) -> Command {
        let Self { args, .. } = self;
        let interval = args.steps / EVALUATIONS;
        let mut command = Command::new(&self.binary);
        command.args(["train", "--preset", "char-nano", "--renderer", "plain"]);
        command.args(["--backend", &args.ours.backend]);
        command.arg("--data").arg(&self.data);
        command.arg("--out").arg(&self.run);
        command.args(["--steps", &args.steps.to_string()]);
        command.args(["--seed", &args.seed.to_string()]);
        for setting in [
            format!("train.evaluation.interval={interval}"),
            format!("train.evaluation.tokens={EVALUATION_TOKENS}"),
            format!("train.checkpoints.interval={interval}"),
            // nanoGPT prints every step and generates no samples.
            "train.log_interval=1".to_owned(),
            "train.evaluation.sample_tokens=0".to_owned(),
        ] {
            command.args(["--set", &setting]);
        }
        command
    }

    /// One of nanoGPT's scripts. All expect the checkout as the working directory.
    fn in_checkout(&self, script: &str) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(script).current_dir(&self.args.nanogpt);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn nanogpt(&self) -> Result<Sample, Error> {
        let seconds = timed(&mut self.train_nanogpt(), &self.log)?;
        let mut command = Command::new(&self.python);
        command
            .arg(&self.loss)
            .arg(&self.args.nanogpt)
            .arg(&self.out);
        completed(seconds, &mut command)
    }

    fn train_nanogpt(&self) -> Command {
        let (steps, interval) = (self.args.steps, self.args.steps / EVALUATIONS);
        let mut train = self.in_checkout("train.py");
        train.args(SETTINGS);
        train.arg(format!("--out_dir={}", self.out.display()));
        train.arg(format!("--max_iters={steps}"));
        train.arg(format!("--lr_decay_iters={steps}"));
        train.arg(format!("--eval_interval={interval}"));
        train.arg(format!("--eval_iters={EVALUATION_BATCHES}"));
        train
    }
}

/// Runs a program with its output redirected to `log`, and returns the seconds. The log is printed if the
/// program fails.
fn timed(command: &mut Command, log: &Path) -> Result<f64, Error> {
    let file = fs::File::create(log).map_err(Error::write(log))?;
    command
        .stderr(file.try_clone().map_err(Error::write(log))?)
        .stdout(file);
    let started = Instant::now();
    let result = workspace::success(command);
    let seconds = started.elapsed().as_secs_f64();
    if result.is_err() {
        eprint!("{}", fs::read_to_string(log).unwrap_or_default());
    }
    result.map(|()| seconds)
}

/// A completed run, whose loss a command computes.
fn completed(seconds: f64, evaluate: &mut Command) -> Result<Sample, Error> {
    let evaluated = last_json(evaluate, "loss")?;
    let loss = evaluated["loss"].as_f64().unwrap_or(f64::NAN);
    Ok(Sample {
        version: None,
        values: vec![
            (Metric::new("", Unit::Seconds), seconds),
            (Metric::new("validation loss", Unit::Nats), loss),
        ],
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Wrapper {
        #[command(flatten)]
        char_nano: CharNanoArgs,
    }

    #[test]
    fn steps_are_a_multiple_of_the_evaluations() {
        assert_eq!(steps("2000"), Ok(2000));
        for wrong in ["0", "2001", "many"] {
            assert!(steps(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn both_programs_evaluate_and_save_equally_often() {
        let typed = ["char-nano", "--nanogpt", "nanoGPT", "--steps", "800"];
        let args = Wrapper::try_parse_from(typed).unwrap_or_else(|error| panic!("{error}"));
        let programs = Programs {
            args: &args.char_nano,
            binary: "emberlm".into(),
            python: "python3".into(),
            data: "data".into(),
            run: "run".into(),
            out: "out".into(),
            log: "log.txt".into(),
            loss: "nanogpt_loss.py".into(),
        };
        let line = workspace::shown(&programs.train());
        for setting in [
            "evaluation.interval=100",
            "evaluation.tokens=30720",
            "checkpoints.interval=100",
        ] {
            assert!(line.contains(&format!("--set train.{setting}")), "{line}");
        }
        assert!(line.contains("--steps 800 --seed 1"), "{line}");
        let line = workspace::shown(&programs.train_nanogpt());
        let ends = "--out_dir=out --max_iters=800 --lr_decay_iters=800 --eval_interval=100 --eval_iters=20";
        assert!(line.ends_with(ends), "{line}");
    }
}

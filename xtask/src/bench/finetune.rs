//! `cargo xtask bench finetune`: steps of LoRA on a model, interleaved with PEFT on PyTorch.

use std::{
    fs,
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
};

use emberlm_system::measure::{Contender, Metric, Ratio, Sample, Unit, median};
use serde_json::Value;

use super::peak_memory;
use super::programs::{OursArgs, Program, PythonArgs};
use super::session::{Session, remove};
use crate::{error::Error, python::absolute, workspace};

/// Arguments of `cargo xtask bench finetune`.
#[derive(Debug, clap::Args)]
pub struct FinetuneArgs {
    /// A Hugging Face directory of a decoder.
    model: PathBuf,
    /// Sequences per step, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    batch: Vec<NonZero<usize>>,
    /// Tokens per sequence.
    #[arg(long, default_value = "256")]
    seq_len: NonZero<usize>,
    /// The rank of the adapter.
    #[arg(long, default_value = "8")]
    rank: NonZero<usize>,
    /// Steps of a run; the first is not measured.
    #[arg(long, default_value = "6")]
    steps: NonZero<usize>,
    /// Formats of the frozen weights here, separated by commas. PEFT has them in f32.
    #[arg(long, value_delimiter = ',', default_value = "f32,int8")]
    weights: Vec<String>,
    #[command(flatten)]
    ours: OursArgs,
    #[command(flatten)]
    python: PythonArgs,
}

/// Builds, creates the Python environment if needed, and measures.
pub fn run(args: &FinetuneArgs, session: &mut Session) -> Result<(), Error> {
    let python = args.python.ready(&session.metadata)?;
    let folder = session.folder("bench-finetune")?;
    let script = session.root().join("xtask/peers/finetune.py");
    let programs = Programs {
        args,
        binary: args.ours.ready(Program::Emberlm, session)?,
        model: absolute(&args.model)?,
        data: folder.join("data"),
        out: folder.join("run"),
    };
    programs.prepare(&session.root())?;
    session.record.parameter("rank", args.rank);
    let rounds = session.rounds(3);
    for batch in args.batch.iter().map(|batch| batch.get()) {
        for weights in &args.weights {
            let peft = || {
                let mut command = Command::new(&python);
                command.arg(&script).arg(&programs.model);
                let numbers = [batch, args.seq_len.get(), args.rank.get(), args.steps.get()];
                command.args(numbers.map(|number| number.to_string()));
                measured(&mut command, speeds)
            };
            let contenders = vec![
                Contender::new("emberlm", || programs.ours(batch, weights)),
                Contender::new("PEFT, f32", peft),
            ];
            let workload = format!("{batch} × {}, {weights}", args.seq_len);
            session.compare(workload, Ratio::FirstToOther, rounds, contenders)?;
        }
    }
    Ok(())
}

/// Our program and its files.
struct Programs<'a> {
    args: &'a FinetuneArgs,
    binary: PathBuf,
    model: PathBuf,
    data: PathBuf,
    out: PathBuf,
}

impl Programs<'_> {
    /// Prepares this project's documentation as training data.
    fn prepare(&self, root: &Path) -> Result<(), Error> {
        remove(&self.data)?;
        let mut command = Command::new(&self.binary);
        command.arg("prepare").arg(root.join("docs/explanations"));
        command.arg("--tokenizer").arg(&self.model);
        command.arg("--out").arg(&self.data);
        workspace::stdout(&mut command).map(drop)
    }

    /// Trains with emberlm and reads the speed of each step from its log.
    fn ours(&self, batch: usize, weights: &str) -> Result<Sample, Error> {
        let args = self.args;
        remove(&self.out)?;
        let mut command = Command::new(&self.binary);
        command.args(["train", "--adapter", "lora", "--renderer", "plain"]);
        command.arg("--from").arg(&self.model);
        command.arg("--data").arg(&self.data);
        command.arg("--out").arg(&self.out);
        command.args(["--backend", &args.ours.backend]);
        let settings = [
            format!("train.adapter.rank={}", args.rank),
            format!("train.adapter.base_weights={weights}"),
            format!("train.seq_len={}", args.seq_len),
            format!("train.micro_batch={batch}"),
            format!("train.steps={}", args.steps),
            "train.accumulation=1".to_owned(),
            "train.log_interval=1".to_owned(),
            // One sequence is evaluated at the end.
            format!("train.evaluation.tokens={}", args.seq_len),
            "train.evaluation.interval=1000000".to_owned(),
            "train.evaluation.batch=1".to_owned(),
            "train.evaluation.sample_tokens=0".to_owned(),
        ];
        for setting in settings {
            command.args(["--set", &setting]);
        }
        measured(&mut command, |_| {
            speeds(&fs::read_to_string(self.out.join("events.jsonl")).unwrap_or_default())
        })
    }
}

/// Runs a program, whose measured speeds `speeds` returns.
fn measured(command: &mut Command, speeds: impl FnOnce(&str) -> Vec<f64>) -> Result<Sample, Error> {
    let (output, peak) = peak_memory::run(command)?;
    let speeds = speeds(&output);
    if speeds.is_empty() {
        return Err(Error::Measurement {
            command: workspace::shown(command),
            field: "tokens_per_second",
            output,
        });
    }
    Ok(Sample {
        version: None,
        values: vec![
            (Metric::new("", Unit::TokensPerSecond), median(speeds)),
            (Metric::new("peak", Unit::Bytes), peak),
        ],
    })
}

/// The speeds in lines of JSON, except the first.
fn speeds(lines: &str) -> Vec<f64> {
    let values = lines.lines();
    let values = values.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let speeds = values.filter_map(|value| value["tokens_per_second"].as_f64());
    speeds.skip(1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_and_other_lines_are_not_measured() {
        let log =
            "loading\n{\"tokens_per_second\": 1}\n{\"loss\": 2}\n{\"tokens_per_second\": 3.5}\n";
        assert_eq!(speeds(log), [3.5]);
    }
}

//! `cargo xtask bench finetune`: steps of LoRA on a model, interleaved with PEFT on PyTorch.

use std::{
    fs,
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use super::peak_memory;
use super::programs::{OursArgs, Program, PythonArgs};
use super::report::Column::{Number, Text};
use super::report::{Report, Table, median};
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
    /// Runs of each program; medians are printed.
    #[arg(long, default_value = "3")]
    rounds: NonZero<usize>,
    /// Print one line of JSON instead of the table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ours: OursArgs,
    #[command(flatten)]
    python: PythonArgs,
}

/// One run of one program.
#[derive(Debug, Clone, Copy)]
struct Run {
    tokens_per_second: f64,
    peak_mib: f64,
}

/// A batch size and a format with the runs of both programs: in each round ours, then PEFT's.
#[derive(Debug)]
struct Comparison {
    batch: usize,
    weights: String,
    runs: Vec<(Run, Run)>,
}

#[derive(Debug)]
struct FinetuneReport {
    seq_len: usize,
    rank: usize,
    rounds: usize,
    comparisons: Vec<Comparison>,
}

/// Builds, creates the Python environment if needed, measures and prints.
pub fn run(args: &FinetuneArgs) -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    let python = args.python.ready(&metadata)?;
    let binary = args.ours.ready(Program::Emberlm, &metadata)?;
    let folder = metadata.target_directory.join("bench-finetune");
    let folder = folder.as_std_path();
    let script = metadata.workspace_root.join("xtask/peers/finetune.py");
    let model = absolute(&args.model)?;
    let data = prepared(
        &binary,
        &model,
        metadata.workspace_root.as_std_path(),
        folder,
    )?;
    let mut comparisons = Vec::new();
    for batch in args.batch.iter().map(|batch| batch.get()) {
        for weights in &args.weights {
            let mut runs = Vec::new();
            for round in 1..=args.rounds.get() {
                eprintln!("{batch} × {}, {weights}, round {round}", args.seq_len);
                let ours = ours(args, &binary, &model, &data, folder, batch, weights)?;
                let mut command = Command::new(&python);
                command.arg(script.as_std_path()).arg(&model);
                let numbers = [batch, args.seq_len.get(), args.rank.get(), args.steps.get()];
                command.args(numbers.map(|number| number.to_string()));
                runs.push((
                    ours,
                    measured(&mut command, |output| rates(&[output.trim()]))?,
                ));
            }
            comparisons.push(Comparison {
                batch,
                weights: weights.clone(),
                runs,
            });
        }
    }
    let report = FinetuneReport {
        seq_len: args.seq_len.get(),
        rank: args.rank.get(),
        rounds: args.rounds.get(),
        comparisons,
    };
    report.print(args.json);
    Ok(())
}

/// Prepares this project's documentation as training data.
fn prepared(binary: &Path, model: &Path, root: &Path, folder: &Path) -> Result<PathBuf, Error> {
    let data = folder.join("data");
    let io = |source| Error::Write {
        path: folder.to_owned(),
        source,
    };
    fs::create_dir_all(folder).map_err(io)?;
    if data.exists() {
        fs::remove_dir_all(&data).map_err(io)?;
    }
    let mut command = Command::new(binary);
    command.arg("prepare").arg(root.join("docs/explanations"));
    command
        .arg("--tokenizer")
        .arg(model)
        .arg("--out")
        .arg(&data);
    peak_memory::run(&mut command)?;
    Ok(data)
}

/// Trains with emberlm and reads the speed of each step from its log.
fn ours(
    args: &FinetuneArgs,
    binary: &Path,
    model: &Path,
    data: &Path,
    folder: &Path,
    batch: usize,
    weights: &str,
) -> Result<Run, Error> {
    let out = folder.join("run");
    // The first run has none to remove.
    let _ = fs::remove_dir_all(&out);
    let mut command = Command::new(binary);
    command.args(["train", "--adapter", "lora", "--renderer", "plain"]);
    command.arg("--from").arg(model).arg("--data").arg(data);
    command.arg("--out").arg(&out);
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
        let log = fs::read_to_string(out.join("events.jsonl")).unwrap_or_default();
        rates(&log.lines().collect::<Vec<_>>())
    })
}

/// Runs a program, whose measured speeds `rates` returns.
fn measured(command: &mut Command, rates: impl FnOnce(&str) -> Vec<f64>) -> Result<Run, Error> {
    let (output, peak_mib) = peak_memory::run(command)?;
    let rates = rates(&output);
    if rates.is_empty() {
        return Err(Error::Measurement {
            command: workspace::shown(command),
            field: "tokens per second",
            output,
        });
    }
    let tokens_per_second = median(rates);
    eprintln!("  {tokens_per_second:.0} tokens/s, {peak_mib:.0} MiB");
    Ok(Run {
        tokens_per_second,
        peak_mib,
    })
}

/// The speeds in lines of JSON, except the first.
fn rates(lines: &[&str]) -> Vec<f64> {
    let values = lines.iter().flat_map(|line| line.lines());
    let values = values.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let rates = values.filter_map(|value| value["tokens_per_second"].as_f64());
    rates.skip(1).collect()
}

impl Comparison {
    /// Medians of a figure: ours, PEFT's, and of the rounds' ratios.
    fn medians(&self, figure: impl Fn(&Run) -> f64) -> [f64; 3] {
        let of = |value: &dyn Fn(&(Run, Run)) -> f64| median(self.runs.iter().map(value).collect());
        [
            of(&|(ours, _)| figure(ours)),
            of(&|(_, peft)| figure(peft)),
            of(&|(ours, peft)| figure(ours) / figure(peft)),
        ]
    }
}

impl Report for FinetuneReport {
    /// All figures.
    fn to_json(&self) -> Value {
        let rows = self.comparisons.iter().map(|row| {
            let named = |[ours, peft, ratio]: [f64; 3]| json!({ "emberlm": ours, "peft": peft, "ratio": ratio });
            json!({
                "batch": row.batch,
                "weights": row.weights,
                "tokens_per_second": named(row.medians(|run| run.tokens_per_second)),
                "peak_mib": named(row.medians(|run| run.peak_mib)),
            })
        });
        json!({
            "seq_len": self.seq_len,
            "rank": self.rank,
            "rounds": self.rounds,
            "rows": rows.collect::<Vec<_>>(),
        })
    }

    /// A table in Markdown.
    fn to_text(&self) -> String {
        let mut table = Table::new([
            Text("batch"),
            Text("frozen weights"),
            Number("tokens/s"),
            Number("PEFT, f32"),
            Number("ratio"),
            Number("peak, MiB"),
            Number("PEFT, f32"),
            Number("ratio"),
        ]);
        for row in &self.comparisons {
            let cells = |[ours, peft, ratio]: [f64; 3]| {
                [
                    format!("{ours:.0}"),
                    format!("{peft:.0}"),
                    format!("{ratio:.2}"),
                ]
            };
            let [speed, peft_speed, speed_ratio] = cells(row.medians(|run| run.tokens_per_second));
            let [peak, peft_peak, peak_ratio] = cells(row.medians(|run| run.peak_mib));
            let batch = format!("{} × {}", row.batch, self.seq_len);
            let weights = row.weights.clone();
            table.row([
                batch,
                weights,
                speed,
                peft_speed,
                speed_ratio,
                peak,
                peft_peak,
                peak_ratio,
            ]);
        }
        table.to_markdown()
    }
}

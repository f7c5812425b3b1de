//! `cargo xtask bench backends`: trains the same run with the same seed on several backends and in several
//! precisions, and compares the loss curves.

use std::{
    collections::BTreeMap,
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
    time::Instant,
};

use serde_json::{Value, json};

use super::programs::{Program, build};
use crate::{error::Error, python::absolute, workspace};

/// Arguments of `cargo xtask bench backends`.
#[derive(Debug, clap::Args)]
pub struct BackendsArgs {
    /// A backend, or a backend and the precision of matrix products, such as vulkan:f16; repeatable. The others
    /// are compared with the first.
    #[arg(
        long = "run",
        value_name = "BACKEND[:PRECISION]",
        default_values = ["flex", "ndarray"]
    )]
    runs: Vec<Run>,
    /// The model to train on the built-in tales. It is trained without dropout, whose random numbers differ
    /// between backends.
    #[arg(long, default_value = "char-nano")]
    preset: String,
    /// Steps of each run.
    #[arg(long, default_value = "300")]
    steps: NonZero<usize>,
    /// Sequences per step [default: the preset's].
    #[arg(long)]
    batch: Option<NonZero<usize>>,
    /// Train with this binary instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Print one line of JSON instead of the Markdown table.
    #[arg(long)]
    json: bool,
}

/// The backend and the precision of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    backend: String,
    precision: String,
}

impl FromStr for Run {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (backend, precision) = text.split_once(':').unwrap_or((text, "f32"));
        if backend.is_empty() || precision.is_empty() {
            return Err("must be a backend's name, or one with a precision after a colon".into());
        }
        Ok(Self {
            backend: backend.to_owned(),
            precision: precision.to_owned(),
        })
    }
}

impl Run {
    fn name(&self) -> String {
        format!("{} {}", self.backend, self.precision)
    }
}

/// The training losses of a run.
#[derive(Debug, Clone)]
struct Curve {
    name: String,
    /// Losses by step.
    losses: BTreeMap<u64, f64>,
    seconds: f64,
}

impl Curve {
    /// The largest difference from another curve, and its step.
    fn largest_difference(&self, other: &Self) -> Option<(u64, f64)> {
        let both = self.losses.iter().filter_map(|(step, loss)| {
            let difference = (loss - other.losses.get(step)?).abs();
            Some((*step, difference))
        });
        both.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Builds the binaries, trains the runs and prints the comparison.
pub fn run(args: &BackendsArgs) -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    let program = match &args.binary {
        Some(binary) => absolute(binary)?,
        None => {
            let features: Vec<&str> = args.runs.iter().map(|run| run.backend.as_str()).collect();
            build(&features.join(","))?;
            Program::Emberlm.path(&metadata).into()
        }
    };
    let folder = PathBuf::from(metadata.target_directory.join("bench-backends"));
    let curves = args
        .runs
        .iter()
        .map(|run| curve(args, &program, &folder, run))
        .collect::<Result<Vec<_>, _>>()?;
    match args.json {
        true => println!("{}", to_json(&curves)),
        false => print!("{}", to_markdown(&curves)),
    }
    Ok(())
}

fn curve(args: &BackendsArgs, program: &Path, folder: &Path, run: &Run) -> Result<Curve, Error> {
    let name = run.name();
    eprintln!("{name}");
    let out = folder.join(name.replace(' ', "-"));
    if out.exists() {
        std::fs::remove_dir_all(&out).map_err(|source| Error::Write {
            path: out.clone(),
            source,
        })?;
    }
    std::fs::create_dir_all(folder).map_err(|source| Error::Write {
        path: folder.to_owned(),
        source,
    })?;
    let started = Instant::now();
    workspace::success(&mut command(args, program, folder, &out, run))?;
    let path = out.join("events.jsonl");
    let events = std::fs::read_to_string(&path).map_err(|source| Error::Read { path, source })?;
    Ok(Curve {
        name,
        losses: losses(&events),
        seconds: started.elapsed().as_secs_f64(),
    })
}

fn command(args: &BackendsArgs, program: &Path, folder: &Path, out: &Path, run: &Run) -> Command {
    let steps = args.steps.to_string();
    let mut command = Command::new(program);
    // The built-in tales are written to the working directory.
    command.current_dir(folder).args(["train", "--preset"]);
    command.arg(&args.preset).arg("--out").arg(out);
    command.args(["--steps", &steps, "--eval-interval", &steps]);
    command.args(["--backend", &run.backend, "--precision", &run.precision]);
    command.args(["--renderer", "plain"]);
    for setting in [
        "model.dropout=0",
        "train.log_interval=10",
        "train.evaluation.tokens=4096",
    ] {
        command.args(["--set", setting]);
    }
    if let Some(batch) = args.batch {
        command.args(["--set", &format!("train.micro_batch={batch}")]);
    }
    command.stdout(std::process::Stdio::null());
    command
}

/// The training losses of a run's `events.jsonl`.
fn losses(events: &str) -> BTreeMap<u64, f64> {
    let lines = events
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines
        .filter(|event: &Value| event["event"] == "step")
        .filter_map(|event| Some((event["step"].as_u64()?, event["loss"].as_f64()?)))
        .collect()
}

/// A row for about every tenth of the steps, followed by the largest difference of each curve from the first.
fn to_markdown(curves: &[Curve]) -> String {
    let Some(first) = curves.first() else {
        return String::new();
    };
    let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
    let mut text = format!(
        "| step | {} |\n|---|{}\n",
        names.join(" | "),
        "---|".repeat(curves.len())
    );
    let steps: Vec<u64> = first.losses.keys().copied().collect();
    let every = steps.len().div_ceil(10).max(1);
    let last = steps.len().saturating_sub(1);
    for (i, step) in steps.iter().enumerate() {
        if i % every != 0 && i != last {
            continue;
        }
        let cell = |curve: &Curve| match curve.losses.get(step) {
            Some(loss) => format!("{loss:.5}"),
            None => String::new(),
        };
        let cells: Vec<String> = curves.iter().map(cell).collect();
        text.push_str(&format!("| {step} | {} |\n", cells.join(" | ")));
    }
    let difference =
        |(i, curve): (usize, &Curve)| match curve.largest_difference(first).filter(|_| i > 0) {
            Some((step, difference)) => format!("{difference:.1e} at {step}"),
            None => String::new(),
        };
    let cells: Vec<String> = curves.iter().enumerate().map(difference).collect();
    text.push_str(&format!("| apart at most | {} |\n", cells.join(" | ")));
    let cells: Vec<String> = curves
        .iter()
        .map(|curve| format!("{:.0}", curve.seconds))
        .collect();
    text.push_str(&format!("| seconds | {} |\n", cells.join(" | ")));
    text
}

fn to_json(curves: &[Curve]) -> Value {
    let rows = curves.iter().map(|curve| {
        json!({
            "run": curve.name,
            "losses": curve.losses,
            "seconds": curve.seconds,
            "apart": curves.first().and_then(|first| curve.largest_difference(first)).map(|(_, most)| most),
        })
    });
    json!({ "runs": rows.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve_of(name: &str, losses: [f64; 3]) -> Curve {
        Curve {
            name: name.to_owned(),
            losses: [1, 10, 20].into_iter().zip(losses).collect(),
            seconds: 2.0,
        }
    }

    #[test]
    fn a_run_is_a_backend_and_a_precision() {
        let run: Run = "vulkan:f16".parse().unwrap();
        assert_eq!(run.name(), "vulkan f16");
        assert_eq!("flex".parse::<Run>().unwrap().name(), "flex f32");
        assert!(":f16".parse::<Run>().is_err());
        assert!("flex:".parse::<Run>().is_err());
    }

    #[test]
    fn the_largest_difference_is_found() {
        let curves = [
            curve_of("flex f32", [4.0, 3.0, 2.0]),
            curve_of("vulkan f16", [4.0, 3.25, 2.125]),
        ];
        let table = to_markdown(&curves);
        assert!(table.contains("| 10 | 3.00000 | 3.25000 |\n"), "{table}");
        assert!(
            table.contains("| apart at most |  | 2.5e-1 at 10 |\n"),
            "{table}"
        );
        assert_eq!(to_json(&curves)["runs"][1]["apart"], 0.25);
    }

    #[test]
    fn losses_are_those_of_training_steps() {
        let events = "{\"event\":\"step\",\"step\":1,\"loss\":4.5}\n{\"event\":\"evaluation\",\"step\":1,\"loss\":9.0}\nnonsense\n";
        assert_eq!(losses(events), [(1, 4.5)].into());
    }
}

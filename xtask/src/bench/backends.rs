//! `cargo xtask bench backends`: trains the same run with the same seed on several backends and in several
//! precisions, and compares the loss curves.

use std::{
    cell::OnceCell,
    collections::BTreeMap,
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
    time::Instant,
};

use emberlm_system::measure::{Contender, Metric, Ratio, Sample, Unit};
use serde_json::Value;

use super::programs::{Program, build};
use super::session::{Session, remove};
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

/// The training losses of a run by step.
type Curve = BTreeMap<u64, f64>;

/// Builds the binaries, and trains the runs.
pub fn run(args: &BackendsArgs, session: &mut Session) -> Result<(), Error> {
    let program = match &args.binary {
        Some(binary) => absolute(binary)?,
        None => {
            let features: Vec<&str> = args.runs.iter().map(|run| run.backend.as_str()).collect();
            build(&features.join(","))?;
            Program::Emberlm.path(&session.metadata).into()
        }
    };
    let folder = session.folder("bench-backends")?;
    let first = OnceCell::new();
    let contenders = args.runs.iter().map(|run| {
        let (first, folder, program) = (&first, &folder, &program);
        Contender::new(run.name(), move || {
            let started = Instant::now();
            let curve = curve(args, program, folder, run)?;
            let seconds = started.elapsed().as_secs_f64();
            Ok(sample(seconds, &curve, first.get_or_init(|| curve.clone())))
        })
    });
    let workload = format!("{}, {} steps", args.preset, args.steps);
    let (contenders, rounds) = (contenders.collect(), session.rounds(1));
    session.compare(workload, Ratio::OtherToFirst, rounds, contenders)?;
    Ok(())
}

/// The time of a run, its largest difference from the first run, and about ten of its losses.
fn sample(seconds: f64, curve: &Curve, first: &Curve) -> Sample {
    let mut values = vec![(Metric::new("", Unit::Seconds), seconds)];
    let both = curve.iter().filter_map(|(step, loss)| {
        let difference = (loss - first.get(step)?).abs();
        Some(difference)
    });
    let largest = both.max_by(f64::total_cmp).unwrap_or(f64::NAN);
    values.push((Metric::new("largest difference", Unit::Relative), largest));
    let every = curve.len().div_ceil(10).max(1);
    let last = curve.len().saturating_sub(1);
    for (at, (step, &loss)) in curve.iter().enumerate() {
        if at % every == 0 || at == last {
            values.push((Metric::new(format!("step {step}"), Unit::Nats), loss));
        }
    }
    Sample {
        version: None,
        values,
    }
}

fn curve(args: &BackendsArgs, program: &Path, folder: &Path, run: &Run) -> Result<Curve, Error> {
    let out = folder.join(run.name().replace(' ', "-"));
    remove(&out)?;
    workspace::success(&mut command(args, program, folder, &out, run))?;
    let path = out.join("events.jsonl");
    let events = std::fs::read_to_string(&path).map_err(Error::read(&path))?;
    Ok(losses(&events))
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
fn losses(events: &str) -> Curve {
    let lines = events
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines
        .filter(|event: &Value| event["event"] == "step")
        .filter_map(|event| Some((event["step"].as_u64()?, event["loss"].as_f64()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_a_backend_and_a_precision() {
        let run: Run = "vulkan:f16".parse().unwrap();
        assert_eq!(run.name(), "vulkan f16");
        assert_eq!("flex".parse::<Run>().unwrap().name(), "flex f32");
        assert!(":f16".parse::<Run>().is_err());
        assert!("flex:".parse::<Run>().is_err());
    }

    #[test]
    fn the_largest_difference_from_the_first_run_is_found() {
        let curve = |losses: [f64; 3]| [1, 10, 20].into_iter().zip(losses).collect();
        let (first, second) = (curve([4.0, 3.0, 2.0]), curve([4.0, 3.25, 2.125]));
        let values = sample(2.0, &second, &first).values;
        assert_eq!(values[1].1, 0.25);
        assert_eq!(values[3], (Metric::new("step 10", Unit::Nats), 3.25));
        assert_eq!(values.len(), 5);
    }

    #[test]
    fn losses_are_those_of_training_steps() {
        let events = "{\"event\":\"step\",\"step\":1,\"loss\":4.5}\n{\"event\":\"evaluation\",\"step\":1,\"loss\":9.0}\nnonsense\n";
        assert_eq!(losses(events), [(1, 4.5)].into());
    }
}

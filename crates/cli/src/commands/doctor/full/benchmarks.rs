//! Checks of speed and memory, including PyTorch's speed for comparison.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use emberlm_kernels::Precision;
use emberlm_system::measure::{Figure, Unit};
use serde::Deserialize;

use super::super::measure::{Measured, TRAINING, Workload};
use super::finding::{Finding, Findings, Outcome};
use super::session::Session;
use crate::backend::BackendName;

/// Time limit of one measurement.
const MEASUREMENT: Duration = Duration::from_secs(600);

/// The same workloads in PyTorch. `cargo xtask bench peers` runs this program, too.
const PEER: &str = include_str!("../../../../peers/train.py");

/// Measures training speed in each precision.
///
/// # Errors
/// Never fails: a failed precision gives a failed row.
pub fn training(session: &mut Session) -> Result<Findings, Outcome> {
    let mut rows = Vec::new();
    for precision in Precision::ALL {
        let name = precision.name();
        match measure(session, &format!("training --precision {name}")) {
            Ok(figures) => {
                let mut speeds = figures.iter().filter(|it| it.metric.name == TRAINING);
                if let Some(speed) = speeds.next() {
                    session.set_training_speed(precision, speed.median());
                }
                rows.extend(figures.iter().map(|it| row(&format!("{name}: "), it)));
            }
            Err(outcome) => {
                let name = format!("{name}: {TRAINING}");
                rows.push(Finding::without_value(name, Unit::TokensPerSecond, outcome));
            }
        }
    }
    Ok(Findings::of_rows(rows))
}

/// Measures the speed of generation.
///
/// # Errors
/// Returns an error if the measurement fails.
pub fn generation(session: &Session) -> Result<Findings, Outcome> {
    let figures = measure(session, "generation")?;
    Ok(Findings::of_rows(
        figures.iter().map(|it| row("", it)).collect(),
    ))
}

/// Measures the memory of a training step.
///
/// # Errors
/// Returns an error if the measurement fails.
pub fn memory(session: &Session) -> Result<Findings, Outcome> {
    let figures = measure(session, "memory")?;
    Ok(Findings::of_rows(
        figures.iter().map(|it| row("", it)).collect(),
    ))
}

/// Runs `emberlm measure` for a subject and parses its output.
fn measure(session: &Session, subject: &str) -> Result<Vec<Figure>, Outcome> {
    let line = format!("measure {subject} --size {}", session.size.name());
    let log = subject.split(' ').next_back().unwrap_or(subject);
    let finished = session.emberlm(log, &line, session.placement, MEASUREMENT)?;
    let measured: Measured = serde_json::from_str(&finished.succeeded()?)
        .map_err(|error| Outcome::failed(format!("its output cannot be parsed: {error}")))?;
    measured.ok_or_else(|| Outcome::skipped("the device does not multiply in it"))
}

fn row(prefix: &str, figure: &Figure) -> Finding {
    let metric = &figure.metric;
    Finding::figure(
        format!("{prefix}{}", metric.name),
        figure.median(),
        metric.unit,
    )
}

/// The output of `peers/train.py`.
#[derive(Deserialize)]
struct PeerSpeed {
    peer: String,
    tokens_per_second: f64,
}

/// Measures the same training in PyTorch.
///
/// # Errors
/// Returns an error if there is no Python with PyTorch.
pub fn pytorch(session: &Session) -> Result<Findings, Outcome> {
    let device = torch_device(session.placement.backend);
    let named = session.python.as_deref();
    let python = named.unwrap_or(Path::new("python3"));
    let usable = match device {
        "cuda" => "assert torch.cuda.is_available(), 'PyTorch finds no GPU'",
        "mps" => "assert torch.backends.mps.is_available(), 'PyTorch finds no GPU'",
        _ => "",
    };
    let probe = ["-c", &format!("import torch; {usable}")];
    if let Err(outcome) = python_runs(session, "probe", python, &probe) {
        // A Python selected by the user must work.
        let reason = outcome.to_string();
        return Err(match named {
            Some(_) => outcome,
            None => Outcome::skipped(format!("python3: {reason}")),
        });
    }
    let program = session.work().join("train.py");
    let failed = |error| Outcome::failed(format!("cannot write {}: {error}", program.display()));
    fs::write(&program, PEER).map_err(failed)?;
    let workload = Workload::of(session.size);
    let [batch, seq, steps] =
        [workload.batch, workload.seq_len, workload.steps].map(|size| size.to_string());
    let mut rows = Vec::new();
    for precision in [Precision::F32, Precision::Bf16] {
        let name = precision.name();
        let args = [
            "train.py",
            workload.peer,
            "--device",
            device,
            "--batch",
            &batch,
            "--seq",
            &seq,
            "--steps",
            &steps,
            "--precision",
            name,
        ];
        let printed = python_runs(session, name, python, &args).and_then(|printed| {
            let line = printed.trim().lines().next_back().unwrap_or_default();
            serde_json::from_str::<PeerSpeed>(line)
                .map_err(|error| Outcome::failed(format!("its output cannot be parsed: {error}")))
        });
        match printed {
            Ok(speed) => {
                let name = format!("{} on {device}, {name}", speed.peer);
                let theirs = speed.tokens_per_second;
                rows.push(Finding::figure(name, theirs, Unit::TokensPerSecond));
                if let Some(ours) = session.training_speed(precision) {
                    let name = format!("emberlm / PyTorch, {}", precision.name());
                    rows.push(Finding::figure(name, ours / theirs, Unit::Ratio));
                }
            }
            Err(outcome) => {
                let name = format!("PyTorch on {device}, {name}");
                rows.push(Finding::without_value(name, Unit::TokensPerSecond, outcome));
            }
        }
    }
    Ok(Findings::of_rows(rows))
}

fn python_runs(
    session: &Session,
    log: &str,
    python: &Path,
    args: &[&str],
) -> Result<String, Outcome> {
    let mut command = Command::new(python);
    command.args(args);
    session.run(log, command, MEASUREMENT)?.succeeded()
}

/// The PyTorch device for a backend's hardware. Falls back to the CPU if PyTorch lacks the backend.
fn torch_device(backend: BackendName) -> &'static str {
    match backend {
        // PyTorch's name for ROCm devices is also `cuda`.
        BackendName::Cuda | BackendName::Rocm => "cuda",
        BackendName::Metal => "mps",
        BackendName::Flex | BackendName::Ndarray | BackendName::Wgpu | BackendName::Vulkan => "cpu",
    }
}

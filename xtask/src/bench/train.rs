//! `cargo xtask bench train`: training steps on a fixed workload, interleaved with PyTorch.

mod report;

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
};

use cargo_metadata::Metadata;

use self::report::TrainReport;
use super::{
    measurement::{Measurement, median},
    programs::{self, Program},
    report::Report,
};
use crate::{error::Error, workspace};

/// A workload: forward pass, mean cross-entropy, backward pass and AdamW in f32 on random token ids.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Preset {
    /// nanoGPT's CPU model for Shakespeare: 4 layers of width 128, sequences of 64.
    CharNano,
    /// PocketTransformer at its published sizes: 48 million parameters, sequences of 256.
    Pocket,
    /// The smallest GPT-2: 124 million parameters, sequences of 1,024. For GPUs.
    Gpt2Small,
}

impl Preset {
    /// The name in our binary, and in the PyTorch twin.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::CharNano => ("char-nano", "char"),
            Self::Pocket => ("pocket", "pocket"),
            Self::Gpt2Small => ("gpt2-small", "gpt2-small"),
        }
    }

    /// The defaults of measured steps and sequences per step.
    fn defaults(self) -> (usize, usize) {
        match self {
            Self::CharNano => (100, 12),
            Self::Pocket => (6, 4),
            Self::Gpt2Small => (20, 12),
        }
    }

    /// Tokens per sequence.
    fn seq_len(self) -> usize {
        match self {
            Self::CharNano => 64,
            Self::Pocket => 256,
            Self::Gpt2Small => 1024,
        }
    }
}

/// Arguments of `cargo xtask bench train`.
#[derive(Debug, clap::Args)]
pub struct TrainArgs {
    /// The workload.
    #[arg(long, value_enum)]
    preset: Preset,
    /// The backend to build and measure.
    #[arg(long, default_value = "flex")]
    backend: String,
    /// The precision of matrix products: f32, bf16 or f16.
    #[arg(long, default_value = "f32")]
    precision: String,
    /// Measured steps after the warm-up [default: 100 for char-nano, 6 for pocket, 20 for gpt2-small].
    #[arg(long)]
    steps: Option<NonZero<usize>>,
    /// Sequences per step [default: 12 for char-nano and gpt2-small, 4 for pocket].
    #[arg(long)]
    batch: Option<NonZero<usize>>,
    /// Tokens per sequence [default: the model's context].
    #[arg(long)]
    seq_len: Option<NonZero<usize>>,
    /// Also measure with activation checkpointing, which recomputes each block in the backward pass: less
    /// memory, more time.
    #[arg(long)]
    recompute: bool,
    /// A Python interpreter with torch, which runs the PyTorch twin interleaved with ours.
    #[arg(long, value_name = "PYTHON")]
    peer: Option<PathBuf>,
    /// Runs of each program; medians are printed [default: 3 with a peer, otherwise 1].
    #[arg(long)]
    rounds: Option<NonZero<usize>>,
    /// Print one line of JSON instead of the table.
    #[arg(long)]
    json: bool,
}

/// Builds, measures and prints.
pub fn run(args: &TrainArgs) -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    programs::build(&args.backend)?;
    let report = measure(args, &metadata)?;
    report.print(args.json);
    Ok(())
}

/// Interleaves our runs and the peer's, so that changes of the machine's load affect both.
fn measure(args: &TrainArgs, metadata: &Metadata) -> Result<TrainReport, Error> {
    let rounds = args
        .rounds
        .map_or(if args.peer.is_some() { 3 } else { 1 }, NonZero::get);
    let first = round(args, metadata)?;
    let (mut ours, mut again, mut peers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 1..rounds {
        let round = round(args, metadata)?;
        ours.push(round.ours);
        again.extend(round.recomputing);
        peers.extend(round.peer);
    }
    Ok(TrainReport {
        rounds,
        ours: median(first.ours, ours),
        recomputing: first.recomputing.map(|first| median(first, again)),
        peer: first.peer.map(|first| median(first, peers)),
    })
}

/// One run of each program.
struct Round {
    ours: Measurement,
    recomputing: Option<Measurement>,
    peer: Option<Measurement>,
}

fn round(args: &TrainArgs, metadata: &Metadata) -> Result<Round, Error> {
    let ours = Measurement::take(&mut our_command(args, metadata, false))?;
    let recomputing = args
        .recompute
        .then(|| Measurement::take(&mut our_command(args, metadata, true)))
        .transpose()?;
    let python = args.peer.as_deref();
    let peer = python
        .map(|python| Measurement::take(&mut peer_command(args, metadata, python)))
        .transpose()?;
    Ok(Round {
        ours,
        recomputing,
        peer,
    })
}

fn our_command(args: &TrainArgs, metadata: &Metadata, recompute: bool) -> Command {
    let mut command = Command::new(Program::Bench.path(metadata));
    command.args([
        "bench-train",
        "--preset",
        args.preset.names().0,
        "--backend",
        &args.backend,
    ]);
    command.args(workload(args)).arg("--json");
    command.arg("--utilization");
    command.args(["--set", &format!("train.seq_len={}", seq_len(args))]);
    if recompute {
        command.arg("--recompute");
    }
    command
}

fn peer_command(args: &TrainArgs, metadata: &Metadata, python: &Path) -> Command {
    let mut command = Command::new(python);
    command.arg(metadata.workspace_root.join("crates/cli/peers/train.py"));
    command.arg(args.preset.names().1).args(workload(args));
    command.args(["--seq", &seq_len(args).to_string()]);
    if !["flex", "ndarray"].contains(&args.backend.as_str()) {
        // PyTorch's usual configuration on GPUs: flash attention and fused kernels.
        command.args(["--device", "cuda", "--compile"]);
    }
    command
}

fn seq_len(args: &TrainArgs) -> usize {
    args.seq_len.map_or(args.preset.seq_len(), NonZero::get)
}

/// Passes all sizes explicitly to both programs, so that their defaults do not matter.
fn workload(args: &TrainArgs) -> [String; 6] {
    let (steps, batch) = args.preset.defaults();
    let (steps, batch) = (
        args.steps.map_or(steps, NonZero::get),
        args.batch.map_or(batch, NonZero::get),
    );
    [
        "--steps".to_owned(),
        steps.to_string(),
        "--batch".to_owned(),
        batch.to_string(),
        "--precision".to_owned(),
        args.precision.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Wrapper {
        #[command(flatten)]
        train: TrainArgs,
    }

    #[test]
    fn both_programs_get_the_same_workload() {
        let typed = ["train", "--preset", "char-nano", "--steps", "7"];
        let args = Wrapper::try_parse_from(typed)
            .unwrap_or_else(|error| panic!("{error}"))
            .train;
        let metadata = workspace::metadata().unwrap();
        let ours = workspace::shown(&our_command(&args, &metadata, false));
        let again = workspace::shown(&our_command(&args, &metadata, true));
        let peer = workspace::shown(&peer_command(&args, &metadata, Path::new("python3")));
        assert!(
            ours.ends_with(
                "bench-train --preset char-nano --backend flex --steps 7 --batch 12 --precision f32 --json \
                 --utilization --set train.seq_len=64"
            ),
            "{ours}"
        );
        assert_eq!(again, format!("{ours} --recompute"));
        assert!(
            peer.ends_with("train.py char --steps 7 --batch 12 --precision f32 --seq 64"),
            "{peer}"
        );
    }

    #[test]
    fn on_a_gpu_the_peer_uses_cuda() {
        let typed = "train --preset gpt2-small --backend cuda --precision bf16";
        let args =
            Wrapper::try_parse_from(typed.split(' ')).unwrap_or_else(|error| panic!("{error}"));
        let metadata = workspace::metadata().unwrap();
        let peer = workspace::shown(&peer_command(&args.train, &metadata, Path::new("python3")));
        let expected = "train.py gpt2-small --steps 20 --batch 12 --precision bf16 --seq 1024 --device cuda --compile";
        assert!(peer.ends_with(expected), "{peer}");
    }

    #[test]
    fn peer_files_exist() {
        let root = workspace::metadata().unwrap().workspace_root;
        assert!(root.join("crates/cli/peers/train.py").is_file());
    }
}

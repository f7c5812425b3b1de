//! `cargo xtask bench train`: training steps on a fixed workload, interleaved with PyTorch.

use std::{num::NonZero, path::PathBuf, process::Command};

use emberlm_system::measure::{Contender, Ratio};

use super::{
    programs::{self, Program, contender},
    session::Session,
    training::{FIELDS, Training},
};
use crate::error::Error;

/// A workload in f32 by default.
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
    fn training(self) -> Training {
        match self {
            Self::CharNano => Training {
                twin: "char",
                ..Training::new("char-nano", [100, 12, 64])
            },
            Self::Pocket => Training::new("pocket", [6, 4, 256]),
            Self::Gpt2Small => Training::new("gpt2-small", [20, 12, 1024]),
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
}

impl TrainArgs {
    fn training(&self) -> Training {
        let preset = self.preset.training();
        let or = |size: Option<NonZero<usize>>, default| size.map_or(default, NonZero::get);
        Training {
            steps: or(self.steps, preset.steps),
            batch: or(self.batch, preset.batch),
            seq: or(self.seq_len, preset.seq),
            precision: self.precision.clone(),
            ..preset
        }
    }

    /// The options of the PyTorch twin for the backend's device.
    fn device(&self) -> &'static [&'static str] {
        match &self.backend[..] {
            "flex" | "ndarray" => &[],
            // PyTorch's usual configuration on GPUs: flash attention and fused kernels.
            _ => &["--device", "cuda", "--compile"],
        }
    }
}

/// Builds and measures.
pub fn run(args: &TrainArgs, session: &mut Session) -> Result<(), Error> {
    programs::build(&args.backend)?;
    let (training, root) = (args.training(), session.root());
    let binary = Program::Bench.path(&session.metadata);
    let ours = |recompute: &'static [&'static str]| {
        let mut command = Command::new(&binary);
        training.ours(&mut command, &args.backend);
        command.arg("--utilization").args(recompute);
        command
    };
    let mut contenders: Vec<Contender<'_, Error>> =
        vec![contender("emberlm", &FIELDS, || ours(&[]))];
    if args.recompute {
        let again = || ours(&["--recompute"]);
        contenders.push(contender("emberlm, recomputing", &FIELDS, again));
    }
    if let Some(python) = &args.peer {
        contenders.push(contender("PyTorch", &FIELDS, || {
            let mut command = training.twin(python, &root);
            command.args(args.device());
            command
        }));
    }
    let rounds = session.rounds(if args.peer.is_some() { 3 } else { 1 });
    session.compare(training.title(), Ratio::FirstToOther, rounds, contenders)?;
    Ok(())
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
    fn sizes_and_the_device_follow_the_options() {
        let parsed = |line: &str| Wrapper::try_parse_from(line.split(' ')).ok().unwrap().train;
        let args = parsed("train --preset char-nano --steps 7");
        assert_eq!(args.training().title(), "char-nano, 12 × 64, f32");
        assert_eq!((args.training().steps, args.device().len()), (7, 0));
        let args = parsed("train --preset gpt2-small --backend cuda --precision bf16");
        assert_eq!(args.training().title(), "gpt2-small, 12 × 1024, bf16");
        assert_eq!(args.device(), ["--device", "cuda", "--compile"]);
    }
}

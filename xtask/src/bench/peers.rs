//! `cargo xtask bench peers`: training steps on several workloads, interleaved with PyTorch.

use std::{path::Path, process::Command};

use emberlm_system::measure::Ratio;

use super::{
    programs::{MEMORY_KEPT, OursArgs, Program, PythonArgs, contender},
    session::Session,
    training::{FIELDS, Training},
};
use crate::error::Error;

/// Arguments of `cargo xtask bench peers`.
#[derive(Debug, clap::Args)]
pub struct PeersArgs {
    /// The workload; repeatable [default: all].
    #[arg(long, value_enum)]
    workload: Vec<Workload>,
    /// The configuration of PyTorch; repeatable [default: all].
    #[arg(long, value_enum)]
    peer: Vec<Peer>,
    /// The precision of matrix products in both programs.
    #[arg(long, value_parser = ["f32", "bf16"], default_value = "f32")]
    precision: String,
    #[command(flatten)]
    ours: OursArgs,
    #[command(flatten)]
    python: PythonArgs,
}

/// A model with the size of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Workload {
    /// nanoGPT's CPU model for Shakespeare: 0.8M parameters, 12 × 64 tokens.
    Char,
    /// PocketTransformer: 48M parameters, 4 × 256 tokens.
    Pocket,
    /// PocketTransformer with 12 × 256 tokens.
    #[value(name = "pocket-12")]
    Pocket12,
    /// GPT-2 small: 124M parameters, 4 × 64 tokens.
    #[value(name = "gpt2-small")]
    Gpt2Small,
}

impl Workload {
    /// Steps that take a few seconds.
    fn training(self) -> Training {
        match self {
            Self::Char => Training {
                twin: "char",
                ..Training::new("char-nano", [100, 12, 64])
            },
            Self::Pocket => Training::new("pocket", [6, 4, 256]),
            Self::Pocket12 => Training::new("pocket", [4, 12, 256]),
            // Sequences shorter than the context, as in llm.c's training on CPUs; OpenAI's approximation of GELU.
            Self::Gpt2Small => Training {
                overrides: vec!["model.feed_forward.activation=gelu_tanh".to_owned()],
                ..Training::new("gpt2-small", [6, 4, 64])
            },
        }
    }
}

/// A configuration of PyTorch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Peer {
    /// Eager mode.
    Eager,
    /// With torch.compile.
    Compiled,
    /// Eager mode, with glibc configured to keep freed memory.
    Tuned,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Self::Eager => "PyTorch, eager",
            Self::Compiled => "PyTorch, compiled",
            Self::Tuned => "PyTorch, memory kept",
        }
    }

    fn command(self, training: &Training, python: &Path, root: &Path) -> Command {
        let mut command = training.twin(python, root);
        match self {
            Self::Eager => {}
            Self::Compiled => {
                command.arg("--compile");
            }
            Self::Tuned => {
                command.envs(MEMORY_KEPT);
            }
        }
        command
    }
}

/// Builds, creates the Python environment and measures.
pub fn run(args: &PeersArgs, session: &mut Session) -> Result<(), Error> {
    let python = args.python.ready(&session.metadata)?;
    let binary = args.ours.ready(Program::Bench, session)?;
    let (root, rounds) = (session.root(), session.rounds(5));
    for workload in chosen(&args.workload) {
        let training = Training {
            precision: args.precision.clone(),
            ..workload.training()
        };
        let ours = contender("emberlm", &FIELDS, || {
            let mut command = Command::new(&binary);
            training.ours(&mut command, &args.ours.backend);
            command
        });
        let peers = chosen(&args.peer).into_iter().map(|peer| {
            let (training, python, root) = (&training, &python, &root);
            let command = move || peer.command(training, python, root);
            contender(peer.name(), &FIELDS, command)
        });
        let contenders = std::iter::once(ours).chain(peers).collect();
        session.compare(training.title(), Ratio::FirstToOther, rounds, contenders)?;
    }
    Ok(())
}

/// The given values, or all if none are given.
pub fn chosen<T: clap::ValueEnum + Copy>(asked: &[T]) -> Vec<T> {
    match asked {
        [] => T::value_variants().to_vec(),
        some => some.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Parser, ValueEnum};

    use super::*;
    use crate::workspace;

    #[derive(Parser)]
    struct Wrapper {
        #[command(flatten)]
        peers: PeersArgs,
    }

    #[test]
    fn defaults_compare_all_workloads_and_peers() {
        let args = Wrapper::try_parse_from(["peers"]).ok().unwrap().peers;
        assert_eq!(chosen(&args.workload).len(), 4);
        assert_eq!(chosen(&args.peer).len(), 3);
    }

    #[test]
    fn configurations_differ_by_option_and_environment() {
        let training = Workload::Char.training();
        let command = |peer: Peer| peer.command(&training, Path::new("python3"), Path::new("root"));
        let compiled = workspace::shown(&command(Peer::Compiled));
        assert!(compiled.ends_with("--seq 64 --compile"), "{compiled}");
        let set = |peer| command(peer).get_envs().count();
        assert_eq!([Peer::Eager, Peer::Tuned].map(set), [0, 3]);
    }

    #[test]
    fn the_twin_supports_every_workload() {
        let root = workspace::metadata().unwrap().workspace_root;
        let program = std::fs::read_to_string(root.join("crates/cli/peers/train.py")).unwrap();
        for workload in Workload::value_variants() {
            let entry = format!("\n    \"{}\": dict(", workload.training().twin);
            assert!(program.contains(&entry), "{entry}");
        }
    }

    #[test]
    fn a_given_python_needs_no_network() {
        let words = ["peers", "--python", "python3", "--offline"];
        assert!(Wrapper::try_parse_from(words).is_err());
    }
}

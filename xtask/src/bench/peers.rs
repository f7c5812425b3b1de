//! `cargo xtask bench peers`: training steps on several workloads, interleaved with PyTorch.

mod report;
mod workload;

use std::{num::NonZero, path::Path, process::Command};

use cargo_metadata::Metadata;

use self::report::{Comparison, PeersReport};
use self::workload::Workload;
use super::{
    measurement::{Measurement, median},
    programs::{MEMORY_KEPT, OursArgs, Program, PythonArgs},
    report::Report,
};
use crate::{error::Error, workspace};

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
    #[arg(long, value_enum, default_value = "f32")]
    precision: Precision,
    /// Runs of each program; medians are printed.
    #[arg(long, default_value = "5")]
    rounds: NonZero<usize>,
    /// Print one line of JSON instead of the tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ours: OursArgs,
    #[command(flatten)]
    python: PythonArgs,
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

/// The precision of matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Precision {
    F32,
    Bf16,
}

impl Precision {
    fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }
}

/// Builds, creates the Python environment, measures and prints.
pub fn run(args: &PeersArgs) -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    let python = args.python.ready(&metadata)?;
    let binary = args.ours.ready(Program::Bench, &metadata)?;
    let programs = Programs {
        args,
        metadata: &metadata,
        python: &python,
        binary: &binary,
    };
    let comparisons = chosen(&args.workload)
        .into_iter()
        .map(|workload| programs.compare(workload))
        .collect::<Result<_, _>>()?;
    let report = PeersReport {
        rounds: args.rounds.get(),
        precision: args.precision.name(),
        comparisons,
    };
    report.print(args.json);
    Ok(())
}

/// The given values, or all if none are given.
fn chosen<T: clap::ValueEnum + Copy>(asked: &[T]) -> Vec<T> {
    match asked {
        [] => T::value_variants().to_vec(),
        some => some.to_vec(),
    }
}

/// The command lines of all programs.
struct Programs<'a> {
    args: &'a PeersArgs,
    metadata: &'a Metadata,
    python: &'a Path,
    binary: &'a Path,
}

impl Programs<'_> {
    /// Interleaves our runs and the peers', so that changes of the machine's load affect all of them.
    fn compare(&self, workload: Workload) -> Result<Comparison, Error> {
        let peers = chosen(&self.args.peer);
        let rounds = self.args.rounds.get();
        let (mut ours, mut theirs) = (Vec::new(), vec![Vec::new(); peers.len()]);
        for round in 1..=rounds {
            eprintln!("{}, round {round} of {rounds}", workload.name());
            ours.push(run_and_print(&mut self.ours(workload), "")?);
            for (runs, &peer) in theirs.iter_mut().zip(&peers) {
                let how = match peer {
                    Peer::Tuned => ", memory kept",
                    Peer::Eager | Peer::Compiled => "",
                };
                runs.push(run_and_print(&mut self.peer(workload, peer), how)?);
            }
        }
        let middle = |mut runs: Vec<Measurement>| runs.pop().map(|last| median(last, runs));
        Ok(Comparison {
            workload: workload.title(),
            ours: middle(ours),
            peers: theirs.into_iter().filter_map(middle).collect(),
        })
    }

    fn ours(&self, workload: Workload) -> Command {
        let mut command = Command::new(self.binary);
        command.args(["bench-train", "--backend", &self.args.ours.backend]);
        command.args(workload.ours()).arg("--json");
        if self.args.precision != Precision::F32 {
            command.args(["--precision", self.args.precision.name()]);
        }
        command
    }

    fn peer(&self, workload: Workload, peer: Peer) -> Command {
        let mut command = Command::new(self.python);
        command.arg(
            self.metadata
                .workspace_root
                .join("crates/cli/peers/train.py"),
        );
        command.args(workload.twin());
        command.args(["--precision", self.args.precision.name()]);
        match peer {
            Peer::Eager => {}
            Peer::Compiled => {
                command.arg("--compile");
            }
            Peer::Tuned => {
                command.envs(MEMORY_KEPT);
            }
        }
        command
    }
}

/// Runs a program and prints the completed run, described by `how`.
fn run_and_print(command: &mut Command, how: &str) -> Result<Measurement, Error> {
    let mut run = Measurement::take(command)?;
    run.peer += how;
    let (name, speed, peak) = (&run.peer, run.tokens_per_second, run.peak_rss_mib);
    eprintln!("  {name}: {speed:.1} tokens/s, {peak} MiB");
    Ok(run)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Wrapper {
        #[command(flatten)]
        peers: PeersArgs,
    }

    fn parsed(words: &[&str]) -> PeersArgs {
        let words = ["peers"].into_iter().chain(words.iter().copied());
        let parsed = Wrapper::try_parse_from(words);
        parsed.unwrap_or_else(|error| panic!("{error}")).peers
    }

    /// The arguments of a workload's programs: ours, then the peers'.
    fn command_lines(args: &PeersArgs, workload: Workload) -> Vec<String> {
        let metadata = workspace::metadata().unwrap();
        let programs = Programs {
            args,
            metadata: &metadata,
            python: Path::new("python3"),
            binary: Path::new("emberlm"),
        };
        let peers = chosen(&args.peer)
            .into_iter()
            .map(|peer| programs.peer(workload, peer));
        let ours = std::iter::once(programs.ours(workload));
        ours.chain(peers).map(|c| workspace::shown(&c)).collect()
    }

    #[test]
    fn defaults_compare_all_workloads_and_peers() {
        let args = parsed(&[]);
        assert_eq!(chosen(&args.workload).len(), 4);
        let command_lines = command_lines(&args, Workload::Char);
        assert_eq!(command_lines.len(), 4);
        assert_eq!(
            command_lines[0],
            "emberlm bench-train --backend flex --preset char-nano --steps 100 --batch 12 --json"
        );
        assert!(
            command_lines[2]
                .ends_with("train.py char --steps 100 --batch 12 --precision f32 --compile"),
            "{}",
            command_lines[2]
        );
    }

    #[test]
    fn all_programs_get_the_same_precision() {
        let words = ["--precision", "bf16", "--workload", "pocket-12"];
        let args = parsed(&[&words[..], &["--peer", "tuned"]].concat());
        assert_eq!(args.workload, [Workload::Pocket12]);
        let command_lines = command_lines(&args, Workload::Pocket12);
        assert_eq!(command_lines.len(), 2);
        for line in &command_lines {
            assert!(line.contains("--precision bf16"), "{line}");
            assert!(line.contains("--batch 12"), "{line}");
        }
    }

    #[test]
    fn the_tuned_peer_keeps_its_memory() {
        let args = parsed(&[]);
        let metadata = workspace::metadata().unwrap();
        let programs = Programs {
            args: &args,
            metadata: &metadata,
            python: Path::new("python3"),
            binary: Path::new("emberlm"),
        };
        let set = |peer| programs.peer(Workload::Char, peer).get_envs().count();
        assert_eq!([Peer::Eager, Peer::Tuned].map(set), [0, 3]);
    }

    #[test]
    fn a_given_python_needs_no_network() {
        let words = ["peers", "--python", "python3", "--offline"];
        assert!(Wrapper::try_parse_from(words).is_err());
    }
}

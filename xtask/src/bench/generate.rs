//! `cargo xtask bench generate`: reads a prompt and generates tokens for one sequence with initial weights,
//! interleaved with transformers, and compares both with the bounds of the machine's memory bandwidth and
//! matrix products.

mod report;

use std::{num::NonZero, path::Path, process::Command};

use cargo_metadata::Metadata;

use self::report::{GenerateReport, Generation, Pair};
use super::programs::{OursArgs, Program, PythonArgs, last_json};
use super::report::Report;
use crate::{error::Error, workspace};

/// Arguments of `cargo xtask bench generate`.
#[derive(Debug, clap::Args)]
pub struct GenerateArgs {
    /// The model; repeatable [default: both].
    #[arg(long, value_enum)]
    preset: Vec<Preset>,
    /// Tokens of the prompt.
    #[arg(long, default_value = "256")]
    prompt: NonZero<usize>,
    /// Tokens to generate.
    #[arg(long, default_value = "64")]
    tokens: NonZero<usize>,
    /// The format of emberlm's weights, as in `emberlm-bench generate`; the peer's are f32.
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    weights: String,
    /// Runs of each program; medians are printed.
    #[arg(long, default_value = "3")]
    rounds: NonZero<usize>,
    /// Print one line of JSON instead of the tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ours: OursArgs,
    #[command(flatten)]
    python: PythonArgs,
}

/// A measured model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Preset {
    /// 48 million parameters; not available in transformers.
    Pocket,
    /// 124 million parameters.
    #[value(name = "gpt2-small")]
    Gpt2Small,
}

impl Preset {
    /// The name in emberlm's binary, and in the peer if the peer has the model.
    fn names(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Pocket => ("pocket", None),
            Self::Gpt2Small => ("gpt2-small", Some("gpt2-small")),
        }
    }
}

/// Builds, creates the Python environment if needed, measures and prints.
pub fn run(args: &GenerateArgs) -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    let presets = match &args.preset[..] {
        [] => vec![Preset::Pocket, Preset::Gpt2Small],
        some => some.to_vec(),
    };
    let peered = presets.iter().any(|preset| preset.names().1.is_some());
    let python = peered.then(|| args.python.ready(&metadata)).transpose()?;
    let binary = args.ours.ready(Program::Bench, &metadata)?;
    let pairs = presets
        .into_iter()
        .map(|preset| pair(args, &metadata, &binary, python.as_deref(), preset))
        .collect::<Result<_, _>>()?;
    let report = GenerateReport {
        prompt: args.prompt.get(),
        tokens: args.tokens.get(),
        rounds: args.rounds.get(),
        pairs,
    };
    report.print(args.json);
    Ok(())
}

/// The median runs of both programs, interleaved.
fn pair(
    args: &GenerateArgs,
    metadata: &Metadata,
    binary: &Path,
    python: Option<&Path>,
    preset: Preset,
) -> Result<Pair, Error> {
    let (name, twin) = preset.names();
    let rounds = args.rounds.get();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("{name}, round {round} of {rounds}");
        ours.push(run_and_print(&mut our_command(args, binary, name))?);
        if let Some((python, twin)) = python.zip(twin) {
            theirs.push(run_and_print(&mut peer_command(
                args, metadata, python, twin,
            ))?);
        }
    }
    Ok(Pair {
        workload: name,
        ours: Generation::median(ours),
        peer: Generation::median(theirs),
    })
}

/// Runs a program and prints the completed run.
fn run_and_print(command: &mut Command) -> Result<Generation, Error> {
    let run = Generation::of(&last_json(command, "decode_tokens_per_second")?);
    let (name, decode, prefill) = (&run.program, run.decode, run.prefill);
    eprintln!("  {name}: {decode:.1} tokens/s, prompt {prefill:.1} tokens/s");
    Ok(run)
}

fn our_command(args: &GenerateArgs, binary: &Path, name: &str) -> Command {
    let mut command = Command::new(binary);
    command.args(["bench-generate", "--preset", name]);
    command.args(["--backend", &args.ours.backend]);
    command.args(["--weights", &args.weights]);
    command.args(size(args)).arg("--json");
    command
}

fn peer_command(args: &GenerateArgs, metadata: &Metadata, python: &Path, name: &str) -> Command {
    let mut command = Command::new(python);
    command.arg(metadata.workspace_root.join("xtask/peers/generate.py"));
    command.arg(name).args(size(args));
    command
}

/// Passes all sizes explicitly to both programs, so that their defaults do not matter.
fn size(args: &GenerateArgs) -> [String; 4] {
    let (prompt, tokens) = (args.prompt.to_string(), args.tokens.to_string());
    ["--prompt".to_owned(), prompt, "--tokens".to_owned(), tokens]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Wrapper {
        #[command(flatten)]
        generate: GenerateArgs,
    }

    #[test]
    fn both_programs_get_the_same_sizes() {
        let typed = ["generate", "--prompt", "32"];
        let args = Wrapper::try_parse_from(typed).unwrap_or_else(|error| panic!("{error}"));
        let (args, metadata) = (&args.generate, workspace::metadata().unwrap());
        let (name, twin) = Preset::Gpt2Small.names();
        let ours = workspace::shown(&our_command(args, Path::new("emberlm"), name));
        let python = Path::new("python3");
        let peer = peer_command(args, &metadata, python, twin.unwrap());
        assert_eq!(
            ours,
            "emberlm bench-generate --preset gpt2-small --backend flex --weights f32 --prompt 32 --tokens 64 --json"
        );
        let peer = workspace::shown(&peer);
        assert!(
            peer.ends_with("generate.py gpt2-small --prompt 32 --tokens 64"),
            "{peer}"
        );
    }

    #[test]
    fn peer_files_exist() {
        let root = workspace::metadata().unwrap().workspace_root;
        assert!(root.join("xtask/peers/generate.py").is_file());
    }
}

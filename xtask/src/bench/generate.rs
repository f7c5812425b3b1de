//! `cargo xtask bench generate`: reads a prompt and generates tokens for one sequence with initial weights,
//! interleaved with transformers, and compares both with the bounds of the machine's memory bandwidth and
//! matrix products.

use std::{num::NonZero, path::Path, process::Command};

use emberlm_system::measure::{Ratio, Unit};

use super::peers::chosen;
use super::programs::{Field, OursArgs, Program, PythonArgs, contender};
use super::session::Session;
use crate::error::Error;

/// The speeds with the bounds of this machine: reading all weights once per token, and the matrix products of the prompt.
const FIELDS: [Field; 7] = [
    Field(
        "decode_tokens_per_second",
        "decoding",
        Unit::TokensPerSecond,
    ),
    Field("decode_bound", "bound of decoding", Unit::TokensPerSecond),
    Field("prefill_tokens_per_second", "prompt", Unit::TokensPerSecond),
    Field(
        "prefill_bound",
        "bound of the prompt",
        Unit::TokensPerSecond,
    ),
    Field("peak_rss_mib", "peak", Unit::Bytes),
    Field("bytes_per_token", "read per token", Unit::Bytes),
    Field(
        "read_bytes_per_second",
        "memory reads",
        Unit::BytesPerSecond,
    ),
];

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

/// Builds, creates the Python environment if needed, and measures.
pub fn run(args: &GenerateArgs, session: &mut Session) -> Result<(), Error> {
    let presets = chosen(&args.preset);
    let peered = presets.iter().any(|preset| preset.names().1.is_some());
    let python = peered.then(|| args.python.ready(&session.metadata));
    let python = python.transpose()?;
    let binary = args.ours.ready(Program::Bench, session)?;
    let script = session.root().join("xtask/peers/generate.py");
    session.record.parameter("weights", &args.weights);
    for preset in presets {
        let (name, twin) = preset.names();
        let ours = || our_command(args, &binary, name);
        let mut contenders = vec![contender("emberlm", &FIELDS, ours)];
        if let Some((python, twin)) = python.as_ref().zip(twin) {
            contenders.push(contender("transformers", &FIELDS, {
                let script = &script;
                move || {
                    let mut command = Command::new(python);
                    command.arg(script).arg(twin).args(size(args));
                    command
                }
            }));
        }
        let workload = format!("{name}, {} tokens after {}", args.tokens, args.prompt);
        let rounds = session.rounds(3);
        session.compare(workload, Ratio::FirstToOther, rounds, contenders)?;
    }
    Ok(())
}

fn our_command(args: &GenerateArgs, binary: &Path, name: &str) -> Command {
    let mut command = Command::new(binary);
    command.args(["bench-generate", "--preset", name]);
    command.args(["--backend", &args.ours.backend]);
    command.args(["--weights", &args.weights]);
    command.args(size(args)).arg("--json");
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
    use crate::workspace;

    #[derive(Parser)]
    struct Wrapper {
        #[command(flatten)]
        generate: GenerateArgs,
    }

    #[test]
    fn sizes_reach_the_program() {
        let args = Wrapper::try_parse_from(["generate", "--prompt", "32"]);
        let args = args.ok().unwrap().generate;
        let ours = our_command(&args, Path::new("emberlm-bench"), "gpt2-small");
        assert_eq!(
            workspace::shown(&ours),
            "emberlm-bench bench-generate --preset gpt2-small --backend flex --weights f32 --prompt 32 --tokens 64 --json"
        );
    }
}

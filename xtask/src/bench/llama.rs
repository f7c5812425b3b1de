//! `cargo xtask bench llama`: decoding and prompts of GGUF files, interleaved with llama.cpp's `llama-bench`.
//!
//! Both programs and the files are given: [results](../../../docs/results/generation.md#against-llamacpp) has the commands that
//! make them.

use std::{
    fs,
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
};

use emberlm_system::measure::{Contender, Metric, Ratio, Sample, Unit};
use serde_json::Value;

use super::peak_memory;
use super::programs::{OursArgs, Program};
use super::session::Session;
use crate::{error::Error, workspace};

/// Arguments of `cargo xtask bench llama`.
#[derive(Debug, clap::Args)]
pub struct LlamaArgs {
    /// llama.cpp's program `llama-bench`, built for this CPU (`-DGGML_NATIVE=ON`).
    #[arg(long, value_name = "FILE")]
    llama_bench: PathBuf,
    /// The GGUF files that both programs read.
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    gguf: Vec<PathBuf>,
    /// Tokens of the prompt.
    #[arg(long, default_value = "256")]
    prompt: NonZero<usize>,
    /// Tokens to decode.
    #[arg(long, default_value = "64")]
    decode: NonZero<usize>,
    /// Threads of both programs.
    #[arg(long, default_value = "2")]
    threads: NonZero<usize>,
    /// emberlm's precision of matrix products with weights in floating-point numbers: f32 or bf16. llama.cpp rounds the inputs of
    /// those with BF16 weights to bf16.
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    precision: String,
    #[command(flatten)]
    ours: OursArgs,
}

/// Builds emberlm and measures.
pub fn run(args: &LlamaArgs, session: &mut Session) -> Result<(), Error> {
    let binary = args.ours.ready(Program::Emberlm, session)?;
    for (name, value) in [
        ("prompt", args.prompt),
        ("decode", args.decode),
        ("threads", args.threads),
    ] {
        session.record.parameter(name, value);
    }
    session.record.parameter("precision", &args.precision);
    let rounds = session.rounds(5);
    for file in &args.gguf {
        let bytes = fs::metadata(file).map_err(Error::read(file))?.len();
        let (ours, theirs) = (
            || our_command(args, &binary, file),
            || their_command(args, file),
        );
        let contenders = vec![
            Contender::new("emberlm", || measured(&mut ours(), our_speed, bytes)),
            Contender::new("llama.cpp", || measured(&mut theirs(), their_speed, bytes)),
        ];
        let workload = file.file_stem().unwrap_or_default().to_string_lossy();
        session.compare(workload, Ratio::FirstToOther, rounds, contenders)?;
    }
    Ok(())
}

/// Runs a program, and reads the speeds of decoding and of the prompt from its output.
fn measured(
    command: &mut Command,
    speeds: fn(&Value) -> Option<[f64; 2]>,
    bytes: u64,
) -> Result<Sample, Error> {
    let (output, peak) = peak_memory::run(command)?;
    let found = serde_json::from_str(&output).ok();
    let Some([decode, prompt]) = found.as_ref().and_then(speeds) else {
        return Err(Error::Measurement {
            command: workspace::shown(command),
            field: "tokens per second of both tests",
            output: output.trim().to_owned(),
        });
    };
    Ok(Sample {
        version: None,
        values: vec![
            (Metric::new("decoding", Unit::TokensPerSecond), decode),
            (Metric::new("prompt", Unit::TokensPerSecond), prompt),
            (Metric::new("peak", Unit::Bytes), peak),
            (Metric::new("file", Unit::Bytes), bytes as f64),
        ],
    })
}

/// The speeds of `emberlm bench --json`.
fn our_speed(models: &Value) -> Option<[f64; 2]> {
    let tests = models[0]["tests"].as_array()?;
    let speed = |prefix: &str| {
        let mut tests = tests.iter();
        let is_test = |test: &&Value| {
            test["test"]
                .as_str()
                .is_some_and(|it| it.starts_with(prefix))
        };
        tests.find(is_test)?["tokens_per_second"].as_f64()
    };
    Some([speed("tg")?, speed("pp")?])
}

/// The speeds of `llama-bench -o json`.
fn their_speed(tests: &Value) -> Option<[f64; 2]> {
    let speed = |kind: &str| {
        let mut tests = tests.as_array()?.iter();
        let test = tests.find(|test| test[kind].as_u64().is_some_and(|tokens| tokens > 0))?;
        test["avg_ts"].as_f64()
    };
    Some([speed("n_gen")?, speed("n_prompt")?])
}

fn our_command(args: &LlamaArgs, binary: &Path, file: &Path) -> Command {
    let mut command = Command::new(binary);
    command.arg("bench").arg(file);
    command.args(["--prompt", &args.prompt.to_string()]);
    command.args(["--decode", &args.decode.to_string()]);
    command.args(["--repeat", "1", "--json"]);
    command.args(["--precision", &args.precision]);
    command.args(["--backend", &args.ours.backend]);
    command.env("RAYON_NUM_THREADS", args.threads.to_string());
    command
}

fn their_command(args: &LlamaArgs, file: &Path) -> Command {
    let mut command = Command::new(&args.llama_bench);
    command.arg("-m").arg(file);
    command.args(["-p", &args.prompt.to_string()]);
    command.args(["-n", &args.decode.to_string()]);
    command.args(["-r", "1", "-o", "json"]);
    command.args(["-t", &args.threads.to_string(), "-ngl", "0"]);
    command
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Wrapper {
        #[command(flatten)]
        llama: LlamaArgs,
    }

    fn parsed(line: &str) -> Result<LlamaArgs, clap::Error> {
        Wrapper::try_parse_from(line.split_whitespace()).map(|wrapper| wrapper.llama)
    }

    #[test]
    fn both_programs_get_the_same_sizes() {
        let line = "llama --llama-bench build/llama-bench --gguf a.gguf b.gguf --prompt 32 --threads 3 --precision bf16";
        let args = parsed(line).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(args.gguf.len(), 2);
        let file = Path::new("a.gguf");
        let ours = our_command(&args, Path::new("emberlm"), file);
        assert_eq!(
            workspace::shown(&ours),
            "emberlm bench a.gguf --prompt 32 --decode 64 --repeat 1 --json --precision bf16 --backend flex"
        );
        let threads = ours.get_envs().next().unwrap();
        assert_eq!(threads, ("RAYON_NUM_THREADS".as_ref(), Some("3".as_ref())));
        assert_eq!(
            workspace::shown(&their_command(&args, file)),
            "build/llama-bench -m a.gguf -p 32 -n 64 -r 1 -o json -t 3 -ngl 0"
        );
    }

    #[test]
    fn the_output_of_both_programs_is_read() {
        let ours = serde_json::json!([{"model": "a.gguf", "tests": [{"test": "pp32", "tokens_per_second": 600.5},
            {"test": "tg8", "tokens_per_second": 50.25}]}]);
        assert_eq!(our_speed(&ours), Some([50.25, 600.5]));
        // The fields of llama-bench's output that are read.
        let theirs = serde_json::json!([{"n_prompt": 32, "n_gen": 0, "avg_ts": 226.26},
            {"n_prompt": 0, "n_gen": 8, "avg_ts": 24.69}]);
        assert_eq!(their_speed(&theirs), Some([24.69, 226.26]));
        let none = serde_json::json!([]);
        assert_eq!((our_speed(&none), their_speed(&none)), (None, None));
    }
}

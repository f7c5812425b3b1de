//! `emberlm-bench prepare`: the speed and memory of `emberlm prepare`, or of tiktoken-rs on one thread. `cargo
//! xtask bench prepare` runs it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Instant;

use clap::Args;
use emberlm_data::prepare;
use emberlm_tokenizer::{TokenizerChoice, TokenizerKind};
use emberlm_trainer::memory::peak_rss_mib;
use tiktoken_rs::CoreBPE;

use emberlm_cli::shared::CliError;
use emberlm_cli::shared::print_json;
use emberlm_cli::shared::{self, prepare_options};

/// Arguments of `prepare`.
#[derive(Debug, Args)]
pub struct PrepareArgs {
    /// Measure tiktoken-rs's `encode_ordinary` on one thread instead, on the documents of one JSONL file
    #[arg(long)]
    pub tiktoken: bool,
    /// Maximum size of the text for tiktoken-rs in bytes
    #[arg(long, value_name = "N", default_value_t = u64::MAX)]
    pub limit: u64,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub prepare: shared::PrepareArgs,
}

/// The result of a measurement.
struct Measured {
    program: String,
    threads: usize,
    documents: u64,
    bytes: u64,
    tokens: u64,
    seconds: f64,
}

/// Runs the command and prints the result as JSON.
///
/// # Errors
/// The corpus cannot be prepared.
pub fn run(args: PrepareArgs) -> Result<(), CliError> {
    let measured = match args.tiktoken {
        true => tiktoken(&args)?,
        false => ours(&args)?,
    };
    let rounded = |x: f64| (x * 1000.0).round() / 1000.0;
    print_json(&serde_json::json!({
        "program": measured.program,
        "threads": measured.threads,
        "documents": measured.documents,
        "bytes": measured.bytes,
        "tokens": measured.tokens,
        "seconds": rounded(measured.seconds),
        "peak_rss_mib": peak_rss_mib(),
    }))
}

/// Measures reading, tokenizing, writing and hashing.
fn ours(args: &PrepareArgs) -> Result<Measured, CliError> {
    let shared::PrepareArgs { inputs, out, .. } = &args.prepare;
    let started = Instant::now();
    let prepared = prepare(inputs, out, &prepare_options(&args.prepare), &|_| {})?;
    let seconds = started.elapsed().as_secs_f64();
    let splits = &prepared.manifest.splits;
    let all_cores = || std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Measured {
        program: format!("emberlm {} prepare", env!("CARGO_PKG_VERSION")),
        threads: args.prepare.threads.map_or_else(all_cores, usize::from),
        documents: splits.train.documents + splits.val.documents,
        bytes: splits.train.bytes + splits.val.bytes,
        tokens: splits.train.tokens + splits.val.tokens,
        seconds,
    })
}

/// Measures tokenization only.
fn tiktoken(args: &PrepareArgs) -> Result<Measured, CliError> {
    let [path] = &args.prepare.inputs[..] else {
        return Err(CliError::usage("--tiktoken takes one file"));
    };
    let core = core(&args.prepare.tokenizer)?;
    let texts = texts(path, args.limit)?;
    let started = Instant::now();
    let tokens: u64 = texts
        .iter()
        .map(|text| core.encode_ordinary(text).len() as u64)
        .sum();
    Ok(Measured {
        program: "tiktoken-rs encode_ordinary".to_owned(),
        threads: 1,
        documents: texts.len() as u64,
        bytes: texts.iter().map(|text| text.len() as u64).sum(),
        tokens,
        seconds: started.elapsed().as_secs_f64(),
    })
}

fn core(tokenizer: &TokenizerChoice) -> Result<&'static CoreBPE, CliError> {
    match tokenizer {
        TokenizerChoice::Named(TokenizerKind::Gpt2) => Ok(tiktoken_rs::r50k_base_singleton()),
        TokenizerChoice::Named(TokenizerKind::P50k) => Ok(tiktoken_rs::p50k_base_singleton()),
        TokenizerChoice::Named(TokenizerKind::Cl100k) => Ok(tiktoken_rs::cl100k_base_singleton()),
        TokenizerChoice::Named(TokenizerKind::O200k) => Ok(tiktoken_rs::o200k_base_singleton()),
        other => Err(CliError::usage(format!("tiktoken-rs has no `{other}`"))),
    }
}

/// The first documents of a JSONL file, up to `limit` bytes of text.
fn texts(path: &Path, limit: u64) -> Result<Vec<String>, CliError> {
    let file = File::open(path).map_err(CliError::io("read", path))?;
    let mut texts = Vec::new();
    let mut bytes = 0;
    for line in BufReader::new(file).lines() {
        let line = line.map_err(CliError::io("read", path))?;
        let text = text(path, &line)?;
        bytes += text.len() as u64;
        if bytes > limit {
            break;
        }
        texts.push(text);
    }
    Ok(texts)
}

fn text(path: &Path, line: &str) -> Result<String, CliError> {
    #[derive(serde::Deserialize)]
    struct Record {
        text: String,
    }
    let record: Record = serde_json::from_str(line)
        .map_err(|error| CliError::new(format!("{}: {error}", path.display())))?;
    Ok(record.text)
}

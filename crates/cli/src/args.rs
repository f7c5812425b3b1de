//! Command-line definitions and parsing.

use std::error::Error;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueHint};
use emberlm_system::text::{escaped, is_harmless};

use emberlm_generate::SETTINGS;
use emberlm_model::WeightFormat;
use emberlm_tokenizer::TokenizerChoice;

use crate::adapter_arg::AdapterArg;
use crate::arg_forms;
use crate::backend::BackendArg;
use crate::cache_arg::CacheArg;
use crate::commands::attention::weights::AttentionOf;
use crate::commands::bench::BenchArgs;
use crate::commands::chat::ChatArgs;
use crate::commands::classify::ClassifyArgs;
use crate::commands::completions::CompletionsArgs;
use crate::commands::data::DataArgs;
use crate::commands::devices::DevicesArgs;
use crate::commands::doctor::DoctorArgs;
use crate::commands::doctor::measure::MeasureArgs;
use crate::commands::embed::EmbedArgs;
use crate::commands::eval::EvalArgs;
use crate::commands::export::ExportArgs;
use crate::commands::fit::FitArgs;
use crate::commands::fit_step::FitStepArgs;
use crate::commands::generate::choice::ChoiceArgs;
use crate::commands::logits::LogitsArgs;
use crate::commands::man::ManArgs;
use crate::commands::merge::MergeArgs;
use crate::commands::models::ModelsArgs;
use crate::commands::plot::PlotArgs;
use crate::commands::prepare::PrepareArgs;
use crate::commands::pull::PullArgs;
use crate::commands::reference::ReferenceArgs;
use crate::commands::runs::RunsArgs;
use crate::commands::serve::ServeArgs;
use crate::commands::sweep::SweepArgs;
use crate::commands::tokenizer::TokenizerArgs;
use crate::commands::train::TrainArgs;
use crate::commands::watch::WatchArgs;
use crate::error::CliError;
use crate::examples;
use crate::foreign;
use crate::memory_guard::MemoryArg;
use crate::new_folder::folder_parser;
use crate::plot::PictureFile;
use crate::values;

/// Train, evaluate and sample GPT-class language models
#[derive(Debug, Parser)]
#[command(name = "emberlm", version, max_term_width = 100)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Parses this process's arguments. Returns `None` if they asked for help or the version, which is then
/// printed.
///
/// # Errors
/// Returns an error if the arguments are invalid or the requested text cannot be written to stdout.
pub fn parse<C: Parser>() -> Result<Option<C>, CliError> {
    let error = match arg_forms::parse::<C>(std::env::args_os()) {
        Ok(cli) => return Ok(Some(cli)),
        Err(error) => error,
    };
    let mut error = without_control_characters::<C>(error);
    let args: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let hint = foreign::hint(&C::command(), &error, &args);
    if let Some(error) = not_a_number(&error) {
        return Err(hint.into_iter().fold(error, CliError::hint));
    }
    if hint.is_some() {
        // Clap's suggestions are words that are spelt alike.
        for kind in [
            ContextKind::SuggestedArg,
            ContextKind::SuggestedSubcommand,
            ContextKind::SuggestedValue,
            ContextKind::Suggested,
        ] {
            error.remove(kind);
        }
    }
    match error.use_stderr() {
        // A failed write to stderr has nowhere to be reported.
        true => drop(error.print()),
        false => error.print().map_err(CliError::stdout)?,
    }
    match error.exit_code() {
        0 => Ok(None),
        _ => Err(hint
            .into_iter()
            .fold(CliError::reported_usage(), CliError::hint)),
    }
}

/// Clap repeats arguments in its messages. If an argument contains control characters, parses the escaped
/// arguments again and returns that error instead.
fn without_control_characters<C: Parser>(error: clap::Error) -> clap::Error {
    let args: Vec<String> = std::env::args_os()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    if args.iter().all(|arg| arg.chars().all(is_harmless)) {
        return error;
    }
    let escaped = args.iter().map(|arg| escaped(arg).into_owned().into());
    arg_forms::parse::<C>(escaped).err().unwrap_or(error)
}

/// Rewrites an error of Rust's number parsers, whose messages ("invalid digit found in string") do not state
/// the rule.
fn not_a_number(error: &clap::Error) -> Option<CliError> {
    let source = error.source()?;
    let rule = match source.downcast_ref::<ParseIntError>() {
        Some(error) => match error.kind() {
            IntErrorKind::PosOverflow => "the number is too large",
            _ => "must be a whole number, 0 or more",
        },
        None if source.is::<ParseFloatError>() => "must be a number",
        None => return None,
    };
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    };
    let (arg, value) = (
        context(ContextKind::InvalidArg)?,
        context(ContextKind::InvalidValue)?,
    );
    Some(CliError::usage(format!(
        "invalid value '{value}' for '{arg}': {rule}"
    )))
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Convert texts and records into a dataset
    Prepare(PrepareArgs),
    /// Inspect, verify, adopt and export datasets
    Data(DataArgs),
    /// Train, compare and convert tokenizers
    Tokenizer(TokenizerArgs),
    /// Train a model
    Train(Box<TrainArgs>),
    /// Train many configurations and compare them
    Sweep(SweepArgs),
    /// Draw loss and metric curves of runs
    Plot(PlotArgs),
    /// List, tag and compare runs
    Runs(RunsArgs),
    /// Serve a live page of runs
    Watch(WatchArgs),
    /// Find a micro-batch that fits into memory
    Fit(FitArgs),
    /// List the devices of this machine
    Devices(DevicesArgs),
    /// Compare a backend with the CPU on this machine
    Doctor(DoctorArgs),
    /// Continue a text
    Generate(GenerateArgs),
    /// Chat with a model
    Chat(Box<ChatArgs>),
    /// Serve models over HTTP: an OpenAI-compatible API and a playground
    Serve(ServeArgs),
    /// Measure the speed of a model: prompts and decoding
    Bench(BenchArgs),
    /// Evaluate a model on a dataset, HellaSwag or LAMBADA
    Eval(EvalArgs),
    /// Print the embeddings of texts
    Embed(EmbedArgs),
    /// Print the labels of texts
    Classify(ClassifyArgs),
    /// Write a model's logits for given tokens
    Logits(LogitsArgs),
    /// Show the attention weights of a model's heads
    Attention(AttentionArgs),
    /// List the models on this machine: the Hugging Face cache and trained runs
    Models(ModelsArgs),
    /// Download models of the Hugging Face Hub
    Pull(PullArgs),
    /// Show the size of a model or preset, or list the presets
    Info(InfoArgs),
    /// Create a model with initial weights
    New(NewArgs),
    /// Write a model as a Hugging Face directory
    Export(ExportArgs),
    /// Add an adapter to the weights of its model
    Merge(MergeArgs),
    /// Print shell completions
    Completions(CompletionsArgs),
    /// Write a man page for each command
    Man(ManArgs),
    /// Measure the memory of training steps (run by `emberlm fit`)
    #[command(hide = true)]
    FitStep(FitStepArgs),
    /// Measure speed and memory (run by `emberlm doctor --full`)
    #[command(hide = true)]
    Measure(MeasureArgs),
    /// Print a generated page of the documentation
    #[command(hide = true)]
    Reference(ReferenceArgs),
}

/// Arguments of `generate`.
#[derive(Debug, Args)]
#[command(after_help = examples::GENERATE)]
pub struct GenerateArgs {
    /// A run, checkpoint or Hugging Face directory
    pub model: PathBuf,
    /// The text to continue, or an encoder–decoder's source [default: start a new document]
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "tokens",
        help_heading = "Input"
    )]
    pub prompt: Option<String>,
    /// The token ids to continue, or an encoder–decoder's source, such as 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = values::token_id, help_heading = "Input")]
    pub tokens: Option<Vec<u32>>,
    /// Maximum number of tokens to generate [default: the model's, or 200]
    #[arg(long, alias = "max-tokens", value_name = "N", value_parser = values::count, help_heading = "Length")]
    pub max_new_tokens: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub choice: ChoiceArgs,
    /// Stop before TEXT; can be repeated
    #[arg(long, value_name = "TEXT", value_parser = values::stop, help_heading = "Length")]
    pub stop: Vec<String>,
    /// Search for the most probable text with N beams, instead of choosing one token after the other
    #[arg(
        long,
        value_name = "N",
        value_parser = values::count,
        conflicts_with_all = SETTINGS.iter().map(|setting| setting.name).chain([
            "draft", "logit_bias", "json_schema", "regex", "seed", "logprobs", "stop",
        ]),
        help_heading = "Beam search"
    )]
    pub beams: Option<usize>,
    /// Score a text by its log-probability divided by its length to this power: above 0 favours long texts
    #[arg(
        long,
        value_name = "X",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        requires = "beams",
        help_heading = "Beam search"
    )]
    pub length_penalty: f64,
    /// A smaller draft model with the same tokens: the same text at temperature 0, the same distribution otherwise, in fewer
    /// passes
    #[arg(long, value_name = "MODEL", help_heading = "Model")]
    pub draft: Option<PathBuf>,
    /// Number of draft tokens per pass of the model
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        requires = "draft",
        help_heading = "Model"
    )]
    pub draft_tokens: usize,
    /// Format of the weights of linear layers and the head: f32, int8 for less memory and more speed, or a type of GGUF files
    /// for still less memory (`emberlm eval` measures the loss in quality) [default: as they are stored]
    #[arg(long, value_name = "TYPE", value_parser = values::weights_parser(), help_heading = "Model")]
    pub weights: Option<WeightFormat>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub cache: CacheArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapter: AdapterArg,
    /// Print {"tokens": [...], "text": "...", "finish": "length" or "stop"} after generation
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// With --json: print each token's log-probability, and those of the N most probable tokens at its position
    #[arg(long, value_name = "N", requires = "json", help_heading = "Output")]
    pub logprobs: Option<usize>,
    /// Print the sampling settings with their sources, and the prompt and generation speeds, on stderr
    #[arg(long, short, help_heading = "Output")]
    pub verbose: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub memory: MemoryArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Arguments of `attention`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("text").required(true).args(["prompt", "tokens"]))]
#[command(after_help = examples::ATTENTION)]
pub struct AttentionArgs {
    /// A run, checkpoint or Hugging Face directory
    pub model: PathBuf,
    /// The text, or an encoder–decoder's source
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// The token ids, or an encoder–decoder's source, such as 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = values::token_id)]
    pub tokens: Option<Vec<u32>>,
    /// The attention of an encoder–decoder to look at [default: cross]
    #[arg(long, value_name = "STACK", value_enum)]
    pub of: Option<AttentionOf>,
    /// An encoder–decoder's target [default: the most probable one, at most 32 tokens]
    #[arg(long, value_name = "TEXT", conflicts_with = "target_tokens")]
    pub target: Option<String>,
    /// The token ids of an encoder–decoder's target, without the start token
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = values::token_id)]
    pub target_tokens: Option<Vec<u32>>,
    /// Draw the weights: a row of panels per layer, a column per head [default: print a summary]
    #[arg(long, value_name = PictureFile::VALUE_NAME, value_parser = PictureFile::parse, value_hint = ValueHint::FilePath)]
    pub out: Option<PictureFile>,
    /// Only this layer, from 0
    #[arg(long, value_name = "N")]
    pub layer: Option<usize>,
    /// Only this head, from 0
    #[arg(long, value_name = "N")]
    pub head: Option<usize>,
    /// Print {"tokens", "heads": [{"layer", "head", "entropy", "distance", "previous", "first"}]}; for cross-attention with
    /// "target", and without "distance" and "previous"
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapter: AdapterArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Arguments of `info`.
#[derive(Debug, Args)]
#[command(after_help = examples::INFO)]
pub struct InfoArgs {
    /// A run, checkpoint or Hugging Face directory, or a preset's name; without it, the presets are listed
    #[arg(value_name = "MODEL|PRESET")]
    pub subject: Option<String>,
    /// Number of token ids, for a preset
    #[arg(long, value_name = "N", requires = "subject", value_parser = values::at_least_one)]
    pub vocab_size: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapter: AdapterArg,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `new`.
#[derive(Debug, Args)]
#[command(after_help = examples::NEW)]
pub struct NewArgs {
    /// The model: a decoder that `emberlm info` lists; bert-nano, a small encoder; or t5-nano, a small encoder–decoder
    #[arg(long, value_name = "NAME")]
    pub preset: String,
    /// The tokenizer, which sets the number of token ids: gpt2, p50k, cl100k, o200k, byte, or a path [default: none; the model
    /// takes token ids only]
    #[arg(long, value_name = "NAME|PATH", value_parser = values::tokenizer)]
    pub tokenizer: Option<TokenizerChoice>,
    /// The model's folder
    #[arg(long, value_name = "MODEL", value_parser = folder_parser("a model"))]
    pub out: PathBuf,
    /// The seed of the initial weights
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Number of token ids, such as 50304 for GPT-2's padded to a multiple of 64 [default: the tokenizer's or the preset's]
    #[arg(long, value_name = "N", value_parser = values::at_least_one)]
    pub vocab_size: Option<usize>,
    /// A setting that overrides the preset, such as model.n_layers=2; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Replace an existing model
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub memory: MemoryArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

#[cfg(test)]
mod tests {
    use clap::{Command as Parsed, CommandFactory};

    use super::*;

    /// Splits an example's shell line into words, up to a redirection. Handles single quotes.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" > ").next().unwrap_or(line);
        // Parsing the option opens the tokenizer's file.
        let line = line.replace("tokenizers/book", "byte");
        let parts = line.split('\'').enumerate();
        parts
            .flat_map(|(at, part)| match at % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            })
            .collect()
    }

    fn examples(command: &Parsed) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        let lines = help.lines().map(str::trim);
        lines
            .filter(|line| line.starts_with("emberlm "))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let whole = Cli::command();
        for command in whole
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
        {
            let examples = examples(command);
            assert!(!examples.is_empty(), "{}", command.get_name());
            for line in examples {
                let parsed = Cli::try_parse_from(words(&line));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }
}

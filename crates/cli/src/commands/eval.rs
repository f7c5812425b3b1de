//! `emberlm eval`: a model's loss on a dataset split, or its score on a published benchmark.

mod among_ranks;
mod prepared;
mod scored_text;
mod split;
mod split_report;
mod task;
mod task_files;
mod text;
mod token_page;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, ValueHint};
use emberlm_checkpoint::Model;
use emberlm_data::{Packing, Split};
use emberlm_model::CacheFormat;
use emberlm_trainer::fit::{HeldWeights, InferenceWork};
use emberlm_trainer::tasks::Task;

use crate::adapter_arg::AdapterArg;
use crate::backend::{BackendArg, Placement};
use crate::cache_arg::CacheArg;
use crate::error::CliError;
use crate::examples;
use crate::memory_guard::MemoryArg;
use crate::model;
use crate::ranks::Ranks;
use crate::values::{at_least_one, packing_parser};
use crate::weights_arg::WeightsArg;

/// Arguments of `eval`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["data", "task", "core", "hellaswag", "lambada", "text"]))]
#[command(after_help = examples::EVAL)]
pub struct EvalArgs {
    /// A run, checkpoint or Hugging Face directory
    pub model: PathBuf,
    /// The dataset's folder, made by `emberlm prepare`; several are evaluated one after the other
    #[arg(long, value_name = "DATASET", num_args = 1.., help_heading = "Data")]
    pub data: Vec<PathBuf>,
    /// A task or a group of tasks in lm-evaluation-harness's YAML format over local files; may be given several times
    #[arg(long, value_name = "FILE.yaml", value_hint = ValueHint::FilePath, help_heading = "Data")]
    pub task: Vec<PathBuf>,
    /// A folder in the format of nanochat's eval_bundle: CORE, the mean accuracy above chance of its tasks
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, help_heading = "Data")]
    pub core: Option<PathBuf>,
    /// HellaSwag's published file: choose the ending of each item, as llm.c and lm-evaluation-harness do
    #[arg(long, value_name = "FILE.jsonl", help_heading = "Data")]
    pub hellaswag: Option<PathBuf>,
    /// LAMBADA's file as OpenAI published it: predict each passage's last word
    #[arg(long, value_name = "FILE.jsonl", help_heading = "Data")]
    pub lambada: Option<PathBuf>,
    /// A text, of which every token is scored
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Data")]
    pub text: Option<PathBuf>,
    /// The split of the dataset
    #[arg(
        long, value_name = "NAME", default_value = Split::Val.name(), value_parser = split_parser(),
        conflicts_with_all = ["task", "core", "hellaswag", "lambada", "text"], help_heading = "Data")]
    pub split: Split,
    /// Documents of one window attend to each other (stream) or do not (isolated) [default: isolated for conversations and
    /// several documents, else stream]
    #[arg(
        long, value_name = "PACKING", value_parser = packing_parser(),
        conflicts_with_all = ["task", "core", "hellaswag", "lambada", "text"], help_heading = "Windows")]
    pub documents: Option<Packing>,
    /// Also print the loss by position in the window, which shows if the model uses its context
    #[arg(long, conflicts_with_all = ["task", "core", "hellaswag", "lambada", "text"], help_heading = "Output")]
    pub per_position: bool,
    /// Few-shot examples before each item of --task, instead of the file's number
    #[arg(long, value_name = "N", requires = "task", help_heading = "Data")]
    pub num_fewshot: Option<usize>,
    /// Only the first N items of the file; with --core of each task, in nanochat's order
    #[arg(long, value_name = "N", value_parser = at_least_one, conflicts_with_all = ["data", "text"], help_heading = "Data")]
    pub limit: Option<usize>,
    /// Tokens of a window [default: the model's context, with --data at most 4096; of isolated documents the longest one]
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Windows")]
    pub seq_len: Option<usize>,
    /// Number of windows or texts per batch [default: about 4096 tokens]
    #[arg(long = "batch-size", alias = "batch", value_name = "N", value_parser = at_least_one, help_heading = "Windows")]
    pub batch: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub weights: WeightsArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub cache: CacheArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapter: AdapterArg,
    /// Write a page with the text of --text, its tokens shaded by their probability
    #[arg(long, value_name = "FILE.html", requires = "text", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Print JSON: with --data {"loss", "perplexity", "bits_per_byte", "bytes", "tokens", "split", "windows", "window",
    /// "stride", "documents", "context", "cut_documents"} ({"datasets": […]} with several), with --text {"loss", "perplexity", "bits_per_byte", "tokens", "scores": [{"id",
    /// "token", "loss", "rank", "top"}]}, with --task {"tasks": [{"task", "items", "num_fewshot", "metrics", "answers"}]}
    /// and, of groups, "groups": [{"group", "items", "metrics"}], with --core
    /// {"core_metric", "tasks": [{"task", "items", "num_fewshot", "accuracy", "centered", "correct"}]}, otherwise the scores and
    /// every answer
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub memory: MemoryArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

fn split_parser() -> impl TypedValueParser<Value = Split> {
    PossibleValuesParser::new(Split::ALL.map(Split::name))
        .try_map(|name| name.to_lowercase().parse::<Split>())
}

/// Evaluates the model, divided among the ranks of a job, and prints the result as text or JSON.
pub fn run(args: EvalArgs) -> Result<(), CliError> {
    let ranks = Ranks::join()?;
    let result = run_as(&args, &ranks);
    ranks.end(result)
}

fn run_as(args: &EvalArgs, ranks: &Ranks) -> Result<(), CliError> {
    if !args.task.is_empty() {
        return task_files::run(args, ranks);
    }
    if let Some(folder) = &args.core {
        return task_files::run_core(args, folder, ranks);
    }
    if !args.data.is_empty() {
        return split::run(args, &args.data, ranks);
    }
    match (&args.hellaswag, &args.lambada, &args.text) {
        (Some(path), ..) => task::run(args, Task::HellaSwag, path, ranks),
        (None, Some(path), _) => task::run(args, Task::Lambada, path, ranks),
        (None, None, Some(path)) => text::run(args, path, ranks),
        (None, None, None) => Err(CliError::usage("there is nothing to evaluate")
            .hint("pass one of --data, --task, --core, --hellaswag, --lambada and --text")),
    }
}

/// Checks that the weights and the activations of `batch` windows of `seq_len` tokens fit into memory.
fn check_memory(
    args: &EvalArgs,
    ranks: &Ranks,
    backend: Placement,
    model: &Model,
    batch: usize,
    seq_len: usize,
) -> Result<(), CliError> {
    let weights =
        model::inference_weights(model, args.weights.weights, backend.keeps_packed_weights());
    let cache = args.cache.cache;
    let of = |weights: HeldWeights, batch: usize, seq_len: usize| InferenceWork {
        // Passes in f32 have no cache.
        slots: if cache == CacheFormat::F32 { 0 } else { batch },
        capacity: seq_len,
        cache,
        ..InferenceWork::evaluation(weights, batch, seq_len)
    };
    let work = of(weights, batch, seq_len);
    let one = |work: InferenceWork| of(work.weights, 1, seq_len);
    let short = |work: InferenceWork| of(work.weights, 1, seq_len.div_ceil(4));
    let short_option = format!("--batch-size 1 --seq-len {}", seq_len.div_ceil(4));
    let guard = args.memory.guard(backend);
    let guard = guard.shared_by(ranks.local_rank().world_size());
    guard.check_inference(
        "evaluating",
        &[(model.config(), work)],
        &[("--batch-size 1", &one), (&short_option, &short)],
    )?;
    // No rank allocates before the others have looked at the available memory.
    ranks.wait_for_all();
    Ok(())
}

/// Checks that windows of the requested length fit into the model's context.
fn check_window(requested: Option<usize>, context: usize) -> Result<(), CliError> {
    match requested {
        Some(tokens) if tokens > context => Err(CliError::usage(format!(
            "--seq-len {tokens}: the model's context is {context}"
        ))),
        _ => Ok(()),
    }
}

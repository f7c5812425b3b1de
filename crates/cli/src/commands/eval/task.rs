//! Evaluates a model on a published benchmark.

use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::Device;
use emberlm_checkpoint::Model;
use emberlm_kernels::TrainingBackend;
use emberlm_tokenizer::Tokenizer;
use emberlm_trainer::config::ExchangeMemory;
use emberlm_trainer::peers::weights_hash;
use emberlm_trainer::tasks::{
    BATCH_TOKENS, ChoiceReport, Convention, Estimate, ItemAnswer, Items, LambadaReport, Likelihood,
    Question, Report, Row, Task, TaskError, WordAnswer, score,
};
use indicatif::HumanCount;
use serde::Serialize;

use super::task_files::requests_hash;
use super::{EvalArgs, check_memory, check_window};
use crate::backend::{Job, Placement};
use crate::error::{CliError, warn};
use crate::model;
use crate::output::{Align, Table, print, print_json};
use crate::progress;
use crate::ranks::Ranks;
use crate::weights_arg::Formats;

/// The model that tasks are evaluated on.
pub(super) struct Prepared {
    pub(super) backend: Placement,
    pub(super) model: Model,
    pub(super) tokenizer: Tokenizer,
    pub(super) seq_len: usize,
}

impl Prepared {
    /// Opens the model and its tokenizer.
    pub(super) fn open(args: &EvalArgs, ranks: &Ranks) -> Result<Self, CliError> {
        let backend = args.backend.choose()?.of_local_rank(ranks.local_rank());
        let model = args.adapter.open_decoder(&args.model)?;
        let Some(tokenizer) = model.tokenizer()? else {
            let folder = model.path().display();
            let message = format!("{folder} has no tokenizer, so it cannot read text");
            return Err(CliError::new(message)
                .hint("copy its tokenizer.json next to its config.json")
                .hint("or measure the loss on a dataset of token ids: --data DATASET"));
        };
        let context = model.config().seq_len();
        check_window(args.seq_len, context)?;
        Ok(Self {
            backend,
            model,
            tokenizer,
            seq_len: args.seq_len.unwrap_or(context),
        })
    }

    /// Warns about texts that are cut, and checks the memory and that all ranks score the same rows. Questions are answered
    /// one after another.
    pub(super) fn check(
        &self,
        args: &EvalArgs,
        ranks: &Ranks,
        rows: &[&Row],
        questions: &[&Question],
    ) -> Result<(), CliError> {
        let cut = rows.iter().filter(|row| row.is_cut).count();
        if cut > 0 && ranks.rank().is_zero() {
            warn(&format!(
                "{} of {} texts are longer than the context of {} tokens, and were scored without their beginning",
                HumanCount(cut as u64),
                HumanCount(rows.len() as u64),
                self.seq_len
            ));
        }
        let longest = rows.iter().map(|row| row.seq()).max().unwrap_or(1);
        let batch = args.batch.unwrap_or(BATCH_TOKENS / longest.max(1)).max(1);
        let lengths = questions
            .iter()
            .map(|question| question.prompt.len() + question.tokens);
        let longest = lengths.max().unwrap_or(1).max(longest).max(1);
        let batch = batch.min(rows.len()).max(1);
        check_memory(args, ranks, self.backend, &self.model, batch, longest)?;
        ranks.agree(
            "evaluate",
            &[
                ("the backend", self.backend.name().to_owned()),
                ("the hash of the items", requests_hash(rows, questions)),
                ("--precision", args.weights.precision.name().to_owned()),
                ("--batch-size", format!("{:?}", args.batch)),
            ],
        )
    }
}

/// Evaluates the items of the file at `path`.
pub fn run(args: &EvalArgs, task: Task, path: &Path, ranks: &Ranks) -> Result<(), CliError> {
    let prepared = Prepared::open(args, ranks)?;
    let items = Items::read(task, path, args.limit);
    let items = items.map_err(|error| {
        let unread = matches!(error, TaskError::Read { .. });
        let this = CliError::from(error);
        if unread {
            this
        } else {
            this.hint(task.format())
        }
    })?;
    let config = prepared.model.config();
    let rows = items.rows(path, &prepared.tokenizer, config, prepared.seq_len);
    let rows = rows.map_err(|error| {
        let hint = "leave the line out, or take a model whose tokenizer and context can hold it";
        CliError::from(error).hint(hint)
    })?;
    prepared.check(args, ranks, &rows.iter().collect::<Vec<_>>(), &[])?;
    let likelihoods = prepared.backend.run(Score {
        ranks,
        model: &prepared.model,
        formats: args.weights.with_cache(args.cache.cache),
        rows: &rows,
        batch: args.batch,
    })??;
    if !ranks.rank().is_zero() {
        return Ok(());
    }
    match (items.report(&likelihoods), args.json) {
        (Report::HellaSwag(report), true) => print_json(&HellaSwag::new(&report)),
        (Report::HellaSwag(report), false) => print(&hellaswag_text(&report)),
        (Report::Lambada(report), true) => print_json(&Lambada::new(&report)),
        (Report::Lambada(report), false) => print(&lambada_text(&report)),
    }
}

/// Scores rows with a model.
pub(super) struct Score<'a> {
    pub(super) ranks: &'a Ranks,
    pub(super) model: &'a Model,
    pub(super) formats: Formats,
    pub(super) rows: &'a [Row],
    pub(super) batch: Option<usize>,
}

impl Job for Score<'_> {
    type Output = Result<Vec<Likelihood>, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let decoder = model::decoder_in::<B::InnerBackend>(self.model, self.formats, &device)?;
        self.ranks.agree(
            "evaluate",
            &[("the hash of the weights", weights_hash(&decoder))],
        )?;
        let peers = self
            .ranks
            .peers::<B::InnerBackend>(ExchangeMemory::Host, &device)?;
        let tokens = self.rows.iter().map(|row| row.seq() as u64).sum();
        let bar = progress::tokens(tokens, self.ranks.rank());
        let never = || ControlFlow::Continue(());
        let done = |tokens| bar.inc(tokens);
        let found = score(&*peers, &decoder, self.rows, self.batch, done, never)?;
        bar.finish_and_clear();
        // It breaks only if it is stopped.
        Ok(found.continue_value().unwrap_or_default())
    }
}

/// The output of `--json` for HellaSwag.
#[derive(Serialize)]
struct HellaSwag<'a> {
    task: &'static str,
    items: usize,
    llm_c: Option<Accuracies>,
    lm_evaluation_harness: Option<Accuracies>,
    answers: &'a [ItemAnswer],
}

#[derive(Serialize)]
struct Accuracies {
    acc: f64,
    acc_stderr: Option<f64>,
    acc_norm: f64,
    acc_norm_stderr: Option<f64>,
}

impl<'a> HellaSwag<'a> {
    fn new(report: &'a ChoiceReport) -> Self {
        let under = |convention: Convention| {
            let mut all = report.conventions.iter();
            let found = all.find(|found| found.convention == convention)?;
            Some(Accuracies {
                acc: found.accuracy.value,
                acc_stderr: found.accuracy.stderr,
                acc_norm: found.normalized.value,
                acc_norm_stderr: found.normalized.stderr,
            })
        };
        Self {
            task: "hellaswag",
            items: report.answers.len(),
            llm_c: under(Convention::LlmC),
            lm_evaluation_harness: under(Convention::Harness),
            answers: &report.answers,
        }
    }
}

/// The output of `--json` for LAMBADA.
#[derive(Serialize)]
struct Lambada<'a> {
    task: &'static str,
    items: usize,
    acc: f64,
    acc_stderr: Option<f64>,
    perplexity: f64,
    perplexity_stderr: Option<f64>,
    answers: &'a [WordAnswer],
}

impl<'a> Lambada<'a> {
    fn new(report: &'a LambadaReport) -> Self {
        Self {
            task: "lambada",
            items: report.answers.len(),
            acc: report.accuracy.value,
            acc_stderr: report.accuracy.stderr,
            perplexity: report.perplexity.value,
            perplexity_stderr: report.perplexity.stderr,
            answers: &report.answers,
        }
    }
}

fn hellaswag_text(report: &ChoiceReport) -> String {
    let mut table = Table::new([Align::Left, Align::Right, Align::Right]);
    table.row(["convention", "acc", "acc_norm"]);
    for found in &report.conventions {
        let (acc, norm) = (shown(found.accuracy, 4), shown(found.normalized, 4));
        table.row([found.convention.name().to_owned(), acc, norm]);
    }
    let items = HumanCount(report.answers.len() as u64);
    format!("  HellaSwag, {items} items\n{}", table.render())
}

fn lambada_text(report: &LambadaReport) -> String {
    let mut table = Table::new([Align::Left, Align::Right]);
    table.row(["acc".to_owned(), shown(report.accuracy, 4)]);
    table.row(["perplexity".to_owned(), shown(report.perplexity, 2)]);
    let items = HumanCount(report.answers.len() as u64);
    format!("  LAMBADA, {items} items\n{}", table.render())
}

/// Formats an estimate with its standard error, which a single item does not have.
pub(super) fn shown(estimate: Estimate, digits: usize) -> String {
    let value = format!("{:.digits$}", estimate.value);
    match estimate.stderr {
        Some(stderr) => format!("{value} ± {stderr:.digits$}"),
        None => value,
    }
}

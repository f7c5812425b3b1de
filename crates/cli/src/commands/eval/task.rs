//! Evaluates a model on a published benchmark.

use std::path::Path;

use emberlm_trainer::tasks::{
    ChoiceReport, Convention, Estimate, ItemAnswer, Items, LambadaReport, Report, Task, TaskError,
    WordAnswer,
};
use indicatif::HumanCount;
use serde::Serialize;

use super::EvalArgs;
use super::prepared::Prepared;
use crate::error::CliError;
use crate::output::{Align, Table, print, print_json};
use crate::ranks::Ranks;

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
    let likelihoods = prepared.likelihoods(args, ranks, &rows)?;
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

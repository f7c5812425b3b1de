//! Evaluates a model on tasks that files describe, and on CORE.

use std::ops::ControlFlow;
use std::path::Path;

use emberlm_kernels::Backend;
use emberlm_model::Transformer;
use emberlm_trainer::peers::Peers;
use emberlm_trainer::tasks::{
    CoreBenchmark, CoreReport, GroupReport, Question, Row, TaskError, TaskMetric, TaskReport,
    TaskSet,
};
use indicatif::HumanCount;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::EvalArgs;
use super::among_ranks::ModelEvaluation;
use super::prepared::Prepared;
use super::task::shown;
use crate::error::CliError;
use crate::output::{Align, Table, print, print_json};
use crate::progress;
use crate::ranks::Ranks;

/// Evaluates the tasks of `--task`.
pub fn run(args: &EvalArgs, ranks: &Ranks) -> Result<(), CliError> {
    let prepared = Prepared::open(args, ranks)?;
    let config = prepared.model.config();
    let tasks = TaskSet::open(
        &args.task,
        args.limit,
        args.num_fewshot,
        &prepared.tokenizer,
        config,
        prepared.seq_len,
    );
    let tasks = tasks.map_err(|error| match &error {
        TaskError::Line { path, reason, .. } if args.task.contains(path) => {
            let of_python = reason.contains("is not supported");
            let hint = match of_python {
                true => "the harness itself scores a served model: docs/guides/serve.md",
                false => "docs/guides/evaluate.md lists the keys of task files",
            };
            CliError::from(error).hint(hint)
        }
        _ => CliError::from(error),
    })?;
    let rows: Vec<&Row> = tasks.rows().collect();
    let questions: Vec<&Question> = tasks.questions().collect();
    prepared.check(args, ranks, &rows, &questions)?;
    let evaluation = Evaluate {
        ranks,
        tasks: &tasks,
        batch: args.batch,
    };
    let reports = prepared.evaluated(args, ranks, evaluation)?;
    if !ranks.rank().is_zero() {
        return Ok(());
    }
    let groups = tasks.groups(&reports);
    match args.json {
        true => print_json(&Tasks {
            tasks: reports.iter().map(task_json).collect(),
            groups: groups.iter().map(group_json).collect(),
        }),
        false => {
            let tasks = reports.iter().map(task_text);
            print(
                &tasks
                    .chain(groups.iter().map(group_text))
                    .collect::<String>(),
            )
        }
    }
}

/// Evaluates CORE in a folder.
pub fn run_core(args: &EvalArgs, folder: &Path, ranks: &Ranks) -> Result<(), CliError> {
    let prepared = Prepared::open(args, ranks)?;
    let core = CoreBenchmark::open(folder, args.limit)?;
    let config = prepared.model.config();
    let requests = core.requests(&prepared.tokenizer, config, prepared.seq_len)?;
    let likelihoods = prepared.likelihoods(args, ranks, &requests.rows)?;
    if !ranks.rank().is_zero() {
        return Ok(());
    }
    let report = core.report(&requests, &likelihoods);
    match args.json {
        true => print_json(&report),
        false => print(&core_text(&report)),
    }
}

/// Evaluates tasks.
struct Evaluate<'a> {
    ranks: &'a Ranks,
    tasks: &'a TaskSet,
    batch: Option<usize>,
}

impl ModelEvaluation for Evaluate<'_> {
    type Output = Vec<TaskReport>;

    fn evaluate<B: Backend>(
        self,
        decoder: &Transformer<B>,
        peers: &dyn Peers<B>,
    ) -> Result<Vec<TaskReport>, CliError> {
        let tokens = self.tasks.rows().map(|row| row.seq() as u64).sum();
        let bar = progress::tokens(tokens, self.ranks.rank());
        let never = || ControlFlow::Continue(());
        let done = |tokens| bar.inc(tokens);
        let found = self
            .tasks
            .evaluate(peers, decoder, self.batch, done, never)?;
        bar.finish_and_clear();
        // It breaks only if it is stopped.
        Ok(found.continue_value().unwrap_or_default())
    }
}

/// The output of `--json`.
#[derive(Serialize)]
struct Tasks {
    tasks: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<Value>,
}

fn task_json(report: &TaskReport) -> Value {
    json!({
        "task": report.task,
        "items": report.answers.len(),
        "num_fewshot": report.num_fewshot,
        "metrics": metrics_json(report.named()),
        "answers": report.answers,
    })
}

fn group_json(report: &GroupReport) -> Value {
    json!({
        "group": report.group,
        "items": report.items,
        "metrics": metrics_json(report.named()),
    })
}

fn metrics_json<'a>(named: impl Iterator<Item = (String, &'a TaskMetric)>) -> Map<String, Value> {
    let mut metrics = Map::new();
    for (name, metric) in named {
        metrics.insert(format!("{name}_stderr"), json!(metric.estimate.stderr));
        metrics.insert(name, json!(metric.estimate.value));
    }
    metrics.sort_keys();
    metrics
}

fn task_text(report: &TaskReport) -> String {
    let items = HumanCount(report.answers.len() as u64);
    let shots = report.num_fewshot;
    let title = format!("{}, {items} items, {shots}-shot", report.task);
    metrics_text(&title, report.named())
}

fn group_text(report: &GroupReport) -> String {
    let items = HumanCount(report.items as u64);
    metrics_text(&format!("{}, {items} items", report.group), report.named())
}

fn metrics_text<'a>(title: &str, named: impl Iterator<Item = (String, &'a TaskMetric)>) -> String {
    let mut table = Table::new([Align::Left, Align::Right]);
    for (name, metric) in named {
        table.row([name, shown(metric.estimate, 4)]);
    }
    format!("  {title}\n{}", table.render())
}

fn core_text(report: &CoreReport) -> String {
    let mut table = Table::new([
        Align::Left,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Right,
    ]);
    table.row(["task", "items", "shots", "accuracy", "centered"]);
    for task in &report.tasks {
        table.row([
            task.task.clone(),
            HumanCount(task.items as u64).to_string(),
            task.num_fewshot.to_string(),
            format!("{:.4}", task.accuracy),
            format!("{:.4}", task.centered),
        ]);
    }
    let core = format!("{:.4}", report.core_metric);
    table.row(["CORE", "", "", "", &core]);
    table.render()
}

//! Several task files that are evaluated together.

use std::ops::ControlFlow;
use std::path::PathBuf;

use emberlm_data::Tokenizer;
use emberlm_kernels::Backend;
use emberlm_model::{Transformer, TransformerConfig};

use super::{HarnessTask, Question, Row, TaskError, TaskReport, TaskRequests, answer, score};
use crate::error::TrainError;
use crate::peers::Peers;
use crate::report::metrics::{Direction, Metric, Phase};

/// Tasks with their requests to one model.
#[derive(Debug)]
pub struct TaskSet {
    tasks: Vec<(HarnessTask, TaskRequests)>,
    tokenizer: Tokenizer,
}

impl TaskSet {
    /// Reads task files, of each the first `limit` items or all, and encodes their texts for a model with a context of
    /// `seq_len`. `num_fewshot` replaces the files' number of examples.
    ///
    /// # Errors
    /// See [`HarnessTask::open`] and [`HarnessTask::requests`]; also if two tasks have one name.
    pub fn open(
        paths: &[PathBuf],
        limit: Option<usize>,
        num_fewshot: Option<usize>,
        tokenizer: &Tokenizer,
        config: &TransformerConfig,
        seq_len: usize,
    ) -> Result<Self, TaskError> {
        let mut tasks: Vec<(HarnessTask, TaskRequests)> = Vec::with_capacity(paths.len());
        for path in paths {
            let task = HarnessTask::open(path, limit, num_fewshot)?;
            if tasks.iter().any(|(other, _)| other.name() == task.name()) {
                let reason = format!("another file has a task named {}", task.name());
                return Err(TaskError::line(path, 1)(reason));
            }
            let requests = task.requests(tokenizer, config, seq_len)?;
            tasks.push((task, requests));
        }
        Ok(Self {
            tasks,
            tokenizer: tokenizer.clone(),
        })
    }

    /// The rows of all tasks.
    pub fn rows(&self) -> impl Iterator<Item = &Row> + Clone {
        self.tasks.iter().flat_map(|(_, requests)| &requests.rows)
    }

    /// The questions of all tasks.
    pub fn questions(&self) -> impl Iterator<Item = &Question> + Clone {
        self.tasks
            .iter()
            .flat_map(|(_, requests)| &requests.questions)
    }

    /// Evaluates the tasks, one after another. Batches have `batch` rows, or about 4096 tokens. `done` is called with the
    /// number of tokens of each batch. Breaks if `stop` breaks on any rank.
    ///
    /// The work is divided among the ranks of `peers`, and the result is the same on every rank.
    ///
    /// # Errors
    /// A peer cannot be reached.
    pub fn evaluate<B: Backend>(
        &self,
        peers: &dyn Peers<B>,
        decoder: &Transformer<B>,
        batch: Option<usize>,
        mut done: impl FnMut(u64),
        stop: impl Fn() -> ControlFlow<()>,
    ) -> Result<ControlFlow<(), Vec<TaskReport>>, TrainError> {
        let mut reports = Vec::with_capacity(self.tasks.len());
        for (task, requests) in &self.tasks {
            let scored = score(peers, decoder, &requests.rows, batch, &mut done, &stop)?;
            let ControlFlow::Continue(likelihoods) = scored else {
                return Ok(ControlFlow::Break(()));
            };
            let answered = answer(
                peers,
                decoder,
                &self.tokenizer,
                &requests.questions,
                || (),
                &stop,
            )?;
            let ControlFlow::Continue(answers) = answered else {
                return Ok(ControlFlow::Break(()));
            };
            reports.push(task.report(requests, &likelihoods, &answers));
        }
        Ok(ControlFlow::Continue(reports))
    }

    /// The declarations of the tasks' metrics.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let of_task = |(task, _): &(HarnessTask, TaskRequests)| {
            let declare = |(metric, lower): (String, bool)| declared(task.name(), &metric, lower);
            task.metrics().into_iter().map(declare).collect::<Vec<_>>()
        };
        self.tasks.iter().flat_map(of_task).collect()
    }
}

impl TaskReport {
    /// The values by the names of [`TaskSet::metrics`].
    pub(crate) fn values(&self) -> impl Iterator<Item = (String, f64)> + '_ {
        let value = |name: String, value: f64| (metric_name(&self.task, &name), value);
        self.named()
            .map(move |(name, metric)| value(name, metric.estimate.value))
    }
}

/// The declaration of a task's metric.
pub(super) fn declared(task: &str, metric: &str, lower_is_better: bool) -> Metric {
    let direction = match lower_is_better {
        true => Direction::LowerIsBetter,
        false => Direction::HigherIsBetter,
    };
    Metric::new(metric_name(task, metric), format!("{task} {metric}"))
        .phase(Phase::Validation)
        .direction(direction)
}

/// The name of a metric in `events.jsonl`: `arc_easy_acc_norm`.
pub(super) fn metric_name(task: &str, metric: &str) -> String {
    let allowed = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '_',
    };
    format!("{task}_{metric}").chars().map(allowed).collect()
}

//! Several task files that are evaluated together.

use std::ops::ControlFlow;
use std::path::PathBuf;

use emberlm_data::Tokenizer;
use emberlm_kernels::Backend;
use emberlm_model::{Transformer, TransformerConfig};

use super::harness::{GroupFile, Keys, Member, TaskGroup};
use super::recorded::{declared, metric_name};
use super::{
    GroupReport, HarnessTask, Question, Row, TaskError, TaskMetric, TaskReport, TaskRequests,
    answer, score,
};
use crate::error::TrainError;
use crate::peers::Peers;
use crate::report::metrics::Metric;

/// A task with its requests.
type Opened = Result<(HarnessTask, TaskRequests), TaskError>;

/// Tasks with their requests to one model, and groups of them.
#[derive(Debug)]
pub struct TaskSet {
    tasks: Vec<(HarnessTask, TaskRequests)>,
    groups: Vec<TaskGroup>,
    tokenizer: Tokenizer,
    /// False if the standard errors that need a bootstrap are left out.
    bootstrap: bool,
}

impl TaskSet {
    /// Reads files of tasks and of groups, of each task the first `limit` items or all, and encodes their texts for a model with a context of
    /// `seq_len`. `num_fewshot` replaces the files' number of examples.
    ///
    /// # Errors
    /// See [`HarnessTask::open`] and [`HarnessTask::requests`]; also if two tasks or groups have one name, or a group
    /// has a member that is not in its folder.
    pub fn open(
        paths: &[PathBuf],
        limit: Option<usize>,
        num_fewshot: Option<usize>,
        tokenizer: &Tokenizer,
        config: &TransformerConfig,
        seq_len: usize,
    ) -> Result<Self, TaskError> {
        let open = |keys: Keys| {
            let task = HarnessTask::of_keys(keys, limit, num_fewshot)?;
            let requests = task.requests(tokenizer, config, seq_len)?;
            Ok((task, requests))
        };
        let mut this = Self {
            tasks: Vec::with_capacity(paths.len()),
            groups: Vec::new(),
            tokenizer: tokenizer.clone(),
            bootstrap: true,
        };
        for path in paths {
            match Member::read(path)? {
                Member::Task(keys) => vec![this.add(keys, &open)?],
                Member::Group(group) => this.add_group(group, &open)?,
            };
        }
        Ok(this)
    }

    /// Adds a task, and returns its place.
    fn add(&mut self, keys: Keys, open: &impl Fn(Keys) -> Opened) -> Result<usize, TaskError> {
        let opened = open(keys.clone())?;
        let name = opened.0.name();
        if self.has(name) {
            return Err(keys.refuse("task", duplicate(name)));
        }
        self.tasks.push(opened);
        Ok(self.tasks.len() - 1)
    }

    /// Adds a group with its tasks, unless they are there, and returns their places.
    fn add_group(
        &mut self,
        mut group: GroupFile,
        open: &impl Fn(Keys) -> Opened,
    ) -> Result<Vec<usize>, TaskError> {
        let mut places = Vec::new();
        for member in std::mem::take(&mut group.members) {
            match member {
                Member::Task(keys) => {
                    let place = self.tasks.iter().position(|(task, _)| task.is_of(&keys));
                    places.push(match place {
                        Some(place) => place,
                        None => self.add(keys, open)?,
                    });
                }
                Member::Group(group) => places.extend(self.add_group(group, open)?),
            }
        }
        if self.has(&group.name) {
            return Err(group.refuse_name(duplicate(&group.name)));
        }
        let tasks = places.iter().map(|&place| &self.tasks[place].0);
        let metrics: Vec<_> = tasks.flat_map(HarnessTask::filtered_metrics).collect();
        let group = group.group(places.clone(), &metrics)?;
        self.groups.push(group);
        Ok(places)
    }

    /// Returns true if a task or a group has a name.
    fn has(&self, name: &str) -> bool {
        let is_task = self.tasks.iter().any(|(task, _)| task.name() == name);
        is_task || self.groups.iter().any(|group| group.name == name)
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
            reports.push(task.report(requests, &likelihoods, &answers, self.bootstrap));
        }
        Ok(ControlFlow::Continue(reports))
    }

    /// The tasks without the standard errors that need a bootstrap, which training does not record.
    pub(crate) fn without_bootstrap(self) -> Self {
        Self {
            bootstrap: false,
            ..self
        }
    }

    /// The aggregated metrics of each group that has some, from the results of [`TaskSet::evaluate`].
    pub fn groups(&self, reports: &[TaskReport]) -> Vec<GroupReport> {
        let groups = self.groups.iter().map(|group| group.report(reports));
        groups.filter(|group| !group.metrics.is_empty()).collect()
    }

    /// The values of results by the names of [`TaskSet::metrics`].
    pub(crate) fn values(&self, reports: &[TaskReport]) -> Vec<(String, f64)> {
        let value = |of: &str, (name, metric): (String, &TaskMetric)| {
            (metric_name(of, &name), metric.estimate.value)
        };
        let tasks = reports
            .iter()
            .flat_map(|report| report.named().map(|metric| value(&report.task, metric)));
        let groups = self.groups(reports);
        let groups = groups
            .iter()
            .flat_map(|group| group.named().map(|metric| value(&group.group, metric)));
        tasks.chain(groups).collect()
    }

    /// The declarations of the tasks' and groups' metrics.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let declare = |of: &str, (metric, lower): (String, bool)| declared(of, &metric, lower);
        let tasks = self.tasks.iter().flat_map(|(task, _)| {
            let metrics = task.metrics().into_iter();
            metrics.map(|metric| declare(task.name(), metric))
        });
        let groups = self.groups.iter().flat_map(|group| {
            let metrics = group.metrics();
            metrics.map(|metric| declare(&group.name, metric))
        });
        tasks.chain(groups).collect()
    }
}

/// The reason against a task or a group with the name of another one.
fn duplicate(name: &str) -> String {
    format!("another task or group is named {name}")
}

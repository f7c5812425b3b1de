//! The aggregates of metrics over the tasks of a group, as `Group.aggregate` computes them.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::config::OneOrMore;
use super::keys::Keys;
use super::metrics::MetricKind;
use super::report::{TaskMetric, TaskReport, named};
use crate::evaluate::tasks::TaskError;
use crate::evaluate::tasks::statistics::Estimate;

/// An entry of `aggregate_metric_list`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    metric: String,
    #[serde(default)]
    filter_list: Option<OneOrMore>,
    #[serde(default = "mean")]
    aggregation: String,
    #[serde(default = "by_size")]
    weight_by_size: bool,
}

fn mean() -> String {
    "mean".to_owned()
}

const fn by_size() -> bool {
    true
}

/// A metric to aggregate over the tasks of a group.
pub(super) struct Aggregate {
    kind: MetricKind,
    /// The filters; `None` for all that the tasks have.
    filters: Option<Vec<String>>,
    by_size: bool,
}

/// A group of tasks with the metrics to aggregate.
#[derive(Debug)]
pub(in crate::evaluate::tasks) struct TaskGroup {
    pub(in crate::evaluate::tasks) name: String,
    /// The places of the tasks, also of those of groups within it.
    members: Vec<usize>,
    /// Metrics with their filters, and true if the sizes of the tasks are their weights.
    metrics: Vec<(MetricKind, String, bool)>,
}

/// The aggregated metrics of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupReport {
    /// The name of the group.
    pub group: String,
    /// The number of items of all tasks.
    pub items: usize,
    /// The metrics, in the order of the file.
    pub metrics: Vec<TaskMetric>,
}

impl GroupReport {
    /// The metrics with their names and filters ([`MetricKind::filtered`]).
    pub fn named(&self) -> impl Iterator<Item = (String, &TaskMetric)> {
        named(&self.metrics)
    }
}

impl TaskGroup {
    /// The group of the tasks at the places `members`, which have the metrics `found` with these filters.
    ///
    /// # Errors
    /// None of them has a metric of the group.
    pub(super) fn new(
        name: String,
        aggregates: Vec<Aggregate>,
        keys: &Keys,
        members: Vec<usize>,
        found: &[(MetricKind, &str)],
    ) -> Result<Self, TaskError> {
        let mut metrics = Vec::new();
        for aggregate in aggregates {
            let kind = aggregate.kind;
            let all = || {
                let own = found.iter().filter(|(other, _)| *other == kind);
                let filters: BTreeSet<&str> = own.map(|(_, filter)| *filter).collect();
                filters.into_iter().map(str::to_owned).collect()
            };
            let filters: Vec<String> = aggregate.filters.unwrap_or_else(all);
            let missing = filters
                .iter()
                .find(|it| !found.contains(&(kind, it.as_str())));
            if missing.is_some() || filters.is_empty() {
                let with = missing.map(|filter| format!(" with the filter {filter}"));
                let reason = format!(
                    "no task has the metric {}{}",
                    kind.name(),
                    with.unwrap_or_default()
                );
                return Err(keys.refuse("aggregate_metric_list", reason));
            }
            let metric = |filter| (kind, filter, aggregate.by_size);
            metrics.extend(filters.into_iter().map(metric));
        }
        Ok(Self {
            name,
            members,
            metrics,
        })
    }

    /// The name of each metric ([`GroupReport::named`]), and true if lower values are better.
    pub(in crate::evaluate::tasks) fn metrics(&self) -> impl Iterator<Item = (String, bool)> + '_ {
        let metrics = self.metrics.iter();
        metrics.map(|(kind, filter, _)| (kind.filtered(filter), kind.lower_is_better()))
    }

    /// Aggregates the results of all tasks. Tasks without a metric are left out of it.
    pub(in crate::evaluate::tasks) fn report(&self, reports: &[TaskReport]) -> GroupReport {
        let reports: Vec<&TaskReport> = self.members.iter().map(|&at| &reports[at]).collect();
        let aggregate = |(kind, filter, by_size): &(MetricKind, String, bool)| {
            let of_task = |report: &&TaskReport| {
                let mut metrics = report.metrics.iter();
                let metric = metrics.find(|it| it.kind == *kind && it.filter == *filter);
                metric.map(|metric| (metric.estimate, report.answers.len()))
            };
            let parts: Vec<(Estimate, usize)> = reports.iter().filter_map(of_task).collect();
            TaskMetric {
                kind: *kind,
                filter: filter.clone(),
                estimate: Estimate::aggregate(&parts, *by_size),
            }
        };
        GroupReport {
            group: self.name.clone(),
            items: reports.iter().map(|report| report.answers.len()).sum(),
            metrics: self.metrics.iter().map(aggregate).collect(),
        }
    }
}

/// The metrics that a group aggregates.
pub(super) fn aggregates(keys: &Keys) -> Result<Vec<Aggregate>, TaskError> {
    const KEY: &str = "aggregate_metric_list";
    let entries = match keys.take::<Value>(KEY)? {
        None => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries,
        Some(one) => vec![one],
    };
    let read = |entry: &Value| {
        let entry: Entry = keys.read_value(KEY, entry)?;
        let kind = MetricKind::ALL
            .into_iter()
            .find(|kind| kind.name() == entry.metric);
        let kind = kind.ok_or_else(|| {
            keys.refuse(
                KEY,
                format!("`metric` is {}, which is not supported", entry.metric),
            )
        })?;
        if entry.aggregation != mean() {
            let reason = format!("`aggregation` must be mean (got {})", entry.aggregation);
            return Err(keys.refuse(KEY, reason));
        }
        Ok(Aggregate {
            kind,
            filters: entry.filter_list.map(OneOrMore::list),
            by_size: entry.weight_by_size,
        })
    };
    entries.iter().map(read).collect()
}

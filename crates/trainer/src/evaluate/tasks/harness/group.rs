//! Groups of tasks: a file that lists tasks, and the aggregates of their metrics, as `Group.aggregate` computes them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::config::OneOrMore;
use super::keys::Keys;
use super::metrics::MetricKind;
use super::report::{TaskMetric, TaskReport, named};
use crate::evaluate::tasks::TaskError;
use crate::evaluate::tasks::statistics::Estimate;

/// Most groups within each other.
const MAX_DEPTH: usize = 16;
/// Keys of a group.
const KNOWN: [&str; 6] = [
    "aggregate_metric_list",
    "group",
    "group_alias",
    "metadata",
    "tag",
    "task",
];

/// A file that describes a group.
pub(in crate::evaluate::tasks) struct GroupFile {
    pub(in crate::evaluate::tasks) name: String,
    pub(in crate::evaluate::tasks) members: Vec<Member>,
    aggregates: Vec<Aggregate>,
    keys: Keys,
}

/// A task or a group within a group.
pub(in crate::evaluate::tasks) enum Member {
    /// The file of a task.
    Task(PathBuf),
    Group(GroupFile),
}

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
struct Aggregate {
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

impl GroupFile {
    /// Reads a group and those within it. Returns `None` if the file describes a task.
    ///
    /// # Errors
    /// A key or a value is not supported, or a member is no name of a task, group or tag in the files of the same folder, or
    /// is in the group twice.
    pub(in crate::evaluate::tasks) fn read(path: &Path) -> Result<Option<Self>, TaskError> {
        let mut seen = BTreeSet::from([path.file_name().unwrap_or_default().to_owned()]);
        let keys = Keys::read(path, 0)?;
        match is_group(&keys)? {
            true => Self::read_within(path, keys, &mut seen, 1).map(Some),
            false => Ok(None),
        }
    }

    fn read_within(
        path: &Path,
        keys: Keys,
        seen: &mut BTreeSet<OsString>,
        depth: usize,
    ) -> Result<Self, TaskError> {
        let refuse = |reason: String| keys.refuse("task", reason);
        if depth > MAX_DEPTH {
            return Err(refuse(format!(
                "more than {MAX_DEPTH} groups within each other"
            )));
        }
        if let Some(name) = keys.names().find(|name| !KNOWN.contains(name)) {
            return Err(keys.refuse(name, format!("`{name}` is not supported in a group")));
        }
        let files = Described::beside(path)?;
        let mut members = Vec::new();
        for member in keys.take::<Vec<Value>>("task")?.unwrap_or_default() {
            let Value::String(name) = member else {
                return Err(refuse(format!(
                    "{member} is not supported in a group: write a file with these settings, and its name here"
                )));
            };
            let mut named: Vec<&Described> = files.iter().filter(|it| it.name == name).collect();
            if let [first, second, ..] = named[..] {
                let [first, second] = [first, second].map(|it| it.path.display());
                return Err(refuse(format!(
                    "{first} and {second} are both named {name}"
                )));
            }
            if named.is_empty() {
                named = files.iter().filter(|it| it.tags.contains(&name)).collect();
                named.sort_by(|one, other| one.name.cmp(&other.name));
            }
            if named.is_empty() {
                return Err(refuse(format!(
                    "no file in its folder has a task, a group or a tag named {name}"
                )));
            }
            for file in named {
                if !seen.insert(file.path.file_name().unwrap_or_default().to_owned()) {
                    return Err(refuse(format!("{} is in the group twice", file.name)));
                }
                members.push(match is_group(&file.keys)? {
                    true => {
                        let keys = file.keys.clone();
                        Member::Group(Self::read_within(&file.path, keys, seen, depth + 1)?)
                    }
                    false => Member::Task(file.path.clone()),
                });
            }
        }
        Ok(Self {
            name: keys.read_value("group", &keys.required("group")?)?,
            members,
            aggregates: aggregates(&keys)?,
            keys,
        })
    }

    /// The group of the tasks at the places `members`, which have the metrics `found` with these filters.
    ///
    /// # Errors
    /// None of them has a metric of the group.
    pub(in crate::evaluate::tasks) fn group(
        self,
        members: Vec<usize>,
        found: &[(MetricKind, &str)],
    ) -> Result<TaskGroup, TaskError> {
        let mut metrics = Vec::new();
        for aggregate in self.aggregates {
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
                return Err(self.keys.refuse("aggregate_metric_list", reason));
            }
            let metric = |filter| (kind, filter, aggregate.by_size);
            metrics.extend(filters.into_iter().map(metric));
        }
        Ok(TaskGroup {
            name: self.name,
            members,
            metrics,
        })
    }

    /// The error if another task or group has the name.
    pub(in crate::evaluate::tasks) fn refuse_name(&self) -> TaskError {
        let reason = format!("another file has a task or a group named {}", self.name);
        self.keys.refuse("group", reason)
    }
}

impl TaskGroup {
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

/// A file of a folder, with its names.
struct Described {
    path: PathBuf,
    name: String,
    tags: Vec<String>,
    keys: Keys,
}

impl Described {
    /// The readable files in the folder of `path`, in the order of their names.
    fn beside(path: &Path) -> Result<Vec<Self>, TaskError> {
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let failed = |source| TaskError::Read {
            path: folder.to_owned(),
            source,
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name());
        }
        names.retain(|name| {
            let extension = Path::new(name).extension();
            extension.is_some_and(|extension| extension == "yaml" || extension == "yml")
        });
        names.sort();
        let files = names.iter().map(|name| path.with_file_name(name));
        // Others may need Python, and are no task here.
        Ok(files.filter_map(Self::read).collect())
    }

    fn read(path: PathBuf) -> Option<Self> {
        let keys = Keys::read(&path, 0).ok()?;
        let name = match is_group(&keys).ok()? {
            true => keys.take("group").ok()??,
            false => keys.task_name(&path).ok()?,
        };
        let tags = keys.take::<OneOrMore>("tag").ok()?;
        Some(Self {
            path,
            name,
            tags: tags.map(OneOrMore::list).unwrap_or_default(),
            keys,
        })
    }
}

/// Returns true if a file describes a group.
fn is_group(keys: &Keys) -> Result<bool, TaskError> {
    let is_list = keys
        .take("task")?
        .is_some_and(|task: Value| task.is_array());
    Ok(is_list && keys.take::<Value>("group")?.is_some())
}

/// The metrics that a group aggregates.
fn aggregates(keys: &Keys) -> Result<Vec<Aggregate>, TaskError> {
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

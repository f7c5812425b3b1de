//! CORE of nanochat (`core_eval.py` and `base_eval.py`), after DCLM (Li et al. 2024, arXiv:2406.11794): in-context learning
//! tasks, each scored by its accuracy above chance.
//!
//! A folder has `core.yaml`, whose list `icl_tasks` names the tasks, `eval_meta_data.csv` with the accuracy of chance, and
//! the items in `eval_data/`. `prompts` makes the texts of an item.

mod prompts;

use std::collections::BTreeMap;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use emberlm_data::{Tokenizer, read_objects};
use emberlm_model::TransformerConfig;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::likelihood::{Likelihood, Row};
use super::lines::{self, Fields};
use super::pair::{Beginning, Limits};
use super::python_random::PythonRandom;
use super::recorded::{declared, metric_name};
use super::{TaskError, yaml};
use crate::report::metrics::Metric;
use prompts::{Item, ItemRows, Kind};

/// The seed of the order of a task's items.
const ORDER_SEED: u64 = 1337;
/// The seed of the few-shot examples of the first item.
const EXAMPLES_SEED: u64 = 1234;
/// The name in metrics.
const NAME: &str = "core";
/// The files of the folder.
const TASKS: &str = "core.yaml";
const CHANCE: &str = "eval_meta_data.csv";
const ITEMS: &str = "eval_data";

/// The tasks of CORE with their items.
#[derive(Debug)]
pub struct CoreBenchmark {
    tasks: Vec<CoreTask>,
}

#[derive(Debug)]
struct CoreTask {
    label: String,
    kind: Kind,
    shots: usize,
    delimiter: String,
    /// The accuracy of chance, from 0 to 1.
    chance: f64,
    path: PathBuf,
    items: Vec<(u64, Item)>,
}

/// The requests of CORE to a model.
#[derive(Clone, Debug, Default)]
pub struct CoreRequests {
    /// The token rows to score.
    pub rows: Vec<Row>,
    /// The rows of each item.
    items: Vec<Vec<Option<usize>>>,
}

/// The result of CORE.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CoreReport {
    /// The mean of the tasks' centered accuracies.
    pub core_metric: f64,
    /// The result of each task, in the order of the file.
    pub tasks: Vec<CoreTaskReport>,
}

/// The result of a task of CORE.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CoreTaskReport {
    /// The name of the task.
    pub task: String,
    /// The number of items.
    pub items: usize,
    /// Few-shot examples before each item.
    pub num_fewshot: usize,
    /// The share of items that are answered correctly.
    pub accuracy: f64,
    /// `(accuracy - chance) / (1 - chance)`.
    pub centered: f64,
    /// True for each item that is answered correctly, in the order in which nanochat evaluates them.
    pub correct: Vec<bool>,
}

/// An entry of `icl_tasks`.
#[derive(Deserialize)]
struct Entry {
    label: String,
    dataset_uri: String,
    num_fewshot: Vec<usize>,
    icl_task_type: String,
    #[serde(default = "space")]
    continuation_delimiter: String,
}

fn space() -> String {
    " ".to_owned()
}

impl CoreBenchmark {
    /// Reads the tasks of a folder, and of each the first `limit` items in nanochat's order, or all.
    ///
    /// # Errors
    /// A file is missing or damaged, a task has no accuracy of chance or is of an unknown type, or an item lacks a field. The
    /// error states file and line.
    pub fn open(folder: &Path, limit: Option<usize>) -> Result<Self, TaskError> {
        let path = folder.join(TASKS);
        let text = read(&path)?;
        let document =
            yaml::read(&text).map_err(|(line, reason)| TaskError::line(&path, line)(reason))?;
        let line = document.lines.get("icl_tasks").copied().unwrap_or(1);
        let refuse = |reason: String| TaskError::line(&path, line)(reason);
        let entries = document
            .fields
            .get("icl_tasks")
            .cloned()
            .unwrap_or_default();
        let entries: Vec<Entry> = serde_json::from_value(entries)
            .map_err(|error| refuse(format!("`icl_tasks` must be a list of tasks: {error}")))?;
        if entries.is_empty() {
            return Err(refuse("`icl_tasks` must have a task".to_owned()));
        }
        let chances = chances(&folder.join(CHANCE))?;
        let open = |entry: Entry| {
            let label = &entry.label;
            let chance = chances.get(label).copied();
            let chance = chance.ok_or_else(|| {
                refuse(format!(
                    "the task {label} has no random baseline in {CHANCE}"
                ))
            })?;
            let kind = Kind::ALL
                .into_iter()
                .find(|kind| kind.name() == entry.icl_task_type);
            let kind = kind.ok_or_else(|| {
                let known = Kind::ALL.map(Kind::name).join(", ");
                refuse(format!(
                    "the task {label}: `icl_task_type` must be one of {known} (got {})",
                    entry.icl_task_type
                ))
            })?;
            let shots = entry.num_fewshot.first().copied();
            let shots = shots.ok_or_else(|| {
                refuse(format!(
                    "the task {label}: `num_fewshot` must have a number"
                ))
            })?;
            CoreTask::open(folder, &entry, kind, shots, chance, limit)
        };
        Ok(Self {
            tasks: entries.into_iter().map(open).collect::<Result<_, _>>()?,
        })
    }

    /// The number of items of all tasks.
    pub fn len(&self) -> usize {
        self.tasks.iter().map(|task| task.items.len()).sum()
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The requests to a model with a context of `seq_len`.
    ///
    /// # Errors
    /// Returns the line of a text that the tokenizer cannot encode, or an id outside the model's vocabulary.
    pub fn requests(
        &self,
        tokenizer: &Tokenizer,
        config: &TransformerConfig,
        seq_len: usize,
    ) -> Result<CoreRequests, TaskError> {
        let limits = Limits {
            seq_len,
            vocab_size: config.vocab_size(),
        };
        let beginning = Beginning::of(tokenizer);
        let mut requests = CoreRequests::default();
        for task in &self.tasks {
            for (at, (line, item)) in task.items.iter().enumerate() {
                let examples = task.examples(at);
                let rows = ItemRows {
                    tokenizer,
                    beginning: &beginning,
                    limits,
                    delimiter: &task.delimiter,
                };
                let made = rows.of(task.kind, &examples, item);
                let made = made.map_err(TaskError::line(&task.path, *line as usize))?;
                let places = made.into_iter().map(|row| {
                    row.map(|row| {
                        requests.rows.push(row);
                        requests.rows.len() - 1
                    })
                });
                let places = places.collect();
                requests.items.push(places);
            }
        }
        Ok(requests)
    }

    /// Computes the result from the likelihoods of the rows of `requests`, in their order.
    pub fn report(&self, requests: &CoreRequests, likelihoods: &[Likelihood]) -> CoreReport {
        let mut places = requests.items.iter();
        let of_task = |task: &CoreTask| {
            let correct: Vec<bool> = task
                .items
                .iter()
                .zip(places.by_ref())
                .map(|((_, item), rows)| {
                    let found: Vec<_> = rows
                        .iter()
                        .map(|row| row.map(|row| likelihoods[row]))
                        .collect();
                    item.is_correct(task.kind, &found)
                })
                .collect();
            let hits = correct.iter().filter(|correct| **correct).count();
            let accuracy = hits as f64 / correct.len() as f64;
            CoreTaskReport {
                task: task.label.clone(),
                items: correct.len(),
                num_fewshot: task.shots,
                accuracy,
                centered: (accuracy - task.chance) / (1.0 - task.chance),
                correct,
            }
        };
        let tasks: Vec<CoreTaskReport> = self.tasks.iter().map(of_task).collect();
        CoreReport {
            core_metric: tasks.iter().map(|task| task.centered).sum::<f64>() / tasks.len() as f64,
            tasks,
        }
    }

    /// The declarations of the metrics of [`CoreReport::values`].
    pub(crate) fn metrics(&self) -> impl Iterator<Item = Metric> + '_ {
        let of_tasks = self.tasks.iter().map(|task| centered(&task.label));
        let names = iter::once("metric".to_owned()).chain(of_tasks);
        names.map(|name| declared(NAME, &name, false))
    }
}

impl CoreReport {
    /// The metric and the centered accuracy of each task, by their names in `events.jsonl`.
    pub(crate) fn values(&self) -> impl Iterator<Item = (String, f64)> + '_ {
        let of_task = |task: &CoreTaskReport| (centered(&task.task), task.centered);
        let of_tasks = self.tasks.iter().map(of_task);
        iter::once(("metric".to_owned(), self.core_metric))
            .chain(of_tasks)
            .map(|(name, value)| (metric_name(NAME, &name), value))
    }
}

/// The name of a task's centered accuracy.
fn centered(task: &str) -> String {
    format!("{task}_centered")
}

impl CoreTask {
    fn open(
        folder: &Path,
        entry: &Entry,
        kind: Kind,
        shots: usize,
        chance: f64,
        limit: Option<usize>,
    ) -> Result<Self, TaskError> {
        let path = folder.join(ITEMS).join(&entry.dataset_uri);
        let item = |fields: &Fields, line: usize| Ok((line as u64, Item::read(kind, fields)?));
        let mut items = lines::read(&path, None, item)?;
        PythonRandom::new(ORDER_SEED).shuffle(&mut items);
        items.truncate(limit.unwrap_or(items.len()));
        if shots >= items.len() {
            let reason = format!(
                "the task {} has {shots} few-shot examples, but only {} items",
                entry.label,
                items.len()
            );
            return Err(TaskError::line(&path, 1)(reason));
        }
        Ok(Self {
            label: entry.label.clone(),
            kind,
            shots,
            delimiter: entry.continuation_delimiter.clone(),
            chance,
            path,
            items,
        })
    }

    /// The few-shot examples of the item at a place.
    fn examples(&self, at: usize) -> Vec<&Item> {
        if self.shots == 0 {
            return Vec::new();
        }
        let mut random = PythonRandom::new(EXAMPLES_SEED + at as u64);
        let drawn = random.sample(self.items.len() - 1, self.shots);
        // The item itself is not among those drawn from.
        let other = |drawn: usize| &self.items[drawn + usize::from(drawn >= at)].1;
        drawn.into_iter().map(other).collect()
    }
}

/// The accuracy of chance of each task.
fn chances(path: &Path) -> Result<BTreeMap<String, f64>, TaskError> {
    let column = |fields: &Fields, name: &str| match fields.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(value) => Ok(value.to_string()),
        None => Err(format!("it has no column `{name}`")),
    };
    let row = |fields: &Fields, _: u64| {
        let percent = column(fields, "Random baseline")?;
        let number = percent
            .trim()
            .parse::<f64>()
            .ok()
            .filter(|percent| (0.0..100.0).contains(percent));
        let number = number.ok_or_else(|| {
            format!("`Random baseline` must be a percentage below 100 (got {percent})")
        })?;
        Ok((column(fields, "Eval Task")?, 0.01 * number))
    };
    Ok(read_objects(&[path.to_owned()], "tasks", row)?
        .into_iter()
        .collect())
}

fn read(path: &Path) -> Result<String, TaskError> {
    fs::read_to_string(path).map_err(|source| TaskError::Read {
        path: path.to_owned(),
        source,
    })
}

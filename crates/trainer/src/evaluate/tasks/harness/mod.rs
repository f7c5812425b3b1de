//! Tasks of lm-evaluation-harness, described by a file: reading items, the texts to score, and the metrics.
//!
//! The semantics are those of `ConfigurableTask` in version 0.4.13. `keys` reads the file, `config` checks its values, `fields` evaluates
//! `doc_to_text` and the like, `prompts` puts few-shot examples before them, `filters`, `metrics` and `corpus` score answers.
//! `group` reads groups of tasks, whose members `registry` finds by name, and `aggregate` aggregates their metrics.

mod aggregate;
mod config;
mod corpus;
mod fields;
mod filters;
mod group;
mod keys;
mod metrics;
mod output_type;
mod prompts;
mod registry;
mod report;

use std::path::{Path, PathBuf};

use emberlm_data::{Tokenizer, read_objects};
use emberlm_model::TransformerConfig;
use serde_json::Value;

pub use aggregate::GroupReport;
pub(super) use aggregate::TaskGroup;
use config::TaskConfig;
use fields::{Doc, DocRules, Field, columns};
pub(super) use group::{GroupFile, Member};
pub(super) use keys::Keys;
pub use metrics::MetricKind;
pub use output_type::OutputType;
use prompts::Examples;
pub use report::{TaskAnswer, TaskMetric, TaskReport};

use super::TaskError;
use super::generation::Question;
use super::likelihood::Row;
use super::lines::Fields;
use super::pair::{self, Beginning, Limits};

/// A task that a file in lm-evaluation-harness's format describes, with its items.
#[derive(Debug)]
pub struct HarnessTask {
    config: TaskConfig,
    items: Vec<HarnessItem>,
}

/// The requests of a task to a model.
#[derive(Clone, Debug, Default)]
pub struct TaskRequests {
    /// The token rows to score.
    pub rows: Vec<Row>,
    /// The prompts to answer.
    pub questions: Vec<Question>,
    /// The end of each item's rows.
    ends: Vec<usize>,
}

/// An item of a task.
#[derive(Debug)]
struct HarnessItem {
    file: PathBuf,
    /// The position in its file, from 1.
    number: u64,
    request: Request,
    answer: Reference,
}

/// The requests of an item.
#[derive(Debug)]
enum Request {
    /// The likelihood of each continuation of its context.
    Pairs(Vec<(String, String)>),
    /// The likelihood of a text.
    Rolling(String),
    /// An answer to a prompt.
    Generate(String),
}

/// The correct answer of an item.
#[derive(Debug)]
enum Reference {
    Choice {
        choices: Vec<String>,
        correct: Vec<usize>,
    },
    /// The likelihood itself is the result.
    None,
    Texts(Vec<String>),
}

/// A record with its place.
struct Record {
    file: PathBuf,
    number: u64,
    fields: Fields,
}

impl HarnessTask {
    /// Reads a task file and the first `limit` items, or all. `num_fewshot` replaces the file's number of examples.
    ///
    /// # Errors
    /// The task file has an unknown or unsupported key or value, a data file cannot be read, or an item lacks a field or has
    /// a target that is no choice. The error states file and line.
    pub fn open(
        path: &Path,
        limit: Option<usize>,
        num_fewshot: Option<usize>,
    ) -> Result<Self, TaskError> {
        Self::of_keys(Keys::read(path, 0)?, limit, num_fewshot)
    }

    /// Reads the items of the task that the keys describe.
    ///
    /// # Errors
    /// See [`HarnessTask::open`].
    pub(super) fn of_keys(
        keys: Keys,
        limit: Option<usize>,
        num_fewshot: Option<usize>,
    ) -> Result<Self, TaskError> {
        let config = TaskConfig::read(keys, num_fewshot)?;
        let split = config
            .test_split
            .as_ref()
            .or(config.validation_split.as_ref());
        let split = split.ok_or_else(|| {
            config.refuse(
                "test_split",
                "`test_split` is missing: it must name the split to evaluate".to_owned(),
            )
        })?;
        let records = read_split(&config, "test_split", split)?;
        let columns = columns(records.iter().map(|record| &record.fields));
        let records = &records[..limit.unwrap_or(records.len()).min(records.len())];
        let docs: Vec<&Fields> = records.iter().map(|record| &record.fields).collect();
        let refuse = |(key, reason): (&str, String)| config.refuse(key, reason);
        let rules = DocRules::read(
            &config.doc_to_text,
            &config.doc_to_target,
            config.doc_to_choice.as_ref(),
            &columns,
        );
        let failed = |reason: String| config.refuse("doc_to_text", reason);
        let made = rules.map_err(refuse)?.apply(&docs).map_err(failed)?;
        let description = Field::read(&Value::from(config.description.clone()), &columns)
            .map_err(|reason| config.refuse("description", format!("`description` {reason}")))?;
        let descriptions = description.values(&docs).map_err(failed)?;
        let mut examples = examples(&config, &columns)?;
        let mut items = Vec::with_capacity(records.len());
        for ((record, doc), description) in records.iter().zip(made).zip(descriptions) {
            let item = || {
                let description = prompts::description(description?.0)?;
                let examples = examples.text(&config, &record.fields)?;
                requests(&config, &doc?, &[description, examples].concat())
            };
            let (request, answer) =
                item().map_err(TaskError::line(&record.file, record.number as usize))?;
            items.push(HarnessItem {
                file: record.file.clone(),
                number: record.number,
                request,
                answer,
            });
        }
        Ok(Self { config, items })
    }

    /// The name of the task.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The file that describes the task.
    pub fn path(&self) -> &Path {
        self.config.path()
    }

    /// Returns true if the keys are those of the task.
    pub(super) fn is_of(&self, keys: &Keys) -> bool {
        self.config.is_of(keys)
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The name of each metric ([`TaskReport::named`]), and true if lower values are better.
    pub fn metrics(&self) -> Vec<(String, bool)> {
        let named =
            |(kind, filter): (MetricKind, &str)| (kind.filtered(filter), kind.lower_is_better());
        self.filtered_metrics().map(named).collect()
    }

    /// The metrics with the names of their filters.
    pub(super) fn filtered_metrics(&self) -> impl Iterator<Item = (MetricKind, &str)> {
        let filters = &self.config.filters;
        let with_filters = |metric: &metrics::Metric| {
            let kind = metric.kind;
            filters
                .iter()
                .map(move |filter| (kind, filter.name.as_str()))
        };
        self.config.metrics.iter().flat_map(with_filters)
    }

    /// The requests to a model with a context of `seq_len`.
    ///
    /// # Errors
    /// Returns the line of a text that the tokenizer cannot encode or encodes as nothing, an id outside the model's
    /// vocabulary, or a continuation that is longer than the context; or `max_gen_toks`, if no prompt fits beside it.
    pub fn requests(
        &self,
        tokenizer: &Tokenizer,
        config: &TransformerConfig,
        seq_len: usize,
    ) -> Result<TaskRequests, TaskError> {
        let limits = Limits {
            seq_len,
            vocab_size: config.vocab_size(),
        };
        let beginning = Beginning::of(tokenizer);
        let tokens = self.config.answer_tokens;
        let mut requests = TaskRequests::default();
        for item in &self.items {
            let refuse = TaskError::line(&item.file, item.number as usize);
            match &item.request {
                Request::Pairs(pairs) => {
                    let row = |(context, continuation): &(String, String)| {
                        pair::conditional(tokenizer, &beginning, context, continuation, limits)
                    };
                    let made: Result<Vec<Row>, String> = pairs.iter().map(row).collect();
                    requests.rows.extend(made.map_err(refuse)?);
                }
                Request::Rolling(text) => {
                    let made = pair::rolling(tokenizer, &beginning, text, limits);
                    requests.rows.extend(made.map_err(refuse)?);
                }
                Request::Generate(prompt) => {
                    if tokens >= seq_len {
                        let reason = format!(
                            "`max_gen_toks` is {tokens}: must be less than the model's context of {seq_len}"
                        );
                        return Err(self.config.refuse("generation_kwargs", reason));
                    }
                    let prompt =
                        pair::prompt(tokenizer, &beginning, prompt, seq_len - tokens, limits);
                    requests.questions.push(Question {
                        prompt: prompt.map_err(refuse)?,
                        tokens,
                        until: self.config.until.clone(),
                    });
                }
            }
            requests.ends.push(requests.rows.len());
        }
        Ok(requests)
    }
}

/// Reads the records of a split. `key` names it in the task file.
fn read_split(config: &TaskConfig, key: &str, split: &str) -> Result<Vec<Record>, TaskError> {
    let Some(files) = config.files.get(split) else {
        let known: Vec<&str> = config.files.keys().map(String::as_str).collect();
        let reason = format!(
            "the split {split} has no file: `dataset_kwargs.data_files` has {}",
            known.join(", ")
        );
        return Err(config.refuse(key, reason));
    };
    let mut records = Vec::new();
    for file in files {
        let read = read_objects(std::slice::from_ref(file), "items", |fields, number| {
            Ok(Record {
                file: file.clone(),
                number,
                fields: fields.clone(),
            })
        })?;
        records.extend(read);
    }
    Ok(records)
}

/// The few-shot examples of a task.
fn examples(
    config: &TaskConfig,
    columns: &std::collections::BTreeSet<String>,
) -> Result<Examples, TaskError> {
    let fewshot = &config.fewshot;
    if config.num_fewshot == 0 {
        return Ok(Examples::new(config, Vec::new(), Vec::new()));
    }
    let splits = [
        &fewshot.split,
        &config.training_split,
        &config.validation_split,
        &config.test_split,
    ];
    let records = |split: Option<&String>| match split {
        Some(split) => read_split(config, "fewshot_split", split),
        None => Ok(Vec::new()),
    };
    let docs: Vec<Fields> = match (&fewshot.split, &fewshot.samples) {
        (None, Some(samples)) => samples.clone(),
        _ => {
            let records = records(splits.into_iter().find_map(Option::as_ref))?;
            records.into_iter().map(|record| record.fields).collect()
        }
    };
    let rules = DocRules::read(
        &fewshot.doc_to_text,
        &fewshot.doc_to_target,
        fewshot.doc_to_choice.as_ref(),
        columns,
    );
    let rules = rules.map_err(|(key, reason)| config.refuse(key, reason))?;
    let made = rules.apply(&docs.iter().collect::<Vec<_>>());
    let made = made.map_err(|reason| config.refuse("fewshot_config", reason))?;
    Ok(Examples::new(config, docs, made))
}

/// The requests of an item after `before`, and its correct answer.
fn requests(config: &TaskConfig, doc: &Doc, before: &str) -> Result<(Request, Reference), String> {
    let context = |own: &str| [before, own].concat();
    let delimited = |text: &str| [config.target_delimiter.as_str(), text].concat();
    corpus::check(&config.metrics, doc)?;
    match config.output {
        OutputType::MultipleChoice => {
            let choices = doc.choices.clone().unwrap_or_default();
            let correct = doc.correct()?;
            let mut pairs: Vec<(String, String)> = match doc.prompt_number() {
                // The choices are prompts of the same target.
                Some(_) => {
                    let Value::String(target) = &doc.target else {
                        return Err(format!(
                            "`doc_to_target` must be a text, since `doc_to_text` is a number (got {})",
                            doc.target
                        ));
                    };
                    choices
                        .iter()
                        .map(|choice| (context(choice), delimited(target)))
                        .collect()
                }
                None => {
                    let context = context(doc.prompt()?);
                    choices
                        .iter()
                        .map(|choice| (context.clone(), delimited(choice)))
                        .collect()
                }
            };
            if config
                .metrics
                .iter()
                .any(|metric| metric.kind == MetricKind::AccMutualInfo)
            {
                pairs.extend(
                    choices
                        .iter()
                        .map(|choice| (String::new(), delimited(choice))),
                );
            }
            Ok((
                Request::Pairs(pairs),
                Reference::Choice { choices, correct },
            ))
        }
        OutputType::Loglikelihood => {
            let pair = (context(doc.prompt()?), doc.target_text()?);
            Ok((Request::Pairs(vec![pair]), Reference::None))
        }
        OutputType::LoglikelihoodRolling => {
            Ok((Request::Rolling(doc.target_text()?), Reference::None))
        }
        OutputType::GenerateUntil => {
            let references = doc.references()?;
            Ok((
                Request::Generate(context(doc.prompt()?)),
                Reference::Texts(references),
            ))
        }
    }
}

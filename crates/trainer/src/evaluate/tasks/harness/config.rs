//! The checked settings of a task file, in lm-evaluation-harness's schema as far as it is declarative.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::filters::Pipeline;
use super::keys::{Keys, beside};
use super::metrics::{Metric, metric};
use super::output_type::OutputType;
use crate::evaluate::tasks::TaskError;

/// Tokens of an answer, unless `max_gen_toks` sets them.
const ANSWER_TOKENS: usize = 256;

/// The selection of few-shot examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sampler {
    /// Random ones for each item, as `random.Random(1234)` draws them.
    Random,
    /// The first ones.
    First,
}

/// The checked keys of a task file.
#[derive(Debug)]
pub(super) struct TaskConfig {
    pub(super) name: String,
    pub(super) output: OutputType,
    /// The files of each split.
    pub(super) files: BTreeMap<String, Vec<PathBuf>>,
    pub(super) test_split: Option<String>,
    pub(super) validation_split: Option<String>,
    pub(super) training_split: Option<String>,
    pub(super) doc_to_text: Value,
    pub(super) doc_to_target: Value,
    pub(super) doc_to_choice: Option<Value>,
    pub(super) description: String,
    pub(super) target_delimiter: String,
    pub(super) num_fewshot: usize,
    pub(super) fewshot: Fewshot,
    pub(super) metrics: Vec<Metric>,
    pub(super) filters: Vec<Pipeline>,
    pub(super) until: Vec<String>,
    pub(super) answer_tokens: usize,
    keys: Keys,
}

/// The settings of few-shot examples.
#[derive(Debug)]
pub(super) struct Fewshot {
    pub(super) sampler: Sampler,
    pub(super) split: Option<String>,
    pub(super) samples: Option<Vec<Map<String, Value>>>,
    pub(super) doc_to_text: Value,
    pub(super) doc_to_target: Value,
    pub(super) doc_to_choice: Option<Value>,
    pub(super) target_delimiter: String,
    pub(super) delimiter: String,
}

/// A text or a list of texts.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    /// The texts.
    pub(super) fn list(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::More(more) => more,
        }
    }
}

impl TaskConfig {
    /// Checks the keys of a task. `num_fewshot` replaces theirs.
    pub(super) fn read(keys: Keys, num_fewshot: Option<usize>) -> Result<Self, TaskError> {
        keys.check_names()?;
        let name = keys.task_name()?;
        let output = match keys.take::<String>("output_type")? {
            None => OutputType::GenerateUntil,
            Some(name) => {
                let found = OutputType::ALL
                    .into_iter()
                    .find(|output| output.name() == name);
                found.ok_or_else(|| {
                    let known = OutputType::ALL.map(OutputType::name).join(", ");
                    keys.refuse(
                        "output_type",
                        format!("`output_type` must be one of {known} (got {name})"),
                    )
                })?
            }
        };
        let fewshot_delimiter: String = keys
            .take("fewshot_delimiter")?
            .unwrap_or_else(|| "\n\n".to_owned());
        let target_delimiter: String = keys
            .take("target_delimiter")?
            .unwrap_or_else(|| " ".to_owned());
        let fewshot_split = keys.take("fewshot_split")?;
        let files = keys.files()?;
        let doc_to_target = keys.required("doc_to_target")?;
        let doc_to_text = match output {
            // It is not read.
            OutputType::LoglikelihoodRolling => {
                keys.take("doc_to_text")?.unwrap_or_else(|| Value::from(""))
            }
            _ => keys.required("doc_to_text")?,
        };
        let doc_to_choice: Option<Value> = keys.take("doc_to_choice")?;
        if output == OutputType::MultipleChoice && doc_to_choice.is_none() {
            return Err(keys.refuse(
                "output_type",
                "`doc_to_choice` is missing: `output_type` is multiple_choice".to_owned(),
            ));
        }
        if keys.take::<usize>("repeats")?.unwrap_or(1) != 1 {
            return Err(keys.refuse(
                "repeats",
                "`repeats` must be 1: answers are greedy".to_owned(),
            ));
        }
        let fewshot = keys.fewshot(
            fewshot_split,
            (&doc_to_text, &doc_to_target, doc_to_choice.as_ref()),
            &target_delimiter,
            &fewshot_delimiter,
        )?;
        let (until, answer_tokens) = keys.generation(&fewshot_delimiter)?;
        Ok(Self {
            name,
            output,
            files,
            test_split: keys.take("test_split")?,
            validation_split: keys.take("validation_split")?,
            training_split: keys.take("training_split")?,
            doc_to_text,
            doc_to_target,
            doc_to_choice,
            description: keys.take("description")?.unwrap_or_default(),
            num_fewshot: match (num_fewshot, keys.take::<usize>("num_fewshot")?) {
                (Some(given), _) => given,
                (None, own) => own.unwrap_or(0),
            },
            target_delimiter,
            fewshot,
            metrics: keys.metrics(output)?,
            filters: keys.filters(output)?,
            until,
            answer_tokens,
            keys,
        })
    }

    /// The file that describes the task.
    pub(super) fn path(&self) -> &Path {
        self.keys.path()
    }

    /// Returns true if the keys are those of the task.
    pub(super) fn is_of(&self, keys: &Keys) -> bool {
        self.keys.same_as(keys)
    }

    /// The error for the value of a key.
    pub(super) fn refuse(&self, key: &str, reason: String) -> TaskError {
        self.keys.refuse(key, reason)
    }
}

impl Keys {
    /// The local files of each split.
    fn files(&self) -> Result<BTreeMap<String, Vec<PathBuf>>, TaskError> {
        let Some(name) = self.take::<String>("dataset_path")? else {
            return Err(self.refuse("dataset_path", "`dataset_path` is missing".to_owned()));
        };
        if !["json", "csv", "parquet"].contains(&name.as_str()) {
            let reason = format!(
                "`dataset_path` must be json, csv or parquet, for local files (got {name}): datasets are not downloaded"
            );
            return Err(self.refuse("dataset_path", reason));
        }
        let fields: Map<String, Value> = self.take("dataset_kwargs")?.unwrap_or_default();
        let files = match fields.get("data_files") {
            Some(Value::Object(splits)) => splits.clone(),
            Some(files) => Map::from_iter([("train".to_owned(), files.clone())]),
            None => {
                let reason =
                    "`dataset_kwargs.data_files` is missing: it must name the files of each split";
                return Err(self.refuse("dataset_kwargs", reason.to_owned()));
            }
        };
        // Paths are relative to the file that has the key.
        let base = self.file_of("dataset_kwargs");
        let of_split = |(split, files): (String, Value)| {
            let files: OneOrMore = self.read_value("dataset_kwargs", &files)?;
            Ok((
                split,
                files.list().iter().map(|file| beside(base, file)).collect(),
            ))
        };
        files.into_iter().map(of_split).collect()
    }

    fn fewshot(
        &self,
        split: Option<String>,
        (text, target, choice): (&Value, &Value, Option<&Value>),
        target_delimiter: &str,
        delimiter: &str,
    ) -> Result<Fewshot, TaskError> {
        let key = "fewshot_config";
        let fields: Map<String, Value> = self.take(key)?.unwrap_or_default();
        let known = [
            "sampler",
            "split",
            "samples",
            "doc_to_text",
            "doc_to_target",
            "doc_to_choice",
            "fewshot_delimiter",
            "target_delimiter",
        ];
        if let Some(name) = fields.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(self.refuse(key, format!("`{key}.{name}` is not supported")));
        }
        let of = |name: &str| fields.get(name).filter(|value| !value.is_null());
        let text_of = |name: &str, otherwise: &str| match of(name) {
            Some(value) => self.read_value(key, value),
            None => Ok(otherwise.to_owned()),
        };
        let sampler = match text_of("sampler", "default")?.as_str() {
            "default" => Sampler::Random,
            "first_n" => Sampler::First,
            other => {
                let reason = format!("`{key}.sampler` must be default or first_n (got {other})");
                return Err(self.refuse(key, reason));
            }
        };
        Ok(Fewshot {
            sampler,
            split: match of("split") {
                Some(value) => Some(self.read_value(key, value)?),
                None => split,
            },
            samples: of("samples")
                .map(|value| self.read_value(key, value))
                .transpose()?,
            doc_to_text: of("doc_to_text").unwrap_or(text).clone(),
            doc_to_target: of("doc_to_target").unwrap_or(target).clone(),
            doc_to_choice: of("doc_to_choice").or(choice).cloned(),
            target_delimiter: text_of("target_delimiter", target_delimiter)?,
            delimiter: text_of("fewshot_delimiter", delimiter)?,
        })
    }

    /// The stop strings and the maximum number of tokens of an answer.
    fn generation(&self, fewshot_delimiter: &str) -> Result<(Vec<String>, usize), TaskError> {
        let key = "generation_kwargs";
        let fields: Map<String, Value> = self.take(key)?.unwrap_or_default();
        let mut until = vec![fewshot_delimiter.to_owned()];
        let mut tokens = ANSWER_TOKENS;
        for (name, value) in &fields {
            match name.as_str() {
                "until" => until = self.read_value::<OneOrMore>(key, value)?.list(),
                "max_gen_toks" | "max_new_tokens" | "max_tokens" => {
                    tokens = self.read_value(key, value)?
                }
                "do_sample" if *value == Value::Bool(false) => {}
                // Without sampling it has no effect.
                "temperature" | "top_p" | "top_k" => {}
                "do_sample" => {
                    let reason = format!("`{key}.do_sample` must be false: answers are greedy");
                    return Err(self.refuse(key, reason));
                }
                _ => return Err(self.refuse(key, format!("`{key}.{name}` is not supported"))),
            }
        }
        let samples = fields
            .get("temperature")
            .and_then(Value::as_f64)
            .is_some_and(|t| t > 0.0);
        if samples && !fields.contains_key("do_sample") {
            let reason = format!("`{key}.temperature` must be 0: answers are greedy");
            return Err(self.refuse(key, reason));
        }
        if tokens == 0 {
            return Err(self.refuse(
                key,
                format!("`{key}.max_gen_toks` must be at least 1 (got 0)"),
            ));
        }
        until.retain(|stop| !stop.is_empty());
        Ok((until, tokens))
    }

    fn metrics(&self, output: OutputType) -> Result<Vec<Metric>, TaskError> {
        let key = "metric_list";
        let list: Option<Vec<Map<String, Value>>> = self.take(key)?;
        let made = match list {
            None => {
                let names: &[&str] = match output {
                    OutputType::MultipleChoice => &["acc", "acc_norm"],
                    OutputType::GenerateUntil => &["exact_match"],
                    OutputType::Loglikelihood => &["perplexity", "acc"],
                    OutputType::LoglikelihoodRolling => {
                        &["word_perplexity", "byte_perplexity", "bits_per_byte"]
                    }
                };
                let named = |name: &&str| {
                    metric(
                        output,
                        &Map::from_iter([("metric".to_owned(), Value::from(*name))]),
                    )
                };
                names.iter().map(named).collect()
            }
            Some(list) if list.is_empty() => Err("`metric_list` must have a metric".to_owned()),
            Some(list) => list.iter().map(|fields| metric(output, fields)).collect(),
        };
        made.map_err(|reason: String| self.refuse(key, reason))
    }

    fn filters(&self, output: OutputType) -> Result<Vec<Pipeline>, TaskError> {
        let key = "filter_list";
        let list: Option<Vec<Map<String, Value>>> = self.take(key)?;
        let made = match list {
            None => Ok(vec![Pipeline::none()]),
            Some(_) if output != OutputType::GenerateUntil => {
                Err(format!("`{key}` is supported for generate_until only"))
            }
            Some(list) if list.is_empty() => Err(format!("`{key}` must have a filter")),
            Some(list) => list.iter().map(Pipeline::read).collect(),
        };
        made.map_err(|reason| self.refuse(key, reason))
    }
}

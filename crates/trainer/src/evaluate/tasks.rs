//! Published evaluation tasks, read from local files and scored by the likelihood of given texts.
//!
//! `hellaswag` and `lambada` implement the tasks: reading items, the texts to score, and the metrics. `harness` implements
//! the tasks that files in lm-evaluation-harness's format describe, and `core` nanochat's CORE. `pair` tokenizes a context
//! and its continuation, `likelihood` scores rows of tokens in batches, `generation` answers prompts, `lines` reads JSON
//! Lines, `yaml` task files, `literal` Python's lists, `python_random` draws few-shot examples, `statistics` computes means
//! with standard errors and `bootstrap` standard errors of other scores, `recorded` names the metrics in the log of a run.
//!
//! The formulas are those of EleutherAI's lm-evaluation-harness (Gao et al., "A framework for few-shot language model
//! evaluation") and of `hellaswag.py` in Karpathy's llm.c and build-nanogpt.

mod bootstrap;
mod core;
mod generation;
mod harness;
mod hellaswag;
mod lambada;
mod likelihood;
mod lines;
mod literal;
mod pair;
mod python_random;
mod recorded;
mod set;
mod statistics;
mod yaml;

use std::path::Path;

pub use self::core::{CoreBenchmark, CoreReport, CoreRequests, CoreTaskReport};
pub use generation::{Question, answer};
pub use harness::{
    GroupReport, HarnessTask, MetricKind, OutputType, TaskAnswer, TaskMetric, TaskReport,
    TaskRequests,
};
pub use hellaswag::{ChoiceAnswer, ChoiceReport, Convention, ConventionReport, Item, ItemAnswer};
pub use lambada::{LambadaReport, Passage, WordAnswer};
pub use likelihood::{BATCH_TOKENS, Likelihood, Row, score};
pub use set::TaskSet;
pub use statistics::Estimate;

use emberlm_data::Tokenizer;
use emberlm_model::TransformerConfig;

pub use crate::error::TaskError;

/// The supported tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Choose the ending that continues a context (Zellers et al. 2019, arXiv:1905.07830).
    HellaSwag,
    /// Predict the last word of a passage (Paperno et al. 2016, arXiv:1606.06031), in OpenAI's variant.
    Lambada,
}

impl Task {
    /// A description of the file format, for error messages.
    pub const fn format(self) -> &'static str {
        match self {
            Self::HellaSwag => {
                "each line of HellaSwag is a JSON object with activity_label, ctx_a, ctx_b, ctx, endings (a list of texts) \
                 and label (the index of the correct ending, from 0)"
            }
            Self::Lambada => {
                "each line of LAMBADA is a JSON object with text, which ends in the word to predict"
            }
        }
    }
}

/// The items of a task, read from a file.
#[derive(Debug)]
pub enum Items {
    /// Items of HellaSwag.
    HellaSwag(Vec<Item>),
    /// Passages of LAMBADA.
    Lambada(Vec<Passage>),
}

/// The result of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The result of HellaSwag.
    HellaSwag(ChoiceReport),
    /// The result of LAMBADA.
    Lambada(LambadaReport),
}

impl Items {
    /// Reads the first `limit` items, or all, from a JSON Lines file.
    ///
    /// # Errors
    /// The file cannot be read or has no items, or a line is invalid. The error states the line number.
    pub fn read(task: Task, path: &Path, limit: Option<usize>) -> Result<Self, TaskError> {
        Ok(match task {
            Task::HellaSwag => Self::HellaSwag(lines::read(path, limit, Item::read)?),
            Task::Lambada => Self::Lambada(lines::read(path, limit, Passage::read)?),
        })
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        match self {
            Self::HellaSwag(items) => items.len(),
            Self::Lambada(passages) => passages.len(),
        }
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The token rows to score for a model with a context of `seq_len`. `path` is the file of the items, for
    /// error messages.
    ///
    /// # Errors
    /// Returns the line of a text that the tokenizer cannot encode or encodes as nothing, an id outside the
    /// model's vocabulary, or a continuation that is longer than the context.
    pub fn rows(
        &self,
        path: &Path,
        tokenizer: &Tokenizer,
        config: &TransformerConfig,
        seq_len: usize,
    ) -> Result<Vec<Row>, TaskError> {
        let limits = pair::Limits {
            seq_len,
            vocab_size: config.vocab_size(),
        };
        let mut rows = Vec::new();
        match self {
            Self::HellaSwag(items) => {
                for item in items {
                    let made = item.rows(tokenizer, limits);
                    rows.extend(made.map_err(TaskError::line(path, item.line))?);
                }
            }
            Self::Lambada(passages) => {
                for passage in passages {
                    let made = passage.row(tokenizer, limits);
                    rows.push(made.map_err(TaskError::line(path, passage.line))?);
                }
            }
        }
        Ok(rows)
    }

    /// Computes the result from the likelihoods of the rows, in the same order.
    pub fn report(&self, likelihoods: &[Likelihood]) -> Report {
        match self {
            Self::HellaSwag(items) => Report::HellaSwag(hellaswag::report(items, likelihoods)),
            Self::Lambada(_) => Report::Lambada(lambada::report(likelihoods)),
        }
    }
}

/// The index of the largest value; the first one of equals, as numpy's `argmax`.
fn largest(values: &[f64]) -> usize {
    let mut best = 0;
    for (at, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = at;
        }
    }
    best
}

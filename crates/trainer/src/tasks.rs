//! Published evaluation tasks from local files, scored by the likelihood of given texts.
//!
//! Map: `hellaswag` and `lambada` are the tasks: their files' lines, the texts that are scored, and what follows from the
//! scores; `pair` turns a context and its continuation into tokens; `likelihood` scores rows of tokens in batches;
//! `lines` reads JSON Lines; `statistics` has means with their standard errors; `error` what can be wrong.
//!
//! The formulas are those of EleutherAI's lm-evaluation-harness (Gao et al., "A framework for few-shot language model
//! evaluation") and of `hellaswag.py` in Karpathy's llm.c and build-nanogpt.

mod error;
mod hellaswag;
mod lambada;
mod likelihood;
mod lines;
mod pair;
mod statistics;

use std::path::Path;

pub use error::TaskError;
pub use hellaswag::{ChoiceAnswer, ChoiceReport, Convention, ConventionReport, Item, ItemAnswer};
pub use lambada::{LambadaReport, Passage, WordAnswer};
pub use likelihood::{BATCH_TOKENS, Likelihood, Row, score};
pub use statistics::Estimate;

use emberlm_data::Tokenizer;
use emberlm_model::DecoderConfig;

/// The tasks that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Which of several endings follows (Zellers et al. 2019, arXiv:1905.07830).
    HellaSwag,
    /// The last word of a passage (Paperno et al. 2016, arXiv:1606.06031), in OpenAI's form.
    Lambada,
}

impl Task {
    /// The contents of its lines, for a message.
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

/// A task's items, read from a file.
#[derive(Debug)]
pub enum Items {
    /// HellaSwag's.
    HellaSwag(Vec<Item>),
    /// LAMBADA's.
    Lambada(Vec<Passage>),
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// Of HellaSwag.
    HellaSwag(ChoiceReport),
    /// Of LAMBADA.
    Lambada(LambadaReport),
}

impl Items {
    /// Reads the first `limit` items of a file in JSON Lines, or all.
    ///
    /// # Errors
    /// The file cannot be read or holds no item; a line is not what the task's lines are, named by its number.
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

    /// The items to score, for a model whose context is cut to `seq_len`. `path` is the file of the items.
    ///
    /// # Errors
    /// A text that the tokenizer cannot encode or of which it makes nothing, an id that the model does not know, a
    /// continuation that is longer than the context: by the line.
    pub fn rows(
        &self,
        path: &Path,
        tokenizer: &Tokenizer,
        config: &DecoderConfig,
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

    /// The result, from the rows' likelihoods in the rows' order.
    pub fn report(&self, likelihoods: &[Likelihood]) -> Report {
        match self {
            Self::HellaSwag(items) => Report::HellaSwag(hellaswag::report(items, likelihoods)),
            Self::Lambada(_) => Report::Lambada(lambada::report(likelihoods)),
        }
    }
}

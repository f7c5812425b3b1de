//! LAMBADA: predicting the last word of a passage, which requires the whole passage as context.
//!
//! The file is in OpenAI's format: a JSON object with `text` per line. As in lm-evaluation-harness's
//! `lambada_openai`, the context is the text up to the last space, and the target is the last word with that
//! space.

use emberlm_data::Tokenizer;
use serde::Serialize;

use super::likelihood::{Likelihood, Row};
use super::lines::{self, Fields};
use super::pair::{self, Limits};
use super::statistics::Estimate;

/// A passage, split before its last word.
#[derive(Debug, PartialEq)]
pub struct Passage {
    /// The line number in the file.
    pub(super) line: usize,
    context: String,
    /// The last word with the space before it.
    target: String,
}

/// The result of LAMBADA.
#[derive(Clone, Debug, PartialEq)]
pub struct LambadaReport {
    /// The fraction of last words that greedy decoding would produce.
    pub accuracy: Estimate,
    /// Perplexity per word: `exp` of the mean of `-ln p(last word)`, regardless of its number of tokens.
    pub perplexity: Estimate,
    /// The prediction for each passage.
    pub answers: Vec<WordAnswer>,
}

/// The prediction of a passage's last word.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WordAnswer {
    /// The log-likelihood `ln p(last word)` in nats.
    pub log_likelihood: f64,
    /// True if greedy decoding would produce the word.
    pub greedy: bool,
}

impl Passage {
    /// Parses the fields of a line.
    pub(super) fn read(fields: &Fields, line: usize) -> Result<Self, String> {
        match lines::text(fields, "text")?.rsplit_once(' ') {
            Some((context, word)) if !context.is_empty() && !word.is_empty() => Ok(Self {
                line,
                context: context.to_owned(),
                target: format!(" {word}"),
            }),
            Some((_, "")) => Err("`text` ends in a blank: must end in the last word".to_owned()),
            _ => Err("`text` has only one word: there is no context to predict it from".to_owned()),
        }
    }

    /// The row to score.
    pub(super) fn row(&self, tokenizer: &Tokenizer, limits: Limits) -> Result<Row, String> {
        pair::joint(tokenizer, &self.context, &self.target, limits)
    }
}

/// Computes the result from the likelihoods of the passages.
pub(super) fn report(likelihoods: &[Likelihood]) -> LambadaReport {
    LambadaReport {
        accuracy: Estimate::share(likelihoods.iter().map(|found| found.greedy)),
        perplexity: Estimate::mean(likelihoods.iter().map(|found| -found.sum)).exp(),
        answers: likelihoods
            .iter()
            .map(|found| WordAnswer {
                log_likelihood: found.sum,
                greedy: found.greedy,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_the_word_after_the_last_space() {
        let read = |text: &str| {
            let fields = Fields::from_iter([("text".to_owned(), text.into())]);
            Passage::read(&fields, 1)
        };
        let passage = read("she said \"no,\nnever\" to him.").unwrap();
        assert_eq!(passage.context, "she said \"no,\nnever\" to");
        assert_eq!(passage.target, " him.");
        assert!(read("word").unwrap_err().contains("only one word"));
        assert!(read(" word").unwrap_err().contains("only one word"));
        assert!(read("two words ").unwrap_err().contains("ends in a blank"));
    }
}

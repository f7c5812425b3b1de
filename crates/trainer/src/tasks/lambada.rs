//! LAMBADA: prediction of the last word of a passage, which needs the whole passage.
//!
//! OpenAI's form: a JSON object with `text` per line, the last word after the last blank. As in lm-evaluation-harness'
//! `lambada_openai`, the context is the text without its last word, and the target that word after a blank.

use emberlm_data::Tokenizer;
use serde::Serialize;

use super::likelihood::{Likelihood, Row};
use super::lines::{self, Fields};
use super::pair::{self, Limits};
use super::statistics::Estimate;

/// A passage without its last word, and that word.
#[derive(Debug, PartialEq)]
pub struct Passage {
    /// Its line in the file.
    pub(super) line: usize,
    context: String,
    /// With the blank before it.
    target: String,
}

/// The result of LAMBADA.
#[derive(Clone, Debug, PartialEq)]
pub struct LambadaReport {
    /// The share of last words that greedy decoding would have written.
    pub accuracy: Estimate,
    /// `exp` of the mean of `-ln p(last word)`: per word, however many tokens it has.
    pub perplexity: Estimate,
    /// Passage by passage.
    pub answers: Vec<WordAnswer>,
}

/// The prediction of a last word.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WordAnswer {
    /// `ln p(last word)` in nats.
    pub log_likelihood: f64,
    /// True if greedy decoding would have produced it.
    pub greedy: bool,
}

impl Passage {
    /// Of a line's fields.
    pub(super) fn read(fields: &Fields, line: usize) -> Result<Self, String> {
        match lines::text(fields, "text")?.rsplit_once(' ') {
            Some((context, word)) if !context.is_empty() && !word.is_empty() => Ok(Self {
                line,
                context: context.to_owned(),
                target: format!(" {word}"),
            }),
            Some((_, "")) => Err("`text` ends in a blank: it must end in the last word".to_owned()),
            _ => Err("`text` has only one word: there is no context to predict it from".to_owned()),
        }
    }

    /// The rows to score.
    pub(super) fn row(&self, tokenizer: &Tokenizer, limits: Limits) -> Result<Row, String> {
        pair::together(tokenizer, &self.context, &self.target, limits)
    }
}

/// The result, from the passages' likelihoods.
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
    fn the_last_word_comes_after_the_last_blank() {
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

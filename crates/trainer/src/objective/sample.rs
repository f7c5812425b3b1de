//! Samples from the current model.

use std::ops::Range;

use emberlm_data::{DataError, TokenSplit, Tokenizer};
use emberlm_generate::{GenerateOptions, SamplerConfig, generate};
use emberlm_kernels::Backend;
use emberlm_model::Transformer;

use crate::error::TrainError;

/// A prompt of the validation data, in the form in which the model is trained on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SamplePrompt {
    ids: Vec<u32>,
    /// The token that ends the answer in the data.
    end: Option<u32>,
}

impl SamplePrompt {
    /// The tokens before the first target of a record. `None` if the record has no answer, or no prompt.
    pub(crate) fn of_record(ids: &[u32], learnt: &[bool]) -> Option<Self> {
        let answer = first_answer(learnt).filter(|answer| answer.start > 0)?;
        // A record may be cut off within its answer.
        let end = (answer.end < ids.len()).then(|| ids.get(answer.end - 1).copied());
        Some(Self {
            ids: ids.get(..answer.start)?.to_vec(),
            end: end.flatten(),
        })
    }

    /// The prompt of the first record of a split of conversations. `None` if it has more than `most` tokens.
    ///
    /// # Errors
    /// The split cannot be read.
    pub(crate) fn of_split(split: &TokenSplit, most: usize) -> Result<Option<Self>, DataError> {
        // With an answer of as many tokens.
        let length = split.len().min(2 * most as u64);
        let Some(learnt) = split.learnt(0, length)? else {
            return Ok(None);
        };
        let prompt = Self::of_record(&split.read(0, length)?, &learnt);
        Ok(prompt.filter(|prompt| prompt.len() <= most))
    }

    /// The prompt with another token that ends the answer.
    pub(crate) fn ended_by(self, end: Option<u32>) -> Self {
        Self { end, ..self }
    }

    /// The number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }
}

/// The first contiguous targets.
fn first_answer(learnt: &[bool]) -> Option<Range<usize>> {
    let start = learnt.iter().position(|learnt| *learnt)?;
    let length = learnt[start..].iter().position(|learnt| !learnt);
    Some(start..start + length.unwrap_or(learnt.len() - start))
}

/// Generates an answer of at most `tokens` tokens to a prompt of the data, and returns both as the model sees them. The
/// result depends only on the model, the data and `seed`.
pub(crate) fn sample_answer<B: Backend>(
    decoder: &Transformer<B>,
    tokenizer: &Tokenizer,
    prompt: &SamplePrompt,
    tokens: usize,
    seed: u64,
) -> Result<String, TrainError> {
    let room = decoder.config().seq_len().saturating_sub(prompt.len());
    let is_special = |id: &u32| tokenizer.special_tokens().iter().any(|(_, own)| own == id);
    let end = prompt.end.filter(is_special);
    let stops = tokenizer.end_of_text().into_iter().chain(end).collect();
    let made = generated(decoder, &prompt.ids, tokens.min(room), stops, seed)?;
    let all = [&prompt.ids[..], &made].concat();
    Ok(tokenizer.decode(&all).unwrap_or_default())
}

/// Generates `tokens` tokens from the start of a text. The result depends only on the model and `seed`.
/// `begins_with` is the special token that the run's conversations start with, if any.
pub fn sample<B: Backend>(
    decoder: &Transformer<B>,
    tokenizer: &Tokenizer,
    begins_with: Option<u32>,
    tokens: usize,
    seed: u64,
) -> Result<String, TrainError> {
    let prompt = match begins_with {
        Some(id) => vec![id],
        None => start_of_text(tokenizer),
    };
    let stops = tokenizer.end_of_text().into_iter().collect();
    let made = generated(decoder, &prompt, tokens, stops, seed)?;
    Ok(tokenizer.decode(&made).unwrap_or_default())
}

fn generated<B: Backend>(
    decoder: &Transformer<B>,
    prompt: &[u32],
    tokens: usize,
    stop_tokens: Vec<u32>,
    seed: u64,
) -> Result<Vec<u32>, TrainError> {
    let options = GenerateOptions {
        max_new_tokens: tokens,
        stop_tokens,
        chooser: SamplerConfig {
            temperature: 0.8,
            seed,
            ..SamplerConfig::default()
        }
        .into(),
        ..GenerateOptions::default()
    };
    let made = generate(decoder, prompt, &options, |_| {
        std::ops::ControlFlow::Continue(())
    })?;
    Ok(made.tokens)
}

/// The token that precedes a text: end-of-text, or a line break if the vocabulary has no such token.
fn start_of_text(tokenizer: &Tokenizer) -> Vec<u32> {
    match tokenizer.end_of_text() {
        Some(end) => vec![end],
        None => {
            let line_break = tokenizer.encode("\n").ok();
            // Some tokenizers encode a line break as no tokens.
            let line_break = line_break.filter(|ids| !ids.is_empty());
            line_break.unwrap_or_else(|| vec![0])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_what_precedes_the_first_answer() {
        let ids: Vec<u32> = (0..6).collect();
        let of = |learnt: [bool; 6]| SamplePrompt::of_record(&ids, &learnt);
        let (no, yes) = (false, true);
        let expected = |ids: &[u32], end| {
            Some(SamplePrompt {
                ids: ids.to_vec(),
                end,
            })
        };
        assert_eq!(of([no, no, yes, yes, no, yes]), expected(&[0, 1], Some(3)));
        assert_eq!(of([no, no, no, yes, yes, yes]), expected(&[0, 1, 2], None));
        assert_eq!(of([yes; 6]), None);
        assert_eq!(of([no; 6]), None);
    }
}

//! Greedy answers to prompts, up to stop strings.

use std::ops::ControlFlow;

use emberlm_data::Tokenizer;
use emberlm_generate::{GenerateOptions, SamplerConfig, generate};
use emberlm_kernels::Backend;
use emberlm_model::Transformer;

use crate::data::divided::for_each_batch;
use crate::error::TrainError;
use crate::peers::Peers;

/// A prompt to answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// The token ids of the prompt. With `tokens` more, they fit into the context.
    pub prompt: Vec<u32>,
    /// Maximum number of tokens of the answer.
    pub tokens: usize,
    /// The texts that end the answer, and are not part of it.
    pub until: Vec<String>,
}

/// Answers every question greedily, and returns the texts in order. The end-of-text token also ends an answer. `done` is
/// called after each question. Breaks if `stop` breaks on any rank.
///
/// The questions are divided among the ranks of `peers`, and the result is the same on every rank.
///
/// # Errors
/// A prompt does not fit into the context, or a peer cannot be reached.
pub fn answer<B: Backend>(
    peers: &dyn Peers<B>,
    decoder: &Transformer<B>,
    tokenizer: &Tokenizer,
    questions: &[Question],
    mut done: impl FnMut(),
    stop: impl Fn() -> ControlFlow<()>,
) -> Result<ControlFlow<(), Vec<String>>, TrainError> {
    let mut texts = Vec::with_capacity(questions.len());
    let mut failure = None;
    let one = |question: &&Question| match answer_one(decoder, tokenizer, question) {
        Ok(ids) => ids.into_iter().map(f64::from).collect(),
        Err(error) => {
            failure.get_or_insert(error);
            Vec::new()
        }
    };
    let add = |question: &&Question, ids: &[f64]| {
        let ids: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
        let text = text(tokenizer, &ids);
        let end = stop_at(&text, &question.until).unwrap_or(text.len());
        texts.push(text[..end].to_owned());
        done();
    };
    let found = for_each_batch(peers, questions.iter().map(Ok), one, add, stop)?;
    match failure {
        Some(error) => Err(error),
        None => Ok(found.map_continue(|()| texts)),
    }
}

/// The ids of an answer, with those of the text that ended it.
fn answer_one<B: Backend>(
    decoder: &Transformer<B>,
    tokenizer: &Tokenizer,
    question: &Question,
) -> Result<Vec<u32>, TrainError> {
    let options = GenerateOptions {
        max_new_tokens: question.tokens,
        stop_tokens: tokenizer.end_of_text().into_iter().collect(),
        chooser: SamplerConfig {
            temperature: 0.0,
            ..SamplerConfig::default()
        }
        .into(),
        ..GenerateOptions::default()
    };
    let mut ids = Vec::new();
    let made = generate(decoder, &question.prompt, &options, |id| {
        ids.push(id);
        match stop_at(&text(tokenizer, &ids), &question.until) {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    })?;
    Ok(made.tokens)
}

/// The text of ids; incomplete characters are replaced.
fn text(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let bytes = tokenizer.decode_bytes(ids).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The position of the first stop string.
fn stop_at(text: &str, until: &[String]) -> Option<usize> {
    until
        .iter()
        .filter_map(|stop| text.find(stop.as_str()))
        .min()
}

//! Generates answers and displays them while they are generated.

use std::sync::atomic::{AtomicBool, Ordering};

use emberlm::{TextEnd, TextGeneration};
use emberlm_generate::{ChooserConfig, Engine, Request};
use emberlm_kernels::Backend;
use emberlm_tokenizer::{StopStrings, Tokenizer};

use crate::commands::generate::speed::{Speed, Stopwatch};
use crate::error::CliError;

/// An engine with one slot. Its KV cache holds the conversation, so a prompt only computes its new tokens.
pub struct AnswerGenerator<'a, B: Backend> {
    pub engine: Engine<B>,
    pub tokenizer: &'a Tokenizer,
    /// Token ids that end an answer.
    pub stop_tokens: Vec<u32>,
    /// Stop strings, in their initial matching state.
    pub strings: StopStrings,
}

/// The reason that an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A stop token or a stop string.
    Stop,
    /// The limit on the number of tokens.
    Length,
    /// The user interrupted the answer.
    Interrupted,
}

#[derive(Debug)]
pub struct Answer {
    pub end: End,
    /// Number of tokens in the prompt.
    pub prompt: usize,
    /// Number of prompt tokens found in the cache.
    pub reused: u64,
    /// Number of generated tokens, excluding the one that ended the answer.
    pub made: usize,
    pub speed: Speed,
}

impl<B: Backend> AnswerGenerator<'_, B> {
    /// The context length in tokens.
    pub fn context(&self) -> usize {
        self.engine.config().capacity
    }

    /// Generates the answer to a prompt that leaves room for at least one token. Calls `show` with each piece
    /// of text. If it returns false, generation stops.
    pub fn answer(
        &mut self,
        prompt: Vec<u32>,
        max_new_tokens: usize,
        chooser: ChooserConfig,
        interrupted: &AtomicBool,
        show: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Answer, CliError> {
        let len = prompt.len();
        let mut watch = Stopwatch::start();
        let request = Request {
            max_new_tokens: max_new_tokens.min(self.context().saturating_sub(len)),
            stop_tokens: self.stop_tokens.clone(),
            chooser,
            prompt,
            ..Request::default()
        };
        let strings = self.strings.clone();
        let engine = &mut self.engine;
        let mut generation = TextGeneration::start(engine, self.tokenizer, strings, request)?;
        while !interrupted.load(Ordering::Relaxed) {
            let made = generation.tokens();
            let Some(part) = generation.step()? else {
                break;
            };
            if generation.tokens() > made {
                watch.token();
            }
            if !show(&part) {
                break;
            }
        }
        let end = match generation.end() {
            Some(TextEnd::Stop) => End::Stop,
            Some(TextEnd::Length) => End::Length,
            None => End::Interrupted,
        };
        let (made, reused) = (generation.tokens(), generation.reused());
        show(&generation.finish());
        let computed = len - usize::try_from(reused).unwrap_or(0).min(len);
        Ok(Answer {
            end,
            prompt: len,
            reused,
            made,
            speed: watch.speed(computed),
        })
    }
}

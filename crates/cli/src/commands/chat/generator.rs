//! Generates answers and displays them while they are generated.

use std::sync::atomic::{AtomicBool, Ordering};

use emberlm_generate::{ChooserConfig, Engine, EventKind, Finish, Overflow, Request};
use emberlm_kernels::Backend;
use emberlm_tokenizer::{StopStrings, TextStream, Tokenizer};

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
    pub text: String,
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
        let (len, before) = (prompt.len(), self.engine.counts().reused_tokens);
        let mut watch = Stopwatch::start();
        let mut stream = TextStream::after(self.tokenizer, &prompt, self.strings.clone());
        let mut text = String::new();
        let id = self.engine.submit(Request {
            samples: 1,
            max_new_tokens: max_new_tokens.min(self.context().saturating_sub(len)),
            stop_tokens: self.stop_tokens.clone(),
            chooser,
            overflow: Overflow::Refuse,
            adapter: None,
            prompt,
        })?;
        let mut made = 0;
        let mut events = Vec::new();
        let end = 'answer: loop {
            if interrupted.load(Ordering::Relaxed) {
                break End::Interrupted;
            }
            self.engine.step(&mut |event| events.push(event.kind));
            for event in events.drain(..) {
                match event {
                    EventKind::Token(chosen) => {
                        made += 1;
                        watch.token();
                        let delta = stream.push(chosen.id);
                        text += &delta.visible;
                        if !show(&delta.visible) {
                            break 'answer End::Interrupted;
                        }
                        if delta.stopped {
                            break 'answer End::Stop;
                        }
                    }
                    EventKind::Finished(ended) => {
                        break 'answer match ended.finish {
                            Finish::Length => End::Length,
                            _ => End::Stop,
                        };
                    }
                    EventKind::Failed(error) => return Err(error.into()),
                    // This engine receives no embedding requests.
                    EventKind::Started | EventKind::Embedded(_) => {}
                }
            }
        };
        self.engine.cancel(id);
        let rest = stream.finish();
        text += &rest.visible;
        show(&rest.visible);
        let reused = self.engine.counts().reused_tokens - before;
        let computed = len - usize::try_from(reused).unwrap_or(0).min(len);
        Ok(Answer {
            text,
            end,
            prompt: len,
            reused,
            made,
            speed: watch.speed(computed),
        })
    }
}

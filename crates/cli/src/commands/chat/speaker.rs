//! Answers, shown as they are made.

use std::sync::atomic::{AtomicBool, Ordering};

use emberlm_generate::{ChooserConfig, Engine, EventKind, Finish, Overflow, Request};
use emberlm_kernels::Backend;
use emberlm_tokenizer::{StopStrings, TextStream, Tokenizer};

use crate::commands::generate::speed::{Speed, Stopwatch};
use crate::error::CliError;

/// An engine of one slot, whose cache keeps what was said: an answer reads only what is new of its prompt.
pub struct Speaker<'a, B: Backend> {
    pub engine: Engine<B>,
    pub tokenizer: &'a Tokenizer,
    /// The ids that end an answer.
    pub stop_tokens: Vec<u32>,
    /// The texts that end one, of which none has come yet.
    pub strings: StopStrings,
}

/// The reason for the end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model ended it.
    InputLine,
    /// The maximum number of tokens.
    Length,
    /// Someone interrupted it.
    Interrupted,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub text: String,
    pub end: End,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Those of them that the cache held.
    pub reused: u64,
    /// Tokens that were made, what ended it not among them.
    pub made: usize,
    /// The time that it took.
    pub speed: Speed,
}

impl<B: Backend> Speaker<'_, B> {
    /// Tokens that the context holds.
    pub fn context(&self) -> usize {
        self.engine.config().capacity
    }

    /// The answer to a prompt that leaves room for a token at least. `show` is given its text in pieces, and returns false to
    /// stop.
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
                            break 'answer End::InputLine;
                        }
                    }
                    EventKind::Finished(ended) => {
                        break 'answer match ended.finish {
                            Finish::Length => End::Length,
                            _ => End::InputLine,
                        };
                    }
                    EventKind::Failed(error) => return Err(error.into()),
                    // Nothing is embedded here.
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

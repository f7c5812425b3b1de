//! The output items of a response during generation: reasoning, a message and function calls.

use super::response::{FunctionCall, OutputItem, OutputMessage, OutputReasoning, Status, id};
use crate::api::answer_parts::{AnswerForm, AnswerPart, AnswerParts};
use crate::api::answers::{AnswerEvent, FinishReason};
use crate::api::logprobs::LogProb;

/// The items generated so far. The last one grows until it is complete.
pub(crate) struct OutputItems {
    parts: AnswerParts,
    items: Vec<OutputItem>,
    /// True while the last item is incomplete.
    open: bool,
    /// Log-probabilities of tokens whose text is still held back.
    logprobs: Vec<LogProb>,
    finish: Option<FinishReason>,
}

/// A change to the last item.
#[derive(Debug)]
pub(crate) enum OutputChange {
    /// The item at `index` was added.
    Added { index: usize },
    /// Text was appended to the reasoning.
    Reasoning { index: usize, delta: String },
    /// Text was appended to the message.
    Text {
        index: usize,
        delta: String,
        logprobs: Vec<LogProb>,
    },
    /// Text was appended to the arguments of the call.
    Arguments { index: usize, delta: String },
    /// The item at `index` is complete.
    Done { index: usize },
}

impl OutputItems {
    pub fn new(form: AnswerForm) -> Self {
        Self {
            parts: AnswerParts::new(form),
            items: Vec::new(),
            open: false,
            logprobs: Vec::new(),
            finish: None,
        }
    }

    /// The items so far.
    pub fn items(&self) -> &[OutputItem] {
        &self.items
    }

    /// The items and the reason that generation ended.
    pub fn into_parts(self) -> (Vec<OutputItem>, Option<FinishReason>) {
        (self.items, self.finish)
    }

    /// Starts the output. If it is text only, the message is added immediately.
    pub fn begin(&mut self) -> Vec<OutputChange> {
        let mut changes = Vec::new();
        if self.parts.is_text() {
            self.add(OutputMessage::new(id("msg")).into(), &mut changes);
        }
        changes
    }

    /// Processes the next event.
    pub fn push(&mut self, event: &AnswerEvent, logprob: Option<LogProb>) -> Vec<OutputChange> {
        let mut changes = Vec::new();
        self.logprobs.extend(logprob);
        for part in self.parts.push(event) {
            self.take(part, &mut changes);
        }
        if let Some(finish) = event.finish {
            self.finish = Some(finish);
            self.end(finish, &mut changes);
        }
        changes
    }

    fn take(&mut self, part: AnswerPart, changes: &mut Vec<OutputChange>) {
        match part {
            AnswerPart::Reasoning(delta) => {
                if !matches!(self.last(), Some(OutputItem::Reasoning(_))) {
                    self.close(Status::Completed, changes);
                    self.add(OutputReasoning::new(id("rs")).into(), changes);
                }
                // Reasoning has no log-probabilities.
                self.logprobs.clear();
                let index = self.items.len().saturating_sub(1);
                if let Some(OutputItem::Reasoning(reasoning)) = self.last() {
                    reasoning.add(&delta);
                }
                changes.push(OutputChange::Reasoning { index, delta });
            }
            AnswerPart::Text(delta) => {
                if !matches!(self.last(), Some(OutputItem::Message(_))) {
                    self.close(Status::Completed, changes);
                    self.add(OutputMessage::new(id("msg")).into(), changes);
                }
                let logprobs = std::mem::take(&mut self.logprobs);
                let index = self.items.len().saturating_sub(1);
                if let Some(OutputItem::Message(message)) = self.last() {
                    message.add(&delta, logprobs.clone());
                }
                changes.push(OutputChange::Text {
                    index,
                    delta,
                    logprobs,
                });
            }
            AnswerPart::Call { id, name } => {
                self.close(Status::Completed, changes);
                self.add(FunctionCall::new(id, name).into(), changes);
            }
            AnswerPart::Arguments(delta) => {
                let index = self.items.len().saturating_sub(1);
                // Calls have no log-probabilities.
                self.logprobs.clear();
                if let Some(OutputItem::FunctionCall(call)) = self.last() {
                    call.arguments += &delta;
                    changes.push(OutputChange::Arguments { index, delta });
                }
            }
        }
    }

    /// Ends the output. Without reasoning and calls, it contains a message, possibly empty.
    fn end(&mut self, finish: FinishReason, changes: &mut Vec<OutputChange>) {
        if self.items.is_empty() {
            self.add(OutputMessage::new(id("msg")).into(), changes);
        }
        let logprobs = std::mem::take(&mut self.logprobs);
        if let Some(OutputItem::Message(message)) = self.last() {
            message.add("", logprobs);
        }
        self.close(Status::of_end(finish), changes);
    }

    /// The incomplete item.
    fn last(&mut self) -> Option<&mut OutputItem> {
        self.items.last_mut().filter(|_| self.open)
    }

    fn add(&mut self, item: OutputItem, changes: &mut Vec<OutputChange>) {
        let index = self.items.len();
        self.items.push(item);
        self.open = true;
        changes.push(OutputChange::Added { index });
    }

    fn close(&mut self, status: Status, changes: &mut Vec<OutputChange>) {
        let index = self.items.len().saturating_sub(1);
        if let Some(item) = self.last() {
            item.set_status(status);
            self.open = false;
            changes.push(OutputChange::Done { index });
        }
    }
}

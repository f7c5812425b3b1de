//! The output items of a response during generation: a message, function calls, or both.

use super::response::{FunctionCall, OutputItem, OutputMessage, Status, id};
use crate::api::answers::{AnswerEvent, FinishReason};
use crate::api::conversation::Calling;
use crate::api::logprobs::LogProb;
use crate::tools::{CallFormat, ToolCallParser, ToolDelta};

/// The items generated so far. The last one grows until it is complete.
pub(crate) struct OutputItems {
    /// The call format and its parser. `None` if the answer may not call functions.
    tools: Option<(CallFormat, ToolCallParser)>,
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
    /// Creates the output of an answer that may call functions in `format`.
    pub fn new(format: Option<CallFormat>) -> Self {
        Self {
            tools: format.map(|format| (format.clone(), ToolCallParser::new(format))),
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

    /// Starts the output. If no functions may be called, the message is added immediately.
    pub fn begin(&mut self) -> Vec<OutputChange> {
        let mut changes = Vec::new();
        if self.tools.is_none() {
            self.add(OutputMessage::new(id("msg")).into(), &mut changes);
        }
        changes
    }

    /// Processes the next event.
    pub fn push(&mut self, event: AnswerEvent, logprob: Option<LogProb>) -> Vec<OutputChange> {
        let mut changes = Vec::new();
        self.logprobs.extend(logprob);
        let deltas = match &mut self.tools {
            None if event.text.is_empty() => Vec::new(),
            None => vec![ToolDelta::Text(event.text)],
            Some((_, parser)) => {
                let mut deltas = parser.push(&event.text);
                if event.finish.is_some() {
                    deltas.extend(parser.finish());
                }
                deltas
            }
        };
        for delta in deltas {
            self.take(delta, &mut changes);
        }
        if let Some(finish) = event.finish {
            self.finish = Some(finish);
            self.end(finish, &mut changes);
        }
        changes
    }

    fn take(&mut self, delta: ToolDelta, changes: &mut Vec<OutputChange>) {
        match delta {
            ToolDelta::Text(delta) => {
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
            ToolDelta::Call { name } => {
                self.close(Status::Completed, changes);
                let call_id = match &self.tools {
                    Some((format, _)) => Calling::call_id(format),
                    None => return,
                };
                self.add(FunctionCall::new(call_id, name).into(), changes);
            }
            ToolDelta::Arguments(delta) => {
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

    /// Ends the output. Without calls, it contains a message, possibly empty.
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

//! The output items of a response while they are generated: a message, calls of functions, or both.

use super::response::{FunctionCall, OutputItem, OutputMessage, Status, id};
use crate::api::answers::{AnswerEvent, FinishReason};
use crate::api::conversation::Calling;
use crate::api::logprobs::LogProb;
use crate::tools::{ToolCallParser, ToolDelta, ToolFormat};

/// The items so far. The last one grows until it is done.
pub(crate) struct OutputItems {
    /// The format and the parser of calls; `None` if no function may be called.
    tools: Option<(&'static ToolFormat, ToolCallParser)>,
    items: Vec<OutputItem>,
    /// True while the last item grows.
    open: bool,
    /// Log-probabilities of tokens whose text is still to come.
    logprobs: Vec<LogProb>,
    finish: Option<FinishReason>,
}

/// A change of the items; each is about the last one at its time.
#[derive(Debug)]
pub(crate) enum OutputChange {
    /// Item number `index` begins.
    Added { index: usize },
    /// The message has more text.
    Text {
        index: usize,
        delta: String,
        logprobs: Vec<LogProb>,
    },
    /// The call has more arguments.
    Arguments { index: usize, delta: String },
    /// Item number `index` is complete.
    Done { index: usize },
}

impl OutputItems {
    /// Items that have calls in this format, if any.
    pub fn new(format: Option<&'static ToolFormat>) -> Self {
        Self {
            tools: format.map(|format| (format, ToolCallParser::new(format))),
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

    /// The items, and the reason for their end.
    pub fn into_parts(self) -> (Vec<OutputItem>, Option<FinishReason>) {
        (self.items, self.finish)
    }

    /// Begins the output. An answer that may call no function is a message from the beginning.
    pub fn begin(&mut self) -> Vec<OutputChange> {
        let mut changes = Vec::new();
        if self.tools.is_none() {
            self.add(OutputMessage::new(id("msg")).into(), &mut changes);
        }
        changes
    }

    /// Takes what was generated next.
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
                // A call has no log-probabilities.
                self.logprobs.clear();
                if let Some(OutputItem::FunctionCall(call)) = self.last() {
                    call.arguments += &delta;
                    changes.push(OutputChange::Arguments { index, delta });
                }
            }
        }
    }

    /// Ends the output. One without calls has a message, if an empty one.
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

    /// The item that grows.
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

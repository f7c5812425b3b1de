//! Splits generated text into content and function calls.

use super::response::{CalledFunction, ChatFinishReason, Delta, ToolCallDelta};
use crate::api::answers::{AnswerEvent, FinishReason};
use crate::api::conversation::Calling;
use crate::tools::{CallFormat, ToolCallParser, ToolDelta};

/// The text of one answer during generation.
pub(super) struct AnswerText {
    /// The call format and its parser. `None` if the answer may not call functions.
    tools: Option<(CallFormat, ToolCallParser)>,
    /// True if a call is the deprecated `function_call`.
    has_functions: bool,
}

/// A delta of an answer.
pub(super) struct AnswerDelta {
    pub message: Delta,
    pub finish_reason: Option<ChatFinishReason>,
}

impl AnswerText {
    /// Creates the state of an answer that may call functions in `format`. With `has_functions`, it has at most one call, in
    /// the deprecated field.
    pub fn new(format: Option<CallFormat>, has_functions: bool) -> Self {
        Self {
            tools: format.map(|format| (format.clone(), ToolCallParser::new(format))),
            has_functions,
        }
    }

    /// Processes the next event.
    pub fn push(&mut self, event: &AnswerEvent) -> AnswerDelta {
        let Some((format, parser)) = &mut self.tools else {
            // Empty text is still sent for a token that completes no character.
            let content =
                Some(&event.text).filter(|text| !text.is_empty() || event.finish.is_none());
            return AnswerDelta {
                message: Delta {
                    content: content.cloned(),
                    ..Delta::default()
                },
                finish_reason: event.finish.map(ChatFinishReason::from),
            };
        };
        let mut message = Delta::default();
        let mut call = parser.calls();
        let mut deltas = parser.push(&event.text);
        if event.finish.is_some() {
            deltas.extend(parser.finish());
        }
        for delta in deltas {
            match delta {
                ToolDelta::Text(text) => *message.content.get_or_insert_default() += &text,
                ToolDelta::Call { name: function } => {
                    message.begin_call(call, Calling::call_id(format), function);
                    call += 1;
                }
                ToolDelta::Arguments(text) => message.add_arguments(call.saturating_sub(1), &text),
            }
        }
        let finish_reason = event.finish.map(|finish| match finish {
            FinishReason::Stop if parser.calls() > 0 => ChatFinishReason::ToolCalls,
            finish => finish.into(),
        });
        let delta = AnswerDelta {
            message,
            finish_reason,
        };
        match self.has_functions {
            true => delta.with_function_call(),
            false => delta,
        }
    }
}

impl AnswerDelta {
    /// The delta with its only call in the deprecated field.
    fn with_function_call(mut self) -> Self {
        let call = self.message.tool_calls.pop();
        self.message.function_call = call.map(|call| call.function);
        if self.finish_reason == Some(ChatFinishReason::ToolCalls) {
            self.finish_reason = Some(ChatFinishReason::FunctionCall);
        }
        self
    }
}

impl Delta {
    /// Returns true if the delta has no content.
    pub fn is_empty(&self) -> bool {
        self.role.is_none()
            && self.content.is_none()
            && self.tool_calls.is_empty()
            && self.function_call.is_none()
    }

    fn begin_call(&mut self, index: usize, id: String, function: String) {
        self.tool_calls.push(ToolCallDelta {
            index,
            id: Some(id),
            kind: Some("function"),
            function: CalledFunction {
                name: Some(function),
                arguments: String::new(),
            },
        });
    }

    fn add_arguments(&mut self, index: usize, text: &str) {
        match self
            .tool_calls
            .last_mut()
            .filter(|call| call.index == index)
        {
            Some(call) => call.function.arguments += text,
            None => self.tool_calls.push(ToolCallDelta {
                index,
                id: None,
                kind: None,
                function: CalledFunction {
                    name: None,
                    arguments: text.to_owned(),
                },
            }),
        }
    }
}

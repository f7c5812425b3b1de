//! The parts of an answer as deltas of chat completions.

use super::response::{CalledFunction, ChatFinishReason, Delta, ToolCallDelta};
use crate::api::answer_parts::{AnswerForm, AnswerPart, AnswerParts};
use crate::api::answers::{AnswerEvent, FinishReason};

/// The fields of an answer.
#[derive(Clone, Debug)]
pub(super) struct AnswerOutput {
    pub form: AnswerForm,
    /// True if the answer has no reasoning.
    pub omits_reasoning: bool,
    /// True if a call is the deprecated `function_call`, of which there is at most one.
    pub has_functions: bool,
}

/// The text of one answer during generation.
pub(super) struct AnswerText {
    output: AnswerOutput,
    parts: AnswerParts,
    calls: usize,
}

/// A delta of an answer.
pub(super) struct AnswerDelta {
    pub message: Delta,
    pub finish_reason: Option<ChatFinishReason>,
}

impl AnswerText {
    pub fn new(output: AnswerOutput) -> Self {
        Self {
            parts: AnswerParts::new(output.form.clone()),
            output,
            calls: 0,
        }
    }

    /// Processes the next event.
    pub fn push(&mut self, event: &AnswerEvent) -> AnswerDelta {
        let mut message = Delta::default();
        if self.parts.is_text() && event.finish.is_none() {
            // Empty text is still sent for a token that completes no character.
            message.content = Some(String::new());
        }
        for part in self.parts.push(event) {
            match part {
                AnswerPart::Reasoning(_) if self.output.omits_reasoning => {}
                AnswerPart::Reasoning(text) => {
                    *message.reasoning_content.get_or_insert_default() += &text;
                }
                AnswerPart::Text(text) => *message.content.get_or_insert_default() += &text,
                AnswerPart::Call { id, name } => {
                    message.begin_call(self.calls, id, name);
                    self.calls += 1;
                }
                AnswerPart::Arguments(text) => {
                    message.add_arguments(self.calls.saturating_sub(1), &text);
                }
            }
        }
        let finish_reason = event.finish.map(|finish| match finish {
            FinishReason::Stop if self.calls > 0 => ChatFinishReason::ToolCalls,
            finish => finish.into(),
        });
        let delta = AnswerDelta {
            message,
            finish_reason,
        };
        match self.output.has_functions {
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
            && self.reasoning_content.is_none()
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

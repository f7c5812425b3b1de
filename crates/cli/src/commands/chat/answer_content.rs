//! The content of an answer, as messages of the conversation.

use emberlm_serve::AnswerDelta;
use emberlm_tokenizer::chat::{ChatMessage, read_arguments};

/// The reasoning, the text and the calls of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerContent {
    pub reasoning: String,
    pub text: String,
    pub calls: Vec<AnswerCall>,
}

/// A call of a function in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerCall {
    pub name: String,
    /// A JSON object, or the beginning of one if the answer is truncated.
    pub arguments: String,
}

impl AnswerContent {
    /// Adds the next delta of the answer.
    pub fn add(&mut self, delta: &AnswerDelta) {
        match delta {
            AnswerDelta::Reasoning(text) => self.reasoning += text,
            AnswerDelta::Text(text) => self.text += text,
            AnswerDelta::Call { name } => self.calls.push(AnswerCall {
                name: name.clone(),
                arguments: String::new(),
            }),
            AnswerDelta::Arguments(text) => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments += text;
                }
            }
        }
    }

    /// Returns true if the answer ended before its text began.
    pub fn has_only_reasoning(&self) -> bool {
        !self.reasoning.is_empty() && self.text.trim().is_empty() && self.calls.is_empty()
    }

    /// The messages of the answer. Templates of channels write one call per message, and either its text or its reasoning, so
    /// text before a call joins the reasoning. A call with incomplete arguments is text.
    pub fn into_messages(self) -> Vec<ChatMessage> {
        let is_complete = |call: &AnswerCall| read_arguments(&call.arguments).is_ok();
        let (calls, others): (Vec<_>, Vec<_>) = self.calls.into_iter().partition(is_complete);
        let mut text = self.text.trim().to_owned();
        for call in others {
            add_paragraph(&mut text, &(call_heading(&call.name) + &call.arguments));
        }
        let mut reasoning = self.reasoning;
        if !calls.is_empty() && !reasoning.is_empty() {
            add_paragraph(&mut reasoning, &std::mem::take(&mut text));
        }
        let mut first = ChatMessage::assistant(text);
        if !reasoning.is_empty() {
            first = first.with_reasoning(reasoning);
        }
        let mut messages = vec![first];
        for (rank, call) in calls.into_iter().enumerate() {
            let before = match rank {
                0 => messages.pop(),
                _ => None,
            };
            let message = before.unwrap_or_else(|| ChatMessage::assistant(""));
            messages.push(message.with_call(call.name, call.arguments));
        }
        messages
    }
}

/// The text that is shown before the arguments of a call.
pub fn call_heading(name: &str) -> String {
    format!("Call of {name}: ")
}

fn add_paragraph(text: &mut String, paragraph: &str) {
    if !text.is_empty() && !paragraph.is_empty() {
        *text += "\n\n";
    }
    *text += paragraph;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of an answer of these deltas, as JSON.
    fn record(deltas: &[AnswerDelta]) -> String {
        let mut content = AnswerContent::default();
        for delta in deltas {
            content.add(delta);
        }
        ChatMessage::record(&content.into_messages())
    }

    fn call(name: &str) -> AnswerDelta {
        AnswerDelta::Call {
            name: name.to_owned(),
        }
    }

    fn arguments(text: &str) -> AnswerDelta {
        AnswerDelta::Arguments(text.to_owned())
    }

    #[test]
    fn an_answer_is_a_message_with_its_reasoning() {
        let reasoning = AnswerDelta::Reasoning("hm".to_owned());
        let text = AnswerDelta::Text(" yes\n".to_owned());
        assert_eq!(
            record(&[reasoning.clone(), text.clone()]),
            r#"{"messages":[{"role":"assistant","content":"yes","reasoning_content":"hm"}]}"#
        );
        assert_eq!(
            record(&[text]),
            r#"{"messages":[{"role":"assistant","content":"yes"}]}"#
        );
        let mut content = AnswerContent::default();
        assert!(!content.has_only_reasoning());
        content.add(&reasoning);
        assert!(content.has_only_reasoning());
    }

    #[test]
    fn a_message_has_one_call_and_no_text_beside_reasoning() {
        let deltas = [
            AnswerDelta::Reasoning("hm".to_owned()),
            AnswerDelta::Text("I look.".to_owned()),
            call("f"),
            arguments("{\"a\": "),
            arguments("1}"),
            call("g"),
            arguments("{}"),
        ];
        assert_eq!(
            record(&deltas),
            concat!(
                r#"{"messages":[{"role":"assistant","content":"","reasoning_content":"hm\n\nI look.","#,
                r#""tool_calls":[{"type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},"#,
                r#"{"role":"assistant","content":"","#,
                r#""tool_calls":[{"type":"function","function":{"name":"g","arguments":"{}"}}]}]}"#
            )
        );
    }

    #[test]
    fn a_truncated_call_is_text() {
        let deltas = [
            AnswerDelta::Text("I look.".to_owned()),
            call("f"),
            arguments("{\"a\": "),
        ];
        assert_eq!(
            record(&deltas),
            r#"{"messages":[{"role":"assistant","content":"I look.\n\nCall of f: {\"a\": "}]}"#
        );
    }
}

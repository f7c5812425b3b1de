//! The conversation, truncated to fit the context.

use emberlm_tokenizer::chat::{ChatEncoder, ChatMessage};

use super::answer_content::AnswerContent;
use crate::error::CliError;

#[derive(Debug, Default)]
pub struct Conversation {
    system: Option<ChatMessage>,
    /// All messages except the system message.
    messages: Vec<ChatMessage>,
    /// Number of oldest messages left out because they do not fit the context.
    left_out: usize,
    /// True once leaving out messages was reported.
    reported: bool,
}

/// The prompt of a conversation.
#[derive(Debug, PartialEq, Eq)]
pub struct Prompt {
    pub ids: Vec<u32>,
    /// True if messages are left out for the first time.
    pub begins_to_leave_out: bool,
}

impl Conversation {
    /// Starts a conversation with an optional system message.
    pub fn new(system: Option<String>) -> Self {
        let system = system.filter(|text| !text.is_empty());
        Self {
            system: system.map(ChatMessage::system),
            ..Self::default()
        }
    }

    /// Removes all messages except the system message.
    pub fn reset(&mut self) {
        *self = Self {
            system: self.system.take(),
            ..Self::default()
        };
    }

    pub fn system(&self) -> Option<&str> {
        self.system.as_ref().map(|message| &message.content[..])
    }

    /// The number of messages, excluding the system message.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns true if there is no message, not even a system message.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.system.is_none()
    }

    /// Appends a user message.
    pub fn ask(&mut self, content: String) {
        self.messages.push(ChatMessage::user(content));
    }

    /// Appends the messages of an answer. Surrounding whitespace is left to the template.
    pub fn answer(&mut self, answer: AnswerContent) {
        self.messages.extend(answer.into_messages());
    }

    /// Removes the last question and its answer. Returns the question, if any.
    pub fn undo(&mut self) -> Option<String> {
        let last = self.messages.iter().rposition(|m| m.role == "user")?;
        let question = self.messages.drain(last..).next();
        self.left_out = 0;
        question.map(|question| question.content)
    }

    /// Serializes the conversation as one line of JSON, in the format of `emberlm prepare --chat-template`.
    pub fn json(&self) -> String {
        self.json_from(0)
    }

    fn json_from(&self, first: usize) -> String {
        let rest = self.messages.get(first..).unwrap_or_default();
        ChatMessage::record(self.system.iter().chain(rest))
    }

    /// Encodes the prompt of the next answer, which must leave `room` tokens of `context` free. Leaves out
    /// the oldest turns if the prompt is too long. In that case the prompt shrinks to three quarters of the
    /// context, so that the next turns still extend the cached prefix.
    pub fn prompt(
        &mut self,
        encoder: &ChatEncoder,
        context: usize,
        room: usize,
    ) -> Result<Prompt, CliError> {
        let encode = |this: &Self| -> Result<Vec<u32>, CliError> {
            Ok(encoder.prompt(&this.json_from(this.left_out))?)
        };
        let before = self.left_out;
        let mut ids = encode(self)?;
        if ids.len().saturating_add(room) > context {
            // Binary search for the fewest turns to leave out. Each probe encodes the remaining messages.
            let most = context / 4 * 3;
            let starts = self.later_questions();
            let (mut low, mut high) = (0, starts.len().saturating_sub(1));
            while low < high {
                let middle = (low + high) / 2;
                self.left_out = starts[middle];
                match encode(self)?.len().saturating_add(room) > most {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            if let Some(start) = starts.get(low) {
                self.left_out = *start;
                ids = encode(self)?;
            }
        }
        if ids.len() >= context {
            self.left_out = before;
            let len = ids.len();
            return Err(CliError::new(format!(
                "this takes {len} tokens, more than the context of {context} has room for"
            ))
            .hint("say it shorter"));
        }
        let begins_to_leave_out = self.left_out > 0 && !self.reported;
        self.reported |= begins_to_leave_out;
        Ok(Prompt {
            ids,
            begins_to_leave_out,
        })
    }

    /// The number of tokens of the next prompt in its current form.
    pub fn tokens(&self, encoder: &ChatEncoder) -> Result<usize, CliError> {
        match self.is_empty() {
            true => Ok(0),
            false => Ok(encoder.prompt(&self.json_from(self.left_out))?.len()),
        }
    }

    /// Indices of the questions after the first visible one.
    fn later_questions(&self) -> Vec<usize> {
        let questions = self.messages.iter().enumerate().skip(self.left_out + 1);
        let questions = questions.filter(|(_, message)| message.role == "user");
        questions.map(|(at, _)| at).collect()
    }
}

#[cfg(test)]
mod tests {
    use emberlm_tokenizer::chat::ChatTemplate;
    use emberlm_tokenizer::{Tokenizer, TokenizerKind};

    use super::*;

    /// Encodes each message as its content, one token per byte.
    fn encoder() -> ChatEncoder {
        let source = "{% for m in messages %}{{ m.content }}{% endfor %}";
        let template = ChatTemplate::parse("plain", source).unwrap();
        ChatEncoder::new(template, &Tokenizer::builtin(TokenizerKind::Byte).unwrap())
    }

    fn answer(text: &str) -> AnswerContent {
        AnswerContent {
            text: text.to_owned(),
            ..AnswerContent::default()
        }
    }

    fn text(prompt: &Prompt) -> String {
        let bytes = prompt.ids.iter().map(|&id| id as u8).collect();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_oldest_turns_are_dropped_when_the_context_is_full() {
        let encoder = encoder();
        let mut conversation = Conversation::new(Some("S".to_owned()));
        let mut seen = Vec::new();
        for question in ["aaaa", "bbbb", "cccc", "dddd", "eeee"] {
            conversation.ask(question.to_owned());
            let prompt = conversation.prompt(&encoder, 20, 4).unwrap();
            seen.push((text(&prompt), prompt.begins_to_leave_out));
            conversation.answer(answer("1"));
        }
        let seen: Vec<_> = seen
            .iter()
            .map(|(text, begins)| (&text[..], *begins))
            .collect();
        // 16 tokens leave room for 4 of 20. After truncation at most 11 tokens plus that room remain.
        assert_eq!(
            seen,
            [
                ("Saaaa", false),
                ("Saaaa1bbbb", false),
                ("Saaaa1bbbb1cccc", false),
                ("Scccc1dddd", true),
                ("Scccc1dddd1eeee", false),
            ]
        );
        assert_eq!(conversation.tokens(&encoder).unwrap(), 16);
        assert!(conversation.json().contains("aaaa"), "a file has all of it");
        // Removing messages may make room for older ones again.
        assert_eq!(conversation.undo().as_deref(), Some("eeee"));
        assert_eq!(conversation.undo().as_deref(), Some("dddd"));
        assert_eq!(conversation.tokens(&encoder).unwrap(), 16);
    }

    #[test]
    fn a_message_that_never_fits_is_rejected_without_dropping_turns() {
        let encoder = encoder();
        let mut conversation = Conversation::default();
        conversation.ask("aaaa".to_owned());
        conversation.answer(answer("1"));
        conversation.ask("b".repeat(20));
        let error = conversation.prompt(&encoder, 20, 4).unwrap_err();
        let message = error.lines(false);
        assert!(
            message.contains("20 tokens, more than the context of 20"),
            "{message}"
        );
        conversation.undo();
        assert_eq!(conversation.tokens(&encoder).unwrap(), 5);
        // The prompt fits, although it leaves less room than requested.
        conversation.reset();
        conversation.ask("b".repeat(19));
        assert_eq!(conversation.prompt(&encoder, 20, 4).unwrap().ids.len(), 19);
    }

    #[test]
    fn undo_removes_a_question_with_its_answer() {
        let mut conversation = Conversation::default();
        assert_eq!(conversation.undo(), None);
        conversation.ask("a".to_owned());
        conversation.answer(answer(" b\n"));
        assert_eq!(
            conversation.json(),
            r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#
        );
        assert_eq!(conversation.undo().as_deref(), Some("a"));
        assert_eq!(conversation.len(), 0);
    }

    #[test]
    fn the_template_receives_the_reasoning_of_earlier_answers() {
        let source = "{% for m in messages %}[{{ m.thinking }}|{{ m.content }}]{% endfor %}";
        let template = ChatTemplate::parse("reasoning", source).unwrap();
        let encoder = ChatEncoder::new(template, &Tokenizer::builtin(TokenizerKind::Byte).unwrap());
        let mut conversation = Conversation::default();
        conversation.ask("a".to_owned());
        conversation.answer(AnswerContent {
            reasoning: "hm".to_owned(),
            ..answer("b")
        });
        conversation.ask("c".to_owned());
        let prompt = conversation.prompt(&encoder, 100, 1).unwrap();
        assert_eq!(text(&prompt), "[|a][hm|b][|c]");
    }
}

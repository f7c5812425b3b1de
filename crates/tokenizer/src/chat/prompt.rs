//! Encodes a conversation as a prompt for its next answer.

use minijinja::value::ValueKind;
use serde_json::{Map, Value, json};

use super::example::field;
use super::spec::ConversationStart;
use super::{ChatEncoder, ChatError, ChatTemplate, Conversation, turns};

/// The end of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptEnd {
    /// The beginning of the assistant's next answer (`add_generation_prompt=True` of `transformers`).
    #[default]
    Answer,
    /// The end of the last message (`add_generation_prompt=False`).
    LastMessage,
    /// The text of the last message, to be continued (`continue_final_message=True`).
    LastText,
}

impl ChatEncoder {
    /// Puts the end-of-text token before every conversation if emberlm trains with it there: if the template was chosen for
    /// a run of emberlm and does not begin with a special token itself. Nothing precedes the conversations of published
    /// models ([`ChatTemplate::published`](super::ChatTemplate::published)).
    #[must_use]
    pub fn with_document_start(self) -> Self {
        let begins_itself = match self.template.start() {
            ConversationStart::Published => true,
            ConversationStart::Recorded(name) => name.is_some(),
            ConversationStart::Run => self.begins_with().is_some(),
        };
        let end = self.end_of_text.filter(|_| !begins_itself);
        self.with_beginning(end.into_iter().collect())
    }

    /// Puts `ids` before every conversation. It applies to [`ChatEncoder::prompt`] and
    /// [`ChatEncoder::encode_documents`]. [`ChatEncoder::encode`] is not affected.
    #[must_use]
    pub fn with_beginning(mut self, ids: Vec<u32>) -> Self {
        self.beginning = ids;
        self
    }

    /// The ids before every conversation.
    pub fn beginning(&self) -> &[u32] {
        &self.beginning
    }

    /// The source of `template`, the encoder's or the one for tools, for `transformers` and llama.cpp, which pass the special
    /// tokens `tokens` to it by name. Rendered by them, a conversation has the ids of [`ChatEncoder::prompt`]: the text begins with the token of
    /// [`ChatEncoder::beginning`], and the source sets the special tokens that are others here.
    pub fn source_for(&self, template: &ChatTemplate, tokens: &Map<String, Value>) -> String {
        let source = template.source();
        let text = |token: &Value| {
            token
                .as_str()
                .or_else(|| token["content"].as_str())
                .map(str::to_owned)
        };
        let mut before = String::new();
        for name in ["bos_token", "eos_token", "pad_token", "unk_token"] {
            let own = template.tokens().get(name).map_or("", String::as_str);
            let given = tokens.get(name).and_then(text).unwrap_or_default();
            if source.contains(name) && own != given {
                before += &format!("{{%- set {name} = {} %}}", json!(own));
            }
        }
        let specials = self.tokenizer.special_tokens();
        let start = specials
            .iter()
            .filter(|(_, id)| self.beginning.contains(id));
        let start: String = start.map(|(name, _)| name.as_str()).collect();
        // An expression keeps the white space that follows it, unlike a statement.
        if !(before.is_empty() && start.is_empty()) {
            before += &format!("{{{{- {} }}}}", json!(start));
        }
        before + source
    }

    /// Encodes the record's `messages` and the prompt for the assistant's next answer. The record has the
    /// format of [`Conversation::from_json`]; its last message may have any role.
    ///
    /// The ids are those of `transformers`' `apply_chat_template` with `add_generation_prompt=True`, except
    /// that a special token's name in a message is plain text, as in [`ChatEncoder::encode`]. They follow the
    /// ids of [`ChatEncoder::beginning`].
    ///
    /// # Errors
    /// The record is invalid, the template rejects it, or the tokenizer cannot encode the text.
    pub fn prompt(&self, json: &str) -> Result<Vec<u32>, ChatError> {
        self.prompt_to(json, PromptEnd::Answer)
    }

    /// Encodes the record's `messages` like [`ChatEncoder::prompt`], up to `end`.
    ///
    /// # Errors
    /// Those of [`ChatEncoder::prompt`]. Also, the last message has no text to continue, or the template changes it.
    pub fn prompt_to(&self, json: &str, end: PromptEnd) -> Result<Vec<u32>, ChatError> {
        let conversation = Conversation::from_json(json)?;
        let template = self.template.for_conversation(&conversation);
        let mut conversation = conversation.for_template(template.reads_parts());
        let marks = self.marks_for(&conversation)?;
        self.bar(&mut conversation, marks.barrier);
        let mut text = template.run(&conversation, end == PromptEnd::Answer)?;
        if end == PromptEnd::LastText {
            let last = last_text(&conversation);
            let length = last.and_then(|last| end_of(&text, &last));
            let length = length.ok_or_else(|| {
                let reason =
                    "must end with a text that the chat template writes unchanged, to be continued";
                ChatError::record("messages", reason)
            })?;
            text.truncate(length);
        }
        let unmarked = turns::remove_marks(template, &marks, &text)?;
        let placed = self.markup.encode(&unmarked.text, &unmarked.barriers)?;
        let ids = placed.into_iter().map(|token| token.id);
        Ok(self.beginning.iter().copied().chain(ids).collect())
    }
}

/// The text of the last message, or of its last part. `None` if it has none.
fn last_text(conversation: &Conversation) -> Option<String> {
    let content = field(&conversation.messages.last()?.fields, "content")?;
    let text = match content.kind() {
        ValueKind::Seq => field(&content.try_iter().ok()?.last()?, "text")?,
        _ => content,
    };
    text.as_str().map(str::to_owned)
}

/// The position after the last occurrence of `last` in `text`. As in `transformers`, the white space around it counts only if
/// the template keeps it.
fn end_of(text: &str, last: &str) -> Option<usize> {
    let trimmed = Some(last.trim()).filter(|trimmed| !trimmed.is_empty())?;
    let start = text.rfind(trimmed)?;
    let is_kept = text.get(start..).is_some_and(|rest| rest.starts_with(last));
    Some(start + if is_kept { last.len() } else { trimmed.len() })
}

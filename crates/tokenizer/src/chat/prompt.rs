//! Encodes a conversation as a prompt for its next answer.

use super::{ChatEncoder, ChatError, Conversation, turns};

impl ChatEncoder {
    /// Puts `ids` before every prompt. `emberlm prepare` begins each document with the end-of-text token, so
    /// models trained on its datasets expect one. [`ChatEncoder::encode`] is not affected.
    #[must_use]
    pub fn with_beginning(mut self, ids: Vec<u32>) -> Self {
        self.beginning = ids;
        self
    }

    /// Encodes the record's `messages` and the prompt for the assistant's next answer. The record has the
    /// format of [`Conversation::from_json`]; its last message may have any role.
    ///
    /// The ids are those of `transformers`' `apply_chat_template` with `add_generation_prompt=True`, except
    /// that a special token's name in a message is plain text, as in [`ChatEncoder::encode`]. They follow the
    /// ids of [`ChatEncoder::with_beginning`].
    ///
    /// # Errors
    /// The record is invalid, the template rejects it, or the tokenizer cannot encode the text.
    pub fn prompt(&self, json: &str) -> Result<Vec<u32>, ChatError> {
        let conversation = Conversation::from_json(json)?;
        let mut conversation = conversation.for_template(self.template.reads_parts());
        let marks = self.marks_for(&conversation)?;
        self.bar(&mut conversation, marks.barrier);
        let text = self.template.run(&conversation, true)?;
        let unmarked = turns::remove_marks(&self.template, &marks, &text)?;
        let placed = self.markup.encode(&unmarked.text, &unmarked.barriers)?;
        let ids = placed.into_iter().map(|token| token.id);
        Ok(self.beginning.iter().copied().chain(ids).collect())
    }
}

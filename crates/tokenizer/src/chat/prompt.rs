//! A conversation as a prompt for its next answer.

use super::{ChatEncoder, ChatError, Conversation, turns};

impl ChatEncoder {
    /// Puts `ids` before every prompt: `emberlm prepare` begins each document with the end-of-text token, so a model that was
    /// trained on its datasets has seen no conversation without it. [`ChatEncoder::encode`] is as it was.
    #[must_use]
    pub fn with_beginning(mut self, ids: Vec<u32>) -> Self {
        self.beginning = ids;
        self
    }

    /// The ids of the record's `messages`, and of what prompts for the assistant's next answer. A record is one of
    /// [`Conversation::from_json`]; its last message may be of any role.
    ///
    /// They are those of `transformers`' `apply_chat_template` with `add_generation_prompt=True`, but that a special token's
    /// name in a message is plain text, as in [`ChatEncoder::encode`]; the text of [`ChatEncoder::with_beginning`] precedes them.
    ///
    /// # Errors
    /// Fails if the record is broken, if the template refuses it, or if the tokenizer cannot encode the text.
    pub fn prompt(&self, json: &str) -> Result<Vec<u32>, ChatError> {
        let conversation = Conversation::from_json(json)?;
        let mut conversation = conversation.for_template(self.template.reads_parts());
        let marks = self.marks_for(&conversation)?;
        self.bar(&mut conversation, marks.barrier);
        let text = self.template.run(&conversation, true)?;
        let unmarked = turns::take_out(&self.template, &marks, &text)?;
        let placed = self.markup.encode(&unmarked.text, &unmarked.barriers)?;
        let ids = placed.into_iter().map(|token| token.id);
        Ok(self.beginning.iter().copied().chain(ids).collect())
    }
}

//! Finds the assistant's answers, which are the training targets, in a rendered conversation.
//!
//! A template with `{% generation %}` marks them itself. For others, the rendered messages before an answer,
//! including the generation prompt, are a prefix of the rendered messages up to the answer. The rest is the
//! answer.

use std::collections::VecDeque;

use super::marks::{Marks, Unmarked};
use super::renderer::{RenderError, RenderJob, TextRequest, Texts};
use super::{ChatError, ChatTemplate, Conversation, Message, generation};

/// Maximum number of texts that are rendered at once.
const MAX_TEXTS: usize = 64;
/// Approximate maximum size of those texts in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The rendered texts that locate the answers: the whole conversation first, then for each answer, from last to
/// first, the text before it and the text up to its end.
///
/// They are rendered in groups, so that a long conversation does not hold all of them in memory at once.
pub(super) struct TurnTexts<'a> {
    template: &'a ChatTemplate,
    conversation: Conversation,
    marks: Marks,
    waiting: VecDeque<TextRequest>,
    ready: VecDeque<Result<String, RenderError>>,
}

impl<'a> TurnTexts<'a> {
    /// Plans the texts of a conversation whose contents are in the form that the template reads.
    pub fn new(template: &'a ChatTemplate, conversation: Conversation, marks: Marks) -> Self {
        let text = |messages, add_generation_prompt| TextRequest {
            messages,
            add_generation_prompt,
            marks: None,
        };
        let messages = &conversation.messages;
        let mut waiting = VecDeque::from([text(messages.len(), false)]);
        if template.marks_answers() {
            waiting[0].marks = Some(generation::marks_variable(&marks));
        } else {
            // From last to first, so that inserting marks does not move the positions of earlier answers.
            for (rank, _) in messages.iter().enumerate().rev().filter(|(_, m)| m.learnt) {
                waiting.extend([text(rank, true), text(rank + 1, false)]);
            }
        }
        Self {
            template,
            conversation,
            marks,
            waiting,
            ready: VecDeque::new(),
        }
    }

    /// True for a conversation that `template` renders.
    pub fn is_of(&self, template: &ChatTemplate) -> bool {
        std::ptr::eq(self.template, template)
    }

    /// Returns the job that renders the next group of texts.
    pub fn next_job(&mut self) -> RenderJob {
        let texts = MAX_BYTES / self.conversation.bytes.max(1);
        let texts = texts.clamp(1, MAX_TEXTS).min(self.waiting.len());
        self.template
            .job(&self.conversation, self.waiting.drain(..texts).collect())
    }

    /// Adds the texts rendered for [`TurnTexts::next_job`].
    pub fn add_texts(&mut self, texts: Texts) {
        self.ready.extend(texts);
    }

    /// Returns the next text, rendering more if needed.
    fn next(&mut self) -> Result<String, ChatError> {
        if self.ready.is_empty() && !self.waiting.is_empty() {
            let job = self.next_job();
            let texts = self.template.run_jobs(&[job])?;
            texts.into_iter().for_each(|texts| self.add_texts(texts));
        }
        match self.ready.pop_front() {
            Some(text) => text.map_err(|error| self.template.refuse(error)),
            None => Err(self.template.no_text()),
        }
    }

    /// Returns the text of the conversation with the `spans` of the answers. `ends` are names of special
    /// tokens: white space after one at the end of an answer does not belong to the answer.
    pub fn unmarked(mut self, ends: &[String]) -> Result<Unmarked, ChatError> {
        match self.template.marks_answers() {
            true => self.marked_by_template(),
            false => self.marked_by_comparison(ends),
        }
    }

    fn marked_by_template(&mut self) -> Result<Unmarked, ChatError> {
        let text = self.next()?;
        let mut unmarked = remove_marks(self.template, &self.marks, &text)?;
        let messages = self.conversation.messages.iter();
        let answers: Vec<&Message> = messages.filter(|m| m.role == "assistant").collect();
        if answers.iter().any(|answer| !answer.learnt) {
            if answers.len() != unmarked.spans.len() {
                let reason = format!(
                    "hold {} of the assistant's, not all to be learnt, but the template marks {} answers: which are which \
                     cannot be determined",
                    answers.len(),
                    unmarked.spans.len()
                );
                return Err(ChatError::record("messages", reason));
            }
            let mut learnt = answers.iter().map(|answer| answer.learnt);
            unmarked.spans.retain(|_| learnt.next().unwrap_or(false));
        }
        Ok(unmarked)
    }

    fn marked_by_comparison(&mut self, ends: &[String]) -> Result<Unmarked, ChatError> {
        let messages = self.conversation.messages.iter().enumerate();
        let learnt = messages.filter(|(_, message)| message.learnt);
        let learnt: Vec<usize> = learnt.map(|(rank, _)| rank).collect();
        let mut text = self.next()?;
        for rank in learnt.into_iter().rev() {
            let (before, through) = (self.next()?, self.next()?);
            let refuse = |reason| ChatError::Unmarked {
                template: self.template.name().to_owned(),
                field: format!("messages[{rank}]"),
                reason,
            };
            let answer = through.strip_prefix(&before).ok_or_else(|| {
                refuse("the rendered conversation does not start with the rendered prompt of the earlier messages")
            })?;
            let trimmed = answer.trim_end();
            let ended = ends.iter().any(|end| trimmed.ends_with(end.as_str()));
            let answer = if ended { trimmed } else { answer };
            let (start, end) = (before.len(), before.len() + answer.len());
            if text.get(..end) != through.get(..end) {
                return Err(refuse(
                    "the template writes it otherwise where more messages follow",
                ));
            }
            text.insert(end, self.marks.end);
            text.insert(start, self.marks.begin);
        }
        remove_marks(self.template, &self.marks, &text)
    }
}

/// Removes the marks from a rendered text.
pub(super) fn remove_marks(
    template: &ChatTemplate,
    marks: &Marks,
    text: &str,
) -> Result<Unmarked, ChatError> {
    marks.remove_from(text).ok_or_else(|| ChatError::Template {
        template: template.name().to_owned(),
        line: None,
        reason: "it cuts through the text of a {% generation %}".to_owned(),
    })
}

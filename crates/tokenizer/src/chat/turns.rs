//! Which stretches of a conversation's text are the assistant's and to be learnt.
//!
//! A template with `{% generation %}` says so itself. For one without, the text of the messages before an answer, with
//! what prompts for it, is a beginning of the text of the messages up to the answer; what comes after that is the answer.

use super::marks::{Marks, Unmarked};
use super::{ChatError, ChatTemplate, Conversation, Message};

/// The text of a conversation, and in `spans` what of it is to be learnt. `ends` are special tokens' names: what
/// follows one at the end of an answer and is blank is not the answer's.
pub(crate) fn render(
    template: &ChatTemplate,
    conversation: &Conversation,
    marks: &Marks,
    ends: &[String],
) -> Result<Unmarked, ChatError> {
    let messages = &conversation.messages;
    if !template.marks_answers() {
        return render_unmarked(template, conversation, marks, ends);
    }
    let text = template.run(messages, conversation, false, Some(marks))?;
    let mut unmarked = take_out(template, marks, &text)?;
    let answers: Vec<&Message> = messages.iter().filter(|m| m.role == "assistant").collect();
    if answers.iter().any(|answer| !answer.learnt) {
        if answers.len() != unmarked.spans.len() {
            let reason = format!(
                "hold {} of the assistant's, not all to be learnt, but the template marks {} answers: which are which \
                 cannot be told",
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

/// Takes the marks out of a rendered text.
pub(super) fn take_out(
    template: &ChatTemplate,
    marks: &Marks,
    text: &str,
) -> Result<Unmarked, ChatError> {
    marks.take_out(text).ok_or_else(|| ChatError::Template {
        template: template.name().to_owned(),
        line: None,
        reason: "it cuts through the text of a {% generation %}".to_owned(),
    })
}

fn render_unmarked(
    template: &ChatTemplate,
    conversation: &Conversation,
    marks: &Marks,
    ends: &[String],
) -> Result<Unmarked, ChatError> {
    let messages = &conversation.messages;
    let mut text = template.run(messages, conversation, false, None)?;
    let learnt = messages
        .iter()
        .enumerate()
        .filter(|(_, message)| message.learnt);
    // From the last answer on, so that places before it stay what they are when marks are put around it.
    for (rank, _) in learnt.rev() {
        let before = template.run(&messages[..rank], conversation, true, None)?;
        let through = template.run(&messages[..=rank], conversation, false, None)?;
        let refuse = |reason| ChatError::Unmarked {
            template: template.name().to_owned(),
            field: format!("messages[{rank}]"),
            reason,
        };
        let answer = through.strip_prefix(&before).ok_or_else(|| {
            refuse("the text of the messages before it, with what prompts for an answer, is not how the text with it begins")
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
        text.insert(end, marks.end);
        text.insert(start, marks.begin);
    }
    take_out(template, marks, &text)
}

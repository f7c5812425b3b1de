//! Fields of a request that a conversation's template receives, in vLLM's form.

use emberlm_tokenizer::chat::PromptEnd;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::api::body::FieldGroup;
use crate::api::error::ApiError;

/// Variables of templates that are fields of a request.
const FIELDS: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];
/// The variable by which templates of several models switch reasoning on and off.
const ENABLE_THINKING: &str = "enable_thinking";
/// All such variables.
const SWITCHES: [&str; 2] = [ENABLE_THINKING, "thinking"];
/// The variable that has the amount of reasoning, as a word.
const EFFORT: &str = "reasoning_effort";
/// The effort that means no reasoning.
const NO_EFFORT: &str = "none";

/// The variables of reasoning that a template reads.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct ReasoningControls {
    /// True if reasoning can be switched off.
    switch: bool,
    /// True if it has an amount.
    effort: bool,
}

impl ReasoningControls {
    /// The controls of the template with this source.
    pub fn of_template(source: &str) -> Self {
        Self {
            switch: SWITCHES.iter().any(|switch| reads(source, switch)),
            effort: reads(source, EFFORT),
        }
    }
}

/// Options of the chat template.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct TemplateOptions {
    /// Variables of the chat template, by name. They have no effect on a template that does not use them.
    chat_template_kwargs: Option<Map<String, Value>>,
    /// The variable `enable_thinking` of the chat template, unless `chat_template_kwargs` has it.
    enable_thinking: Option<bool>,
    /// Documents, for templates that write them.
    documents: Option<Vec<Map<String, Value>>>,
    /// False to end the prompt after the last message, instead of beginning the assistant's answer. Default: true, unless
    /// `continue_final_message` is true.
    add_generation_prompt: Option<bool>,
    /// True to continue the text of the last message. The answer is the new text only.
    #[schemars(extend("default" = false))]
    continue_final_message: Option<bool>,
    /// The amount of reasoning, from a field of one API.
    #[serde(skip)]
    effort: Option<String>,
    /// True if the model reasons, from a field of one API.
    #[serde(skip)]
    reasons: Option<bool>,
}

impl FieldGroup for TemplateOptions {}

impl TemplateOptions {
    /// The end of the prompt.
    ///
    /// # Errors
    /// The prompt would both continue a message and begin an answer.
    pub fn end(&self) -> Result<PromptEnd, ApiError> {
        match (self.add_generation_prompt, self.continue_final_message) {
            (Some(true), Some(true)) => {
                let rule = "cannot be combined with \"add_generation_prompt\": true";
                Err(ApiError::field("continue_final_message", rule))
            }
            (_, Some(true)) => Ok(PromptEnd::LastText),
            (Some(false), _) => Ok(PromptEnd::LastMessage),
            _ => Ok(PromptEnd::Answer),
        }
    }

    /// Requests an amount of reasoning, such as `low`; `none` is no reasoning. It has no effect on a template without a variable
    /// for it.
    pub fn set_effort(&mut self, effort: String) {
        self.reasons = Some(effort != NO_EFFORT);
        self.effort = Some(effort);
    }

    /// Switches reasoning on or off, where the template has a switch.
    pub fn set_reasoning(&mut self, reasons: bool) {
        self.reasons = Some(reasons);
    }

    /// Requests a continuation of the last message.
    pub fn continue_last(&mut self) {
        self.continue_final_message = Some(true);
    }

    /// The documents.
    pub fn documents(&self) -> &[Map<String, Value>] {
        self.documents.as_deref().unwrap_or_default()
    }

    /// The other variables of the template with this source.
    ///
    /// # Errors
    /// One of them is a field of the request.
    pub fn variables(&mut self, source: &str) -> Result<Map<String, Value>, ApiError> {
        let mut variables = self.chat_template_kwargs.take().unwrap_or_default();
        if let Some(name) = FIELDS.iter().find(|name| variables.contains_key(**name)) {
            let rule = format!("must not have {name}, which is a field of the request");
            return Err(ApiError::field("chat_template_kwargs", rule));
        }
        if let Some(enabled) = self.enable_thinking {
            let variable = variables.entry(ENABLE_THINKING);
            variable.or_insert_with(|| enabled.into());
        }
        if let Some(effort) = self.effort.take().filter(|_| reads(source, EFFORT)) {
            let variable = variables.entry(EFFORT);
            variable.or_insert_with(|| effort.into());
        }
        if let Some(reasons) = self.reasons {
            for switch in SWITCHES.into_iter().filter(|switch| reads(source, switch)) {
                let variable = variables.entry(switch);
                variable.or_insert_with(|| reasons.into());
            }
        }
        Ok(variables)
    }
}

/// Returns true if the template with this source has a variable `name`. Attributes, strings and comments do not count.
fn reads(source: &str, name: &str) -> bool {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = source;
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        // A comment ends before the next expression.
        if let Some(comment) = rest.find("{#").filter(|comment| *comment < at) {
            let end = rest[comment..].find("#}");
            rest = end.map_or("", |end| &rest[comment + end..]);
            continue;
        }
        rest = &rest[at + 2..];
        let mut follows_dot = false;
        loop {
            let Some(first) = rest.chars().next() else {
                return false;
            };
            if rest.starts_with("}}") || rest.starts_with("%}") {
                break;
            }
            let length = match first {
                '"' | '\'' => string_length(rest, first),
                _ if is_of_word(first) => rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()),
                _ => first.len_utf8(),
            };
            let (token, after) = rest.split_at(length);
            if token == name && !follows_dot {
                return true;
            }
            follows_dot = token == ".";
            rest = after;
        }
    }
    false
}

/// The length of the string at the beginning of `text`, with its quotes.
fn string_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let is_end = *c == quote && !escaped;
        escaped = *c == '\\' && !escaped;
        is_end
    });
    end.map_or(text.len(), |(at, _)| at + quote.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_neither_attributes_nor_words_of_texts() {
        for (source, is_read) in [
            ("{{ thinking }}", true),
            ("{% if messages and thinking is false %}a{% endif %}", true),
            ("{{- 'a\\' b' + thinking -}}", true),
            ("{{ {'a': thinking}['a'] }}", true),
            ("it's {# thinking #} {{ 'a' }}{{thinking}}", true),
            ("{{ enable_thinking }} thinking", false),
            ("{{ message.thinking }}", false),
            ("{{ message['thinking'] + \"a \\\" thinking\" }}", false),
            ("{# {{ thinking }} #}{{ 'a' }}", false),
            ("{{ thinkin", false),
            ("{{ 'thinking", false),
            ("{# thinking", false),
            ("", false),
        ] {
            assert_eq!(reads(source, "thinking"), is_read, "{source}");
        }
    }
}

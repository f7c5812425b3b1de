//! Fields of a request that a conversation's template receives, in vLLM's form.

use emberlm_tokenizer::chat::{ChatTemplate, PromptEnd};
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
    /// The controls of a template.
    pub fn of_template(template: &ChatTemplate) -> Self {
        Self {
            switch: SWITCHES.iter().any(|switch| template.reads(switch)),
            effort: template.reads(EFFORT),
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

    /// The other variables of a template.
    ///
    /// # Errors
    /// One of them is a field of the request.
    pub fn variables(&mut self, template: &ChatTemplate) -> Result<Map<String, Value>, ApiError> {
        let mut variables = self.chat_template_kwargs.take().unwrap_or_default();
        if let Some(name) = FIELDS.iter().find(|name| variables.contains_key(**name)) {
            let rule = format!("must not have {name}, which is a field of the request");
            return Err(ApiError::field("chat_template_kwargs", rule));
        }
        if let Some(enabled) = self.enable_thinking {
            let variable = variables.entry(ENABLE_THINKING);
            variable.or_insert_with(|| enabled.into());
        }
        if let Some(effort) = self.effort.take().filter(|_| template.reads(EFFORT)) {
            let variable = variables.entry(EFFORT);
            variable.or_insert_with(|| effort.into());
        }
        if let Some(reasons) = self.reasons {
            for switch in SWITCHES.into_iter().filter(|switch| template.reads(switch)) {
                let variable = variables.entry(switch);
                variable.or_insert_with(|| reasons.into());
            }
        }
        Ok(variables)
    }
}

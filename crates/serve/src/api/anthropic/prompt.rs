//! The fields of a conversation, with the tools that the answer may use.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::content::{InputMessage, Text};
use crate::api::body::{FieldGroup, Object, Tagged};
use crate::api::conversation::{CallChoice, Message, TemplateOptions, Tool, ToolFunction};
use crate::api::error::ApiError;
use crate::api::settings::{TextForm, json_grammar};
use crate::limits::MOST_TOOLS;

/// The fields.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "MessagesPrompt")]
pub(crate) struct Prompt {
    /// The name or an alias of the model.
    pub model: String,
    /// The conversation so far. A last message of `assistant` is continued.
    #[schemars(length(min = 1))]
    messages: Vec<Object<InputMessage>>,
    /// A system message before the others.
    system: Option<Text>,
    /// The tools that the answer may use.
    #[schemars(length(max = MOST_TOOLS))]
    tools: Option<Vec<Object<CustomTool>>>,
    /// The tool to use. Default: the model decides.
    tool_choice: Option<Tagged<Choice>>,
    /// The model's reasoning. Only with it does the answer have blocks of type `thinking`, and without it models reason only if
    /// their template has no switch.
    thinking: Option<Tagged<Thinking>>,
    /// The form of the answer, and the amount of reasoning.
    output_config: Option<Object<OutputConfig>>,
}

/// A tool that the model may use.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CustomTool {
    /// The tool's type; may be left out.
    #[allow(dead_code)]
    #[serde(rename = "type")]
    kind: Option<CustomKind>,
    /// Up to 64 letters, digits, `_` and `-`.
    name: String,
    /// A description, for the model.
    description: Option<String>,
    /// The JSON schema of the arguments, an object.
    input_schema: Map<String, Value>,
    /// True to reject a schema with keywords that are not supported, which otherwise do not restrict the arguments. All
    /// others are enforced in any case.
    strict: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CustomKind {
    Custom,
}

/// The use of tools in an answer.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "MessagesToolChoice")]
enum Choice {
    /// Text, or calls.
    Auto {
        /// True limits the answer to one call.
        disable_parallel_tool_use: Option<bool>,
    },
    /// Calls.
    Any {
        /// True limits the answer to one call.
        disable_parallel_tool_use: Option<bool>,
    },
    /// One call of a tool.
    Tool {
        /// The tool's name.
        name: String,
        /// Has no effect.
        #[allow(dead_code)]
        disable_parallel_tool_use: Option<bool>,
    },
    /// Text; the tools are not in the prompt.
    None {},
}

/// The model's reasoning.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "MessagesThinking")]
enum Thinking {
    /// It does.
    Enabled {
        /// Has no effect: `max_tokens` limits the reasoning and the answer together.
        #[allow(dead_code)]
        #[schemars(range(min = 0, max = u32::MAX))]
        budget_tokens: Option<u32>,
        /// `omitted` leaves the text of the reasoning out. It is not summarized.
        display: Option<Display>,
    },
    /// The same as `enabled`.
    Adaptive {
        /// `omitted` leaves the text of the reasoning out. It is not summarized.
        display: Option<Display>,
    },
    /// It does not, if its template has a switch. Its reasoning is not part of the answer.
    Disabled {},
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "MessagesDisplay")]
enum Display {
    Summarized,
    Omitted,
}

/// The form of the answer, and the amount of reasoning.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OutputConfig {
    /// Such as `low`, for models whose template has a variable for it.
    effort: Option<String>,
    /// The form of the text.
    format: Option<Tagged<OutputFormat>>,
}

/// The form of the text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum OutputFormat {
    /// JSON that follows a schema.
    JsonSchema {
        /// The schema.
        schema: BTreeMap<String, Value>,
    },
}

/// A conversation for a chat template.
pub(super) struct Messages {
    pub messages: Vec<Object<Message>>,
    pub template: TemplateOptions,
}

impl FieldGroup for Prompt {}

impl Prompt {
    /// Takes the conversation out of the request.
    ///
    /// # Errors
    /// There are no messages, or a message has blocks that its author does not write.
    pub(super) fn messages(&mut self) -> Result<Messages, ApiError> {
        if self.messages.is_empty() {
            return Err(ApiError::field("messages", "must not be empty"));
        }
        let mut template = TemplateOptions::default();
        let reasons = self.thinking.as_ref().is_some_and(|it| it.0.is_enabled());
        let effort = self
            .output_config
            .as_mut()
            .and_then(|config| config.0.effort.take());
        if let Some(effort) = effort {
            template.set_effort(effort);
        }
        template.set_reasoning(reasons);
        if self.messages.last().is_some_and(|last| last.0.is_prefix()) {
            template.continue_last();
        }
        let system = self.system.take().map(Text::into_texts);
        let system = system.map(|texts| Object::new(Message::of_texts("system", texts)));
        let mut messages = Vec::from_iter(system);
        for (index, message) in mem::take(&mut self.messages).into_iter().enumerate() {
            message.0.add_to(index, &mut messages)?;
        }
        Ok(Messages { messages, template })
    }

    /// The tools, in the form of chat templates.
    pub fn tools(&self) -> Vec<Object<Tool>> {
        let tools = self.tools.iter().flatten();
        tools.map(|tool| Object::new(tool.0.to_tool())).collect()
    }

    /// The tools that are in the prompt.
    pub fn shown_tools(&self) -> Option<Arc<Vec<Object<Tool>>>> {
        let is_shown = !matches!(self.choice(), CallChoice::None);
        is_shown.then(|| Arc::new(self.tools()))
    }

    /// The tools that the answer uses.
    pub fn choice(&self) -> CallChoice<'_> {
        match self.tool_choice.as_ref().map(|choice| &choice.0) {
            None | Some(Choice::Auto { .. }) => CallChoice::Auto,
            Some(Choice::Any { .. }) => CallChoice::Required,
            Some(Choice::Tool { name, .. }) => CallChoice::Function {
                name,
                field: "tool_choice.name",
            },
            Some(Choice::None {}) => CallChoice::None,
        }
    }

    /// Returns true if the answer may have several calls.
    pub fn is_parallel(&self) -> bool {
        match self.tool_choice.as_ref().map(|choice| &choice.0) {
            Some(
                Choice::Auto {
                    disable_parallel_tool_use,
                }
                | Choice::Any {
                    disable_parallel_tool_use,
                },
            ) => *disable_parallel_tool_use != Some(true),
            _ => true,
        }
    }

    /// Returns true if the answer has the text of its reasoning.
    pub fn shows_reasoning(&self) -> bool {
        match self.thinking.as_ref().map(|thinking| &thinking.0) {
            Some(Thinking::Enabled { display, .. } | Thinking::Adaptive { display }) => {
                *display != Some(Display::Omitted)
            }
            Some(Thinking::Disabled {}) | None => false,
        }
    }

    /// The form of the text.
    ///
    /// # Errors
    /// See [`json_grammar`].
    pub fn form(&self) -> Result<Option<TextForm>, ApiError> {
        let config = self.output_config.as_ref().map(|config| &config.0);
        match config.and_then(|config| config.format.as_ref()) {
            None => Ok(None),
            Some(Tagged(OutputFormat::JsonSchema { schema })) => Ok(Some(TextForm {
                field: "output_config.format",
                grammar: json_grammar(Some(schema))?,
            })),
        }
    }
}

impl CustomTool {
    fn to_tool(&self) -> Tool {
        Tool::new(Object::new(ToolFunction {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: Some(self.input_schema.clone()),
            strict: self.strict,
        }))
    }
}

impl Thinking {
    fn is_enabled(&self) -> bool {
        !matches!(self, Self::Disabled {})
    }
}

/// Renames the field of an error from shared code to this API's field.
pub(super) fn renamed(error: ApiError) -> ApiError {
    error.renamed(|field| match field {
        "stop" => Some("stop_sequences".to_owned()),
        "response_format" => Some("output_config.format".to_owned()),
        // Such as `tools[0].function.name`.
        field if field.starts_with("tools[") => {
            let field = field.replacen(".function.parameters", ".input_schema", 1);
            Some(field.replacen(".function.", ".", 1))
        }
        _ => None,
    })
}

//! Messages of a conversation and their content blocks.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::body::{Object, Tagged};
use crate::api::conversation::Message;
use crate::api::error::ApiError;

/// A message of a conversation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "MessagesMessage")]
pub(super) struct InputMessage {
    /// The author.
    role: Role,
    /// The text, or a list of blocks.
    content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "MessagesRole")]
enum Role {
    User,
    Assistant,
    System,
}

/// A text, or a list of blocks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a text, or a list of blocks of type text, thinking, redacted_thinking, tool_use or tool_result"
)]
#[schemars(rename = "MessagesContent")]
enum Content {
    Text(String),
    Blocks(Vec<Tagged<Block>>),
}

/// A text, or a list of text blocks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a text, or a list of blocks of type text")]
#[schemars(rename = "MessagesText")]
pub(super) enum Text {
    Text(String),
    Blocks(Vec<Tagged<TextBlock>>),
}

/// The fields of a block of text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "MessagesTextFields")]
pub(super) struct TextFields {
    /// The text.
    text: String,
    /// Has no effect: the server reuses the longest cached beginning of a prompt by itself.
    #[allow(dead_code)]
    cache_control: Option<Map<String, Value>>,
    /// Has no effect.
    #[allow(dead_code)]
    citations: Option<Vec<Value>>,
}

/// A block of text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "MessagesTextBlock")]
pub(super) enum TextBlock {
    /// A text.
    Text(TextFields),
}

/// A block of a message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "MessagesBlock")]
enum Block {
    /// A text.
    Text(TextFields),
    /// The reasoning of an earlier answer, for templates that write it.
    Thinking {
        /// The text.
        thinking: String,
        /// Has no effect: the text is used as it is.
        #[allow(dead_code)]
        signature: Option<String>,
    },
    /// Reasoning that cannot be read. It has no effect.
    RedactedThinking {
        /// Has no effect.
        #[allow(dead_code)]
        data: String,
    },
    /// A call of a tool in an earlier answer.
    ToolUse {
        /// The identifier by which a result names the call.
        id: String,
        /// The tool's name.
        name: String,
        /// The arguments.
        input: Map<String, Value>,
        /// Has no effect.
        #[allow(dead_code)]
        cache_control: Option<Map<String, Value>>,
        /// Has no effect.
        #[allow(dead_code)]
        caller: Option<Map<String, Value>>,
    },
    /// The result of a call, in a message of the user.
    ToolResult {
        /// The identifier of the call.
        tool_use_id: String,
        /// The result. Default: an empty text.
        content: Option<Text>,
        /// Has no effect: the text says it.
        #[allow(dead_code)]
        is_error: Option<bool>,
        /// Has no effect.
        #[allow(dead_code)]
        cache_control: Option<Map<String, Value>>,
    },
}

impl Text {
    /// The texts of the blocks.
    pub fn into_texts(self) -> Vec<String> {
        match self {
            Self::Text(text) => vec![text],
            Self::Blocks(blocks) => {
                let text = |block: Tagged<TextBlock>| match block.0 {
                    TextBlock::Text(block) => block.text,
                };
                blocks.into_iter().map(text).collect()
            }
        }
    }
}

impl InputMessage {
    /// Returns true for an assistant's message that ends with text, which the answer continues.
    pub fn is_prefix(&self) -> bool {
        let ends_with_text = match &self.content {
            Content::Text(_) => true,
            Content::Blocks(blocks) => {
                matches!(blocks.last(), Some(Tagged(Block::Text(_))))
            }
        };
        self.role == Role::Assistant && ends_with_text
    }

    /// Adds the message at `index` to those for a chat template: results as messages of role `tool`, and the rest as one
    /// message.
    ///
    /// # Errors
    /// A block is not one of the author's, or the message has none.
    pub fn add_to(self, index: usize, messages: &mut Vec<Object<Message>>) -> Result<(), ApiError> {
        let (role, blocks) = match (self.role, self.content) {
            (role, Content::Text(text)) => {
                messages.push(Object::new(Message::of_text(role.name(), text)));
                return Ok(());
            }
            (role, Content::Blocks(blocks)) => (role, blocks),
        };
        if blocks.is_empty() {
            let field = format!("messages[{index}].content");
            return Err(ApiError::field(field, "must not be empty"));
        }
        let (mut texts, mut reasoning, mut calls) = (Vec::new(), String::new(), Vec::new());
        for (number, block) in blocks.into_iter().enumerate() {
            match (block.0, role) {
                (Block::Text(block), _) => texts.push(block.text),
                (Block::Thinking { thinking, .. }, Role::Assistant) => reasoning += &thinking,
                (Block::RedactedThinking { .. }, Role::Assistant) => {}
                (
                    Block::ToolUse {
                        id, name, input, ..
                    },
                    Role::Assistant,
                ) => {
                    calls.push((id, name, Value::Object(input).to_string()));
                }
                (
                    Block::ToolResult {
                        tool_use_id,
                        content,
                        ..
                    },
                    Role::User,
                ) => {
                    let texts = content.map(Text::into_texts).unwrap_or_default();
                    let result = Message::of_result(tool_use_id, texts.concat());
                    messages.push(Object::new(result));
                }
                _ => {
                    let field = format!("messages[{index}].content[{number}].type");
                    let rule = "must be one of this role: thinking and tool_use of assistant, tool_result of user";
                    return Err(ApiError::field(field, rule));
                }
            }
        }
        if texts.is_empty() && calls.is_empty() && reasoning.is_empty() {
            return Ok(());
        }
        let mut message = match texts.is_empty() && role == Role::Assistant {
            true => Message::of_calls(),
            false => Message::of_texts(role.name(), texts),
        };
        if !reasoning.is_empty() {
            message.add_reasoning(&reasoning);
        }
        for (id, name, arguments) in calls {
            message.add_call(id, name, arguments);
        }
        messages.push(Object::new(message));
        Ok(())
    }
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
        }
    }
}

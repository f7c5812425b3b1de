//! The functions and calls of a conversation, in the form that the model's chat template supports.

use std::borrow::Cow;

use emberlm_tokenizer::chat::ChatError;
use serde::Serialize;
use serde_json::Value;

use super::messages::Message;
use super::tools::Tool;
use crate::api::body::Object;
use crate::api::error::ApiError;
use crate::model::ServedModel;
use crate::tools::{
    InstructionsPlace, ToolSupport, rewrite, with_single_calls, with_written_calls,
};

/// The messages for a template: those of the request, or others.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Messages<'a> {
    OfRequest(&'a [Object<Message>]),
    Rewritten(Vec<Value>),
}

/// A conversation in the form that a template supports.
pub(super) struct TemplateInput<'a> {
    pub messages: Messages<'a>,
    pub tools: Cow<'a, [Object<Tool>]>,
}

/// The messages and functions for the model's template. Where it does not support functions or calls, they are text of the
/// messages. Templates of channels write one call per message, and a description of each function.
///
/// # Errors
/// The template could not be run.
pub(super) fn for_template<'a>(
    messages: &'a [Object<Message>],
    tools: &'a [Object<Tool>],
    model: &ServedModel,
) -> Result<TemplateInput<'a>, ApiError> {
    let as_values = || json_of("messages", messages);
    let calls = messages.iter().any(|it| it.0.calls_functions());
    let has_results = || messages.iter().any(|it| it.0.is_result());
    let rewritten = match model.tool_support(!tools.is_empty()) {
        Some(ToolSupport::Template(format)) if format.channels.is_some() => {
            let described = tools.iter().map(|tool| tool.clone().map(Tool::described));
            return Ok(TemplateInput {
                messages: Messages::Rewritten(with_single_calls(as_values()?)),
                tools: described.collect(),
            });
        }
        Some(ToolSupport::TemplateWithoutCalls(format)) if calls => {
            return Ok(TemplateInput {
                messages: Messages::Rewritten(with_written_calls(as_values()?, format)),
                tools: tools.into(),
            });
        }
        Some(ToolSupport::BuiltIn) if !tools.is_empty() => rewrite(
            as_values()?,
            &json_of("tools", tools)?,
            instructions_place(model)?,
        ),
        Some(ToolSupport::BuiltIn) if calls || has_results() => {
            rewrite(as_values()?, &[], InstructionsPlace::System)
        }
        _ => {
            return Ok(TemplateInput {
                messages: Messages::OfRequest(messages),
                tools: tools.into(),
            });
        }
    };
    Ok(TemplateInput {
        messages: Messages::Rewritten(rewritten),
        tools: Cow::default(),
    })
}

/// The elements of a list as JSON.
fn json_of<T: Serialize>(field: &str, list: &[T]) -> Result<Vec<Value>, ApiError> {
    let values = list.iter().map(serde_json::to_value);
    let values: Result<Vec<Value>, _> = values.collect();
    values.map_err(|error| ApiError::field(field, error.to_string()))
}

/// The message for the instructions.
fn instructions_place(model: &ServedModel) -> Result<InstructionsPlace, ApiError> {
    let unavailable = || ApiError::internal("the template could not be run");
    let chat = model.chat_format(false).ok_or_else(unavailable)?;
    match chat.encoder.template().writes_system() {
        Ok(true) => Ok(InstructionsPlace::System),
        Ok(false) => Ok(InstructionsPlace::FirstUser),
        Err(ChatError::Unavailable { .. }) => Err(unavailable()),
        Err(error) => Err(ApiError::field("messages", error.to_string())),
    }
}

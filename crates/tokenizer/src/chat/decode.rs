//! Decodes values of records that are encoded twice: JSON as a text within JSON.
//!
//! OpenAI's `arguments` of a call are such a text, and tables hold nested values as texts. Every reader of records decodes them
//! here, so that a conversation has the same ids in training and in prompts.

use serde_json::{Map, Value};

use super::{ChatError, python};

/// The authors of the results of tools, in the templates of different models.
const TOOL_ROLES: [&str; 3] = ["tool", "function", "ipython"];

/// The type of an encoded value.
#[derive(Clone, Copy)]
enum Kind {
    List,
    Object,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::List => "a list",
            Self::Object => "an object",
        }
    }

    fn matches(self, value: &Value) -> bool {
        match self {
            Self::List => value.is_array(),
            Self::Object => value.is_object(),
        }
    }
}

/// Decodes the fields of a record that may hold JSON as a text:
///
/// - `messages` and `conversations`, and each message in them;
/// - `prompt`, `completion`, `chosen` and `rejected`, if the text is a list of messages;
/// - `tools`, `documents` and `chat_template_kwargs`;
/// - the `parameters` of a tool;
/// - `tool_calls` and `function_call` of a message, and the `arguments` of a call. An empty text has no arguments.
///
/// The content of a tool's message becomes a text, if it is another value: the one that Python's `json.dumps` writes.
///
/// # Errors
/// [`ChatError::Record`] with the field, if a text is not JSON or has another type.
pub fn decode_record(record: &mut Map<String, Value>) -> Result<(), ChatError> {
    record
        .iter_mut()
        .try_for_each(|(name, value)| decode_field(name, value))
}

/// Decodes the field `name` of a record as [`decode_record`] does.
///
/// # Errors
/// Those of [`decode_record`].
pub fn decode_field(name: &str, value: &mut Value) -> Result<(), ChatError> {
    match name {
        "messages" | "conversations" => {
            decode(value, name, Kind::List)?;
            decode_messages(value, name)
        }
        "prompt" | "completion" | "chosen" | "rejected" => {
            if let Some(text) = value.as_str()
                && let Some(messages) = encoded_messages(text, name)?
            {
                *value = messages;
            }
            decode_messages(value, name)
        }
        "tools" => decode_tools(value),
        "documents" => decode(value, name, Kind::List),
        "chat_template_kwargs" => decode(value, name, Kind::Object),
        _ => Ok(()),
    }
}

/// Parses the arguments of a call. An empty text is an empty object: functions without parameters are called that way.
///
/// # Errors
/// The rule, if the text is not a JSON object.
pub fn read_arguments(text: &str) -> Result<Map<String, Value>, String> {
    match text.trim() {
        "" => Ok(Map::new()),
        text => serde_json::from_str(text)
            .map_err(|error| format!("must be a JSON object, written as a string: {error}")),
    }
}

/// Replaces a text by the value that it holds.
fn decode(value: &mut Value, path: &str, kind: Kind) -> Result<(), ChatError> {
    let Value::String(text) = &*value else {
        return Ok(());
    };
    let kind_name = kind.name();
    let decoded: Value = serde_json::from_str(text).map_err(|error| {
        let reason = format!("must be {kind_name}, or {kind_name} written as JSON: {error}");
        ChatError::record(path, reason)
    })?;
    if !decoded.is_null() && !kind.matches(&decoded) {
        let reason = format!("must be {kind_name}, but the JSON in its text is not");
        return Err(ChatError::record(path, reason));
    }
    *value = decoded;
    Ok(())
}

/// Replaces a text that begins like an object.
fn decode_object(value: &mut Value, path: &str) -> Result<(), ChatError> {
    let begins = |text: &str| text.trim_start().starts_with('{');
    match value.as_str().is_some_and(begins) {
        true => decode(value, path, Kind::Object),
        false => Ok(()),
    }
}

/// Returns the messages that a text encodes. Texts are rarely lists of objects that have an author.
fn encoded_messages(text: &str, path: &str) -> Result<Option<Value>, ChatError> {
    let list = text.trim_start().strip_prefix('[').map(str::trim_start);
    let Some(list) = list.filter(|list| list.starts_with(['{', '"'])) else {
        return Ok(None);
    };
    let is_message = |message: &Value| {
        let has_author = |value: &Value| !value["role"].is_null() || !value["from"].is_null();
        let encoded = || serde_json::from_str(message.as_str()?).ok();
        has_author(message) || encoded().is_some_and(|message| has_author(&message))
    };
    let printed = |list: &str| {
        let key = list
            .strip_prefix('{')
            .map(str::trim_start)
            .unwrap_or_default();
        ["'role':", "'content':", "'from':", "'value':"]
            .iter()
            .any(|name| key.starts_with(name))
    };
    match serde_json::from_str::<Vec<Value>>(text) {
        Ok(messages) if !messages.is_empty() && messages.iter().all(is_message) => {
            Ok(Some(Value::Array(messages)))
        }
        Err(_) if printed(list) => {
            let reason = "is a list of messages as Python prints it; write it with json.dumps";
            Err(ChatError::record(path, reason))
        }
        Ok(_) | Err(_) => Ok(None),
    }
}

fn decode_messages(messages: &mut Value, path: &str) -> Result<(), ChatError> {
    let messages = messages.as_array_mut().into_iter().flatten();
    for (rank, message) in messages.enumerate() {
        let path = format!("{path}[{rank}]");
        decode(message, &path, Kind::Object)?;
        if let Some(message) = message.as_object_mut() {
            decode_message(message, &path)?;
        }
    }
    Ok(())
}

fn decode_message(message: &mut Map<String, Value>, path: &str) -> Result<(), ChatError> {
    if let Some(calls) = message.get_mut("tool_calls") {
        let path = format!("{path}.tool_calls");
        decode(calls, &path, Kind::List)?;
        let calls = calls.as_array_mut().into_iter().flatten();
        for (rank, call) in calls.enumerate() {
            decode_call(call, &format!("{path}[{rank}]"))?;
        }
    }
    if let Some(call) = message.get_mut("function_call") {
        decode_call(call, &format!("{path}.function_call"))?;
    }
    let role = message.get("role").and_then(Value::as_str);
    let is_result = role.is_some_and(|role| TOOL_ROLES.contains(&role));
    match message.get_mut("content") {
        Some(content) if is_result && !is_text(content) => {
            *content = Value::String(python::json_dumps(content));
        }
        _ => {}
    }
    Ok(())
}

/// Returns true if a content is a text, a list of parts, or missing.
fn is_text(content: &Value) -> bool {
    match content {
        Value::Null | Value::String(_) => true,
        Value::Array(parts) => {
            !parts.is_empty() && parts.iter().all(|part| part["type"].is_string())
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

fn decode_call(call: &mut Value, path: &str) -> Result<(), ChatError> {
    decode(call, path, Kind::Object)?;
    let Some(call) = call.as_object_mut() else {
        return Ok(());
    };
    if let Some(function) = call.get_mut("function") {
        let path = format!("{path}.function");
        decode_object(function, &path)?;
        decode_arguments(function.get_mut("arguments"), &path)?;
    }
    decode_arguments(call.get_mut("arguments"), path)
}

fn decode_arguments(arguments: Option<&mut Value>, path: &str) -> Result<(), ChatError> {
    let Some(arguments) = arguments else {
        return Ok(());
    };
    if let Some(text) = arguments.as_str() {
        let read = read_arguments(text);
        let read = read.map_err(|rule| ChatError::record(format!("{path}.arguments"), rule))?;
        *arguments = Value::Object(read);
    }
    Ok(())
}

fn decode_tools(tools: &mut Value) -> Result<(), ChatError> {
    decode(tools, "tools", Kind::List)?;
    if !tools.is_null() && !tools.is_array() {
        return Err(ChatError::record("tools", "must be a list of tools"));
    }
    let tools = tools.as_array_mut().into_iter().flatten();
    for (rank, tool) in tools.enumerate() {
        let path = format!("tools[{rank}]");
        decode_object(tool, &path)?;
        let Some(tool) = tool.as_object_mut() else {
            continue;
        };
        if let Some(function) = tool.get_mut("function") {
            let path = format!("{path}.function");
            decode_object(function, &path)?;
            if let Some(function) = function.as_object_mut() {
                decode_function(function, &path)?;
            }
        }
        decode_function(tool, &path)?;
    }
    Ok(())
}

/// Decodes the parameters of a function. Its fields that are null, and `strict`, are not for the template: a server does not
/// pass them either.
fn decode_function(function: &mut Map<String, Value>, path: &str) -> Result<(), ChatError> {
    if let Some(parameters) = function.get_mut("parameters") {
        decode(parameters, &format!("{path}.parameters"), Kind::Object)?;
    }
    function.retain(|name, value| name != "strict" && !value.is_null());
    Ok(())
}

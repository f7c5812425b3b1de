//! Parses a JSON record: a conversation, or a prompt and a completion.

use minijinja::Value;
use minijinja::value::ValueKind;
use serde::Deserialize;

use super::{ChatError, decode_record};

/// The field names of a message's reasoning, in order of precedence.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// A training example.
#[derive(Clone, Debug)]
pub enum ChatExample {
    /// Messages. The assistant's are the targets.
    Conversation(Conversation),
    /// A prompt and its completion.
    Text {
        /// The prompt.
        prompt: String,
        /// The completion, which is the target.
        completion: String,
    },
}

/// Messages and other variables of a template.
#[derive(Clone, Debug)]
pub struct Conversation {
    pub(crate) messages: Vec<Message>,
    /// `tools`, `documents` and the entries of `chat_template_kwargs`, by name.
    pub(crate) variables: Vec<(String, Value)>,
    /// The size of the record in bytes.
    pub(crate) bytes: usize,
}

/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    pub(crate) role: String,
    /// All non-null fields.
    pub(crate) fields: Value,
    /// True if the message is an assistant's answer and a target.
    pub(crate) learnt: bool,
}

impl ChatExample {
    /// Parses a record in one of three formats:
    ///
    /// - `{"messages": [{"role": …, "content": …}, …]}`, OpenAI's format. Contents are strings or lists of
    ///   `{"type": "text", "text": …}`. An assistant's message with `"weight": 0` is not a target. Other fields
    ///   of messages are passed to the template, as are the record's `tools`, `documents` and the entries of
    ///   `chat_template_kwargs`.
    /// - `{"prompt": "…", "completion": "…"}`.
    /// - `{"prompt": [messages], "completion": [messages]}`. The assistant's messages in `completion` are the
    ///   targets.
    ///
    /// Values that are JSON in a text are decoded: see [`decode_record`].
    ///
    /// # Errors
    /// [`ChatError::Json`], or [`ChatError::Record`] with the field and the violated rule.
    pub fn from_json(json: &str) -> Result<Self, ChatError> {
        let record = read_object(json)?;
        let messages = field(&record, "messages");
        let (prompt, completion) = (field(&record, "prompt"), field(&record, "completion"));
        let messages = match (messages, prompt, completion) {
            (Some(messages), ..) => read_messages(&messages, "messages", true)?,
            (None, Some(prompt), Some(completion)) => {
                if let (Some(prompt), Some(completion)) = (prompt.as_str(), completion.as_str()) {
                    return Ok(Self::Text {
                        prompt: prompt.to_owned(),
                        completion: completion.to_owned(),
                    });
                }
                let mut messages = read_messages(&prompt, "prompt", false)?;
                messages.extend(read_messages(&completion, "completion", true)?);
                messages
            }
            (None, None, None) => {
                let reason = "is missing, and so are `prompt` and `completion`";
                return Err(ChatError::record("messages", reason));
            }
            (None, None, Some(_)) => return Err(ChatError::record("prompt", "is missing")),
            (None, Some(_), None) => return Err(ChatError::record("completion", "is missing")),
        };
        Ok(Self::Conversation(Conversation {
            messages,
            variables: read_variables(&record)?,
            bytes: json.len(),
        }))
    }
}

impl Conversation {
    /// Parses the `messages` of a record and other variables of the template, like [`ChatExample::from_json`].
    /// Nothing is a target: the conversation is a prompt for an answer.
    ///
    /// # Errors
    /// [`ChatError::Json`], or [`ChatError::Record`] with the field and the violated rule.
    pub fn from_json(json: &str) -> Result<Self, ChatError> {
        let record = read_object(json)?;
        let messages = field(&record, "messages")
            .ok_or_else(|| ChatError::record("messages", "is missing"))?;
        Ok(Self {
            messages: read_messages(&messages, "messages", false)?,
            variables: read_variables(&record)?,
            bytes: json.len(),
        })
    }

    /// Creates a conversation of one user message, which is not a target.
    pub(crate) fn of_user(fields: Value) -> Self {
        let message = Message {
            role: "user".to_owned(),
            fields,
            learnt: false,
        };
        Self {
            messages: vec![message],
            variables: Vec::new(),
            bytes: 0,
        }
    }

    /// Returns the conversation, with lists of parts joined to strings if the template does not read lists
    /// itself.
    pub(crate) fn for_template(&self, reads_parts: bool) -> Self {
        let mut conversation = self.clone();
        if !reads_parts {
            conversation
                .messages
                .iter_mut()
                .for_each(Message::join_parts);
        }
        conversation
    }
}

impl Message {
    fn join_parts(&mut self) {
        let Some(parts) =
            field(&self.fields, "content").filter(|content| content.kind() == ValueKind::Seq)
        else {
            return;
        };
        let parts = parts.try_iter().into_iter().flatten();
        let texts = parts.filter_map(|part| field(&part, "text"));
        let content: String = texts.map(|text| text.to_string()).collect();
        self.fields = with_field(&self.fields, "content", Value::from(content));
    }
}

/// Parses a record, which must be an object, and decodes its values that are encoded twice.
fn read_object(json: &str) -> Result<Value, ChatError> {
    let mut record: serde_json::Value = serde_json::from_str(json).map_err(|error| {
        let place = format!(" at line {} column {}", error.line(), error.column());
        let message = error.to_string();
        ChatError::Json {
            column: error.column(),
            reason: message.strip_suffix(&place).unwrap_or(&message).to_owned(),
        }
    })?;
    let fields = record.as_object_mut();
    let fields = fields.ok_or_else(|| ChatError::record("record", "must be an object"))?;
    decode_record(fields)?;
    Value::deserialize(record).map_err(|error| ChatError::record("record", error.to_string()))
}

/// Returns a field that is present and not null.
pub(crate) fn field(map: &Value, name: &str) -> Option<Value> {
    let value = map.get_attr(name).ok()?;
    (!value.is_undefined() && !value.is_none()).then_some(value)
}

/// Returns `map` with `name` set, in its old position if it was present.
pub(crate) fn with_field(map: &Value, name: &str, value: Value) -> Value {
    let mut pairs = pairs(map);
    match pairs.iter_mut().find(|(key, _)| key.as_str() == Some(name)) {
        Some((_, old)) => *old = value,
        None => pairs.push((Value::from(name), value)),
    }
    Value::from_pairs(pairs)
}

/// Returns the non-null entries of a map in order.
fn pairs(map: &Value) -> Vec<(Value, Value)> {
    let keys = map.try_iter().into_iter().flatten();
    let pairs = keys.map(|key| {
        let value = map.get_item(&key).unwrap_or_default();
        (key, value)
    });
    pairs.filter(|(_, value)| !value.is_none()).collect()
}

/// Parses a list of messages at `path`. With `learnt`, the assistant's are targets.
fn read_messages(list: &Value, path: &str, learnt: bool) -> Result<Vec<Message>, ChatError> {
    if list.kind() != ValueKind::Seq {
        let rule = match path {
            "messages" => "must be a list of messages",
            _ => {
                "must be a string or a list of messages, and `prompt` and `completion` must have the same type"
            }
        };
        return Err(ChatError::record(path, rule));
    }
    let items = list.try_iter().into_iter().flatten();
    let messages = items.enumerate();
    let messages =
        messages.map(|(rank, message)| read_message(&message, &format!("{path}[{rank}]"), learnt));
    let messages: Vec<Message> = messages.collect::<Result<_, _>>()?;
    match messages.is_empty() {
        true => Err(ChatError::record(path, "must have at least one message")),
        false => Ok(messages),
    }
}

fn read_message(message: &Value, path: &str, learnt: bool) -> Result<Message, ChatError> {
    if message.kind() != ValueKind::Map {
        return Err(ChatError::record(
            path,
            "must be an object with `role` and `content`",
        ));
    }
    let at = |name: &str| format!("{path}.{name}");
    let role = field(message, "role");
    let role = role
        .as_ref()
        .and_then(Value::as_str)
        .filter(|role| !role.is_empty());
    let role = role.ok_or_else(|| ChatError::record(at("role"), "must be a nonempty string"))?;
    match field(message, "content") {
        Some(content) if content.as_str().is_some() => {}
        Some(content) if content.kind() == ValueKind::Seq => check_parts(&content, &at("content"))?,
        Some(_) => {
            let rule = "must be a string or a list of {\"type\": \"text\", \"text\": …}";
            return Err(ChatError::record(at("content"), rule));
        }
        None if field(message, "tool_calls")
            .or_else(|| field(message, "function_call"))
            .is_some() => {}
        None => return Err(ChatError::record(at("content"), "is missing")),
    }
    let weight = match field(message, "weight") {
        None => true,
        Some(weight) if weight == Value::from(0) => false,
        Some(weight) if weight == Value::from(1) => true,
        Some(_) => return Err(ChatError::record(at("weight"), "must be 0 or 1")),
    };
    // As in `transformers`, templates see no nulls, and reasoning under both field names.
    let mut fields = Value::from_pairs(pairs(message));
    if let Some(reasoning) = REASONING.iter().find_map(|name| field(message, name)) {
        if field(&fields, "thinking").is_none() {
            fields = with_field(&fields, "thinking", reasoning.clone());
        }
        fields = with_field(&fields, "reasoning_content", reasoning);
    }
    Ok(Message {
        learnt: learnt && weight && role == "assistant",
        role: role.to_owned(),
        fields,
    })
}

/// Checks a content that is a list. Only text parts are supported.
fn check_parts(parts: &Value, path: &str) -> Result<(), ChatError> {
    for (rank, part) in parts.try_iter().into_iter().flatten().enumerate() {
        let path = format!("{path}[{rank}]");
        let text = |name: &str| field(&part, name).and_then(|value| value.to_str());
        match text("type").as_deref() {
            Some("text") if text("text").is_some() => {}
            Some("text") => {
                return Err(ChatError::record(
                    format!("{path}.text"),
                    "must be a string",
                ));
            }
            Some(other) => {
                let reason = format!("is {other:?}, but only \"text\" can be read");
                return Err(ChatError::record(format!("{path}.type"), reason));
            }
            None => {
                return Err(ChatError::record(
                    format!("{path}.type"),
                    "must be \"text\"",
                ));
            }
        }
    }
    Ok(())
}

fn read_variables(record: &Value) -> Result<Vec<(String, Value)>, ChatError> {
    let named = ["tools", "documents"].into_iter();
    let named = named.filter_map(|name| Some((name.to_owned(), field(record, name)?)));
    // Without tools is the same as with none: a server does not pass an empty list either.
    let named = named.filter(|(name, value)| name != "tools" || value.len() != Some(0));
    let mut variables: Vec<(String, Value)> = named.collect();
    match field(record, "chat_template_kwargs") {
        Some(given) if given.kind() == ValueKind::Map => {
            let given = pairs(&given).into_iter();
            variables.extend(given.map(|(name, value)| (name.to_string(), value)));
        }
        Some(_) => {
            return Err(ChatError::record(
                "chat_template_kwargs",
                "must be an object",
            ));
        }
        None => {}
    }
    Ok(variables)
}

//! The forms in which conversations are published, and their conversion to the one that is rendered.
//!
//! | form | fields of a record |
//! |---|---|
//! | OpenAI | `messages` with `role` and `content` |
//! | ShareGPT | `conversations` (or `conversation`) with `from` and `value`, or with `role` and `content`; `system` |
//! | prompt and completion | `prompt` and `completion`: two texts, or two lists of messages |
//! | Alpaca | `instruction`, `input`, `output`; `system`, `history` |
//! | question and answer | `question` and `answer` |
//!
//! Every list of messages may have `from` and `value` in place of `role` and `content`, as in TRL. The names of ShareGPT's
//! speakers are those of axolotl and LLaMA-Factory; a `function_call` is an assistant's message with `tool_calls`. As in
//! LLaMA-Factory, the user's message of an Alpaca record has the instruction and the input in two lines.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use emberlm_tokenizer::chat::{ChatError, decode_field, decode_record};
use serde_json::{Map, Value, json};

use crate::lists::quoted;

/// The fields that a list of messages is found in, of which OpenAI's comes first.
const LISTS: [&str; 3] = ["messages", "conversations", "conversation"];

/// The fields of lists of messages in records with completions.
const COMPLETION_LISTS: [&str; 4] = ["prompt", "completion", "chosen", "rejected"];

/// The names of speakers, by role.
const SPEAKERS: [(&str, &[&str]); 5] = [
    ("user", &["human", "user", "prompter"]),
    (
        "assistant",
        &[
            "gpt",
            "assistant",
            "chatgpt",
            "bing",
            "bard",
            "google",
            "model",
            "ai",
        ],
    ),
    ("system", &["system"]),
    ("developer", &["developer"]),
    (
        "tool",
        &[
            "tool",
            "observation",
            "function",
            "function_response",
            "tool_response",
        ],
    ),
];

/// The speakers of calls of tools.
const CALLERS: [&str; 2] = ["function_call", "tool_call"];

type Object = Map<String, Value>;

/// Converts a record of any form to one with `messages`, or with `prompt` and `completion`, that
/// [`ChatExample::from_json`](emberlm_tokenizer::chat::ChatExample::from_json) reads. A record in such a form already is
/// returned as it is. This is the only place that reads other forms.
///
/// # Errors
/// The record has none of the forms, or a message has an unknown speaker.
pub(crate) fn to_example(json: &str) -> Result<Cow<'_, str>, ChatError> {
    let needs_no_conversion = ["\"messages\"", "\"completion\""]
        .iter()
        .any(|it| json.contains(it))
        && !MARKS_OF_OTHERS.iter().any(|mark| json.contains(mark));
    if needs_no_conversion {
        return Ok(json.into());
    }
    // Errors of JSON are reported by the reader of the example.
    let Ok(Value::Object(mut record)) = serde_json::from_str(json) else {
        return Ok(json.into());
    };
    let is_changed = convert(&mut record)?;
    check_form(&record)?;
    Ok(match is_changed {
        true => Value::from(record).to_string().into(),
        false => json.into(),
    })
}

/// Text of which a record in another form has some, so that most records need not be parsed twice.
const MARKS_OF_OTHERS: [&str; 5] = [
    "\"from\"",
    "\"conversation",
    "\"instruction\"",
    "\"question\"",
    "\"messages\":{",
];

/// Converts the lists of messages of `record`, and its form to `messages` unless it has a prompt. Without another
/// completion, the record must have an answer. Returns true if anything was changed.
///
/// # Errors
/// See [`to_example`].
pub(crate) fn convert(record: &mut Object) -> Result<bool, ChatError> {
    decode_record(record)?;
    record.retain(|name, value| !(value.is_null() && is_of_form(name)));
    let mut changed = convert_lists(record)?;
    let has_completion = ["completion", "chosen"]
        .iter()
        .any(|name| record.contains_key(*name));
    if record.contains_key("messages") || (record.contains_key("prompt") && has_completion) {
        return Ok(changed);
    }
    let list = LISTS[1..].iter().find(|name| record.contains_key(**name));
    let messages = match list {
        Some(name) => record.remove(*name),
        None => of_turns(record, !has_completion)?,
    };
    if let Some(messages) = messages {
        record.insert("messages".to_owned(), messages);
        add_system(record);
        changed = true;
    }
    Ok(changed)
}

/// Converts the list of messages in one field of `record`, if there is one.
///
/// # Errors
/// A message has an unknown speaker.
pub(crate) fn convert_list(record: &mut Object, name: &str) -> Result<bool, ChatError> {
    let Some(value) = record.get_mut(name) else {
        return Ok(false);
    };
    let list = read_list(value);
    let mut changed = list.is_some();
    if let Some(list) = list {
        *value = list;
    }
    let Value::Array(messages) = value else {
        return Ok(changed);
    };
    for (rank, message) in messages.iter_mut().enumerate() {
        if let Value::Object(message) = message {
            // The names of speakers are free in OpenAI's form, whose template decides.
            let maps_roles = LISTS[1..].contains(&name);
            changed |= convert_message(message, maps_roles, &format!("{name}[{rank}]"))?;
        }
    }
    Ok(changed)
}

/// Checks that a converted record has one of the forms that are rendered.
///
/// # Errors
/// It has none.
fn check_form(record: &Object) -> Result<(), ChatError> {
    let known = ["messages", "prompt", "completion"];
    if known.iter().any(|name| record.contains_key(*name)) {
        return Ok(());
    }
    let names: Vec<&String> = record.keys().collect();
    let names = quoted(&names);
    let reason =
        format!("is missing, and so is every other form of a conversation: the record has {names}");
    Err(ChatError::record("messages", reason))
}

/// Returns true if a null field of this name is the same as a missing one.
fn is_of_form(name: &str) -> bool {
    let others = [
        "instruction",
        "input",
        "output",
        "system",
        "history",
        "question",
        "answer",
    ];
    LISTS.contains(&name) || COMPLETION_LISTS.contains(&name) || others.contains(&name)
}

/// Converts every list of messages in place. Of the lists of whole conversations, only the first is used.
fn convert_lists(record: &mut Object) -> Result<bool, ChatError> {
    let mut changed = false;
    let list = LISTS.iter().find(|name| record.contains_key(**name));
    if let Some(list) = list.and_then(|name| record.get_mut(*name)) {
        decode_field("conversations", list)?;
    }
    for name in list.into_iter().chain(&COMPLETION_LISTS) {
        changed |= convert_list(record, name)?;
    }
    Ok(changed)
}

/// A list of messages in another form: a single message, or an object of lists, in which the `datasets` library stores a
/// sequence.
fn read_list(value: &Value) -> Option<Value> {
    let columns = value.as_object()?;
    transposed(columns).or_else(|| {
        let mut names = ["role", "from"].iter();
        let is_message = names.any(|name| columns.contains_key(*name));
        is_message.then(|| json!([columns]))
    })
}

/// The rows of an object of lists of one length.
fn transposed(columns: &Object) -> Option<Value> {
    let lists: Option<Vec<_>> = columns
        .iter()
        .map(|(name, list)| Some((name, list.as_array()?)))
        .collect();
    let lists = lists?;
    let (_, first) = lists.first()?;
    if lists.iter().any(|(_, list)| list.len() != first.len()) {
        return None;
    }
    let row = |row: usize| {
        let cells = lists
            .iter()
            .map(|(name, list)| ((*name).clone(), list[row].clone()));
        Value::Object(cells.filter(|(_, cell)| !cell.is_null()).collect())
    };
    Some((0..first.len()).map(row).collect())
}

/// Converts a message with `from` and `value`. With `maps_roles`, a `role` is a speaker's name as well.
fn convert_message(message: &mut Object, maps_roles: bool, path: &str) -> Result<bool, ChatError> {
    let name = match (message.contains_key("from"), message.contains_key("role")) {
        (true, false) => "from",
        (_, true) if maps_roles => "role",
        _ => return Ok(false),
    };
    let Some(Value::String(speaker)) = message.get(name) else {
        return Err(ChatError::record(
            format!("{path}.{name}"),
            "must be a text",
        ));
    };
    let speaker = speaker.trim().to_ascii_lowercase();
    let roles = SPEAKERS.iter();
    let mut roles = roles.filter(|(_, names)| names.contains(&speaker.as_str()));
    let role = match roles.next() {
        Some((role, _)) => *role,
        None if CALLERS.contains(&speaker.as_str()) => {
            call_tools(message, path)?;
            "assistant"
        }
        None => return Err(unknown_speaker(&speaker, &format!("{path}.{name}"))),
    };
    let has_content = message.contains_key("content");
    *message = std::mem::take(message)
        .into_iter()
        .map(|(field, value)| match field.as_str() {
            other if other == name => ("role".to_owned(), role.into()),
            "value" if !has_content => ("content".to_owned(), value),
            _ => (field, value),
        })
        .collect();
    Ok(true)
}

fn unknown_speaker(speaker: &str, field: &str) -> ChatError {
    let known = SPEAKERS.iter().flat_map(|(_, names)| *names);
    let known: Vec<&str> = known.chain(&CALLERS).copied().collect();
    let known = known.join(", ");
    let reason = format!("is {speaker:?}, which is none of the known roles: {known}");
    ChatError::record(field, reason)
}

/// Replaces the content of a message, the JSON of one call or several, by `tool_calls`.
fn call_tools(message: &mut Object, path: &str) -> Result<(), ChatError> {
    let calls = match message
        .remove("value")
        .or_else(|| message.remove("content"))
    {
        Some(Value::String(text)) => serde_json::from_str(&text).unwrap_or(Value::Null),
        Some(calls) => calls,
        None => Value::Null,
    };
    let calls = match calls {
        Value::Array(calls) => calls,
        call => vec![call],
    };
    let is_call = |call: &Value| call["name"].is_string();
    if calls.is_empty() || !calls.iter().all(is_call) {
        let reason =
            "must be the JSON of a call, with `name` and `arguments`, or of a list of them";
        return Err(ChatError::record(path, reason));
    }
    let calls = calls.into_iter();
    let calls = calls.map(|call| json!({"type": "function", "function": call}));
    message.insert("tool_calls".to_owned(), calls.collect());
    Ok(())
}

/// The messages of an Alpaca record, or of a question and its answer. Without `answered`, the answers are in other fields.
fn of_turns(record: &mut Object, answered: bool) -> Result<Option<Value>, ChatError> {
    let (asks, answer): (&[&str], _) = match () {
        () if record.contains_key("instruction") => (&["instruction", "input"], "output"),
        () if record.contains_key("question") => (&["question"], "answer"),
        () => return Ok(None),
    };
    let mut text = |name: &str| match record.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
        Some(_) => Err(ChatError::record(name, "must be a text")),
    };
    let asked = asks
        .iter()
        .map(|name| text(name))
        .collect::<Result<Vec<_>, _>>()?;
    let asked: Vec<String> = asked.into_iter().flatten().collect();
    if asked.is_empty() {
        return Err(ChatError::record(asks[0], "is empty"));
    }
    let reply = text(answer)?;
    let mut messages = history(record.remove("history"))?;
    messages.push(json!({"role": "user", "content": asked.join("\n")}));
    if answered {
        let reply = reply.ok_or_else(|| ChatError::record(answer, "is missing or empty"))?;
        messages.push(json!({"role": "assistant", "content": reply}));
    }
    Ok(Some(messages.into()))
}

/// The messages of earlier turns, each a pair of the user's and the assistant's text.
fn history(pairs: Option<Value>) -> Result<Vec<Value>, ChatError> {
    let wrong = || ChatError::record("history", "must be a list of pairs of texts");
    let pairs = match pairs {
        None => return Ok(Vec::new()),
        Some(Value::Array(pairs)) => pairs,
        Some(_) => return Err(wrong()),
    };
    let mut messages = Vec::with_capacity(pairs.len() * 2);
    for pair in pairs {
        let pair = pair.as_array().map(Vec::as_slice);
        let Some([Value::String(user), Value::String(assistant)]) = pair else {
            return Err(wrong());
        };
        messages.push(json!({"role": "user", "content": user}));
        messages.push(json!({"role": "assistant", "content": assistant}));
    }
    Ok(messages)
}

/// Puts the record's `system` before its messages, unless they have a system message.
fn add_system(record: &mut Object) {
    let system = record.remove("system");
    let (Some(Value::String(system)), Some(Value::Array(messages))) =
        (system, record.get_mut("messages"))
    else {
        return;
    };
    let has_one = messages
        .first()
        .is_some_and(|first| first["role"] == "system");
    if !system.is_empty() && !has_one {
        messages.insert(0, json!({"role": "system", "content": system}));
    }
}

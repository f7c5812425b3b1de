//! Request fields of other servers that this one does not implement.
//!
//! Each endpoint has a table of rows: the path of a field and its treatment. A field that is in no table and is not
//! declared by the types of the endpoint is an error with the nearest name, because a misspelt option would have no
//! effect. A row is ignored only if the answer is a valid answer to the request without it.
//!
//! | module | rows |
//! |---|---|
//! | `anthropic` | the published schemas of Anthropic |
//! | `ollama` | Ollama's requests |
//! | `openai` | the published schemas of OpenAI |
//! | `vllm` | additions of vLLM |
//! | `llama_cpp` | additions of llama.cpp's server |
//! | `cohere` | fields of Cohere's and Jina's APIs |
//! | `nulls` | removes null fields before the tables apply |

mod anthropic;
mod cohere;
mod llama_cpp;
mod nulls;
mod ollama;
mod openai;
mod vllm;

use std::fmt::Write as _;

use emberlm_system::nearest::nearest;
use serde_json::{Map, Value, json};

use super::error::ApiError;
pub(crate) use nulls::without_nulls;

/// The rows of `/v1/chat/completions`.
pub(crate) static CHAT: FieldTable = FieldTable(&[
    openai::CHAT,
    openai::SHARED,
    vllm::GENERATION,
    vllm::CHAT,
    llama_cpp::GENERATION,
]);
/// The rows of `/v1/completions`.
pub(crate) static COMPLETIONS: FieldTable = FieldTable(&[
    openai::COMPLETIONS,
    vllm::GENERATION,
    vllm::COMPLETIONS,
    llama_cpp::GENERATION,
    llama_cpp::REASONING,
]);
/// The rows of `/v1/responses`.
pub(crate) static RESPONSES: FieldTable = FieldTable(&[
    vllm::GENERATION,
    openai::RESPONSES,
    openai::SHARED,
    llama_cpp::GENERATION,
    llama_cpp::REASONING,
]);
/// The rows of `/v1/embeddings`.
pub(crate) static EMBEDDINGS: FieldTable = FieldTable(&[openai::EMBEDDINGS, vllm::EMBEDDINGS]);
/// The rows of `/classify`.
pub(crate) static CLASSIFY: FieldTable = FieldTable(&[vllm::CLASSIFY, vllm::SCORING]);
/// The rows of `/rerank`.
pub(crate) static RERANK: FieldTable = FieldTable(&[vllm::SCORING, cohere::RERANK]);
/// The rows of `/v1/messages`.
pub(crate) static MESSAGES: FieldTable = FieldTable(&[
    anthropic::CONVERSATION,
    anthropic::MESSAGES,
    vllm::GENERATION,
    llama_cpp::GENERATION,
    llama_cpp::REASONING,
]);
/// The rows of `/v1/messages/count_tokens`.
pub(crate) static COUNT_TOKENS: FieldTable = FieldTable(&[anthropic::CONVERSATION]);
/// The rows of `/api/chat`.
pub(crate) static OLLAMA_CHAT: FieldTable = FieldTable(&[ollama::TEXT, ollama::CHAT]);
/// The rows of `/api/generate`.
pub(crate) static OLLAMA_GENERATE: FieldTable = FieldTable(&[ollama::TEXT, ollama::GENERATE]);
/// The rows of `/api/embed` and `/api/embeddings`.
pub(crate) static OLLAMA_EMBED: FieldTable = FieldTable(&[ollama::EMBED]);
/// The rows of `/api/show`.
pub(crate) static OLLAMA_SHOW: FieldTable = FieldTable(&[ollama::SHOW]);
/// The rows of `/api/pull`.
pub(crate) static OLLAMA_PULL: FieldTable = FieldTable(&[ollama::PULL]);
/// The rows of `/v1/load_lora_adapter`.
pub(crate) static LOAD_LORA: FieldTable = FieldTable(&[vllm::LOAD_LORA]);
/// The rows of `/v1/unload_lora_adapter`.
pub(crate) static UNLOAD_LORA: FieldTable = FieldTable(&[vllm::UNLOAD_LORA]);
/// The rows of `/tokenize`.
pub(crate) static TOKENIZE: FieldTable = FieldTable(&[llama_cpp::TOKENIZE]);
/// An endpoint without rows.
pub(crate) static NONE: FieldTable = FieldTable(&[]);

/// The path of a field, and its treatment. A path of items of a list has `[]` after the list's name. The rows of the fields
/// of an object come before that of the object.
pub(crate) type Row = (&'static str, Treatment);

/// The treatment of a field that the server does not implement. The reasons complete a sentence about the field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Treatment {
    /// Any value of the type is accepted without effect, for this reason.
    Ignored(Kind, &'static str),
    /// These values, as JSON, describe the server's behaviour and are accepted; others are rejected for this reason.
    Only(&'static [&'static str], &'static str),
    /// Any value is rejected for this reason.
    Refused(&'static str),
    /// An object of the fields that have rows.
    Members,
}

/// The JSON type of an ignored field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Flag,
    Number,
    List,
    Object,
}

impl Kind {
    /// The name of the type in JSON schemas.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Flag => "boolean",
            Self::Number => "number",
            Self::List => "array",
            Self::Object => "object",
        }
    }

    fn matches(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Flag => value.is_boolean(),
            Self::Number => value.is_number(),
            Self::List => value.is_array(),
            Self::Object => value.is_object(),
        }
    }
}

/// The rows of an endpoint, in groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldTable(&'static [&'static [Row]]);

/// An invalid field: its path and the rule that it violates.
struct Fault {
    path: String,
    rule: String,
}

impl FieldTable {
    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        self.0.iter().copied().flatten().copied()
    }

    /// The names of the ignored fields of the body itself.
    pub fn ignored_names(&self) -> impl Iterator<Item = &'static str> {
        let is_ignored = |row: &Row| matches!(row.1, Treatment::Ignored(..) | Treatment::Members);
        let rows = self.rows().filter(is_ignored);
        rows.map(|(path, _)| path).filter(|path| is_name(path))
    }

    /// Removes the fields of the table from a body, and returns the paths of those without effect.
    ///
    /// # Errors
    /// A field has a value that its row rejects.
    pub fn apply(&self, fields: &mut Map<String, Value>) -> Result<Vec<&'static str>, ApiError> {
        let mut ignored = Vec::new();
        for (path, treatment) in self.rows() {
            match take(fields, path, treatment) {
                Ok(true) => ignored.push(path),
                Ok(false) => {}
                Err(Fault { path, rule }) => return Err(ApiError::field(path, rule)),
            }
            if let (Treatment::Members, Some(Value::Object(rest))) = (treatment, fields.get(path)) {
                return Err(self.unknown_member(path, rest));
            }
        }
        Ok(ignored)
    }

    /// The error about the first field of an object that has no row.
    fn unknown_member(&self, object: &str, rest: &Map<String, Value>) -> ApiError {
        let name: String = rest
            .keys()
            .take(1)
            .flat_map(|name| name.chars().take(100))
            .collect();
        let members: Vec<&str> = self
            .rows()
            .filter_map(|(path, _)| path.strip_prefix(object)?.strip_prefix('.'))
            .collect();
        let mut rule = "this field is not supported".to_owned();
        if let Some(nearest) = nearest(&name, members) {
            let _ = write!(rule, "; did you mean {nearest}?");
        }
        ApiError::field(format!("{object}.{name}"), rule)
    }

    /// The schemas of the ignored fields of a body, by name.
    pub fn properties(&self) -> Map<String, Value> {
        let mut properties = Map::new();
        for (path, treatment) in self.rows() {
            let Treatment::Ignored(kind, reason) = treatment else {
                continue;
            };
            let property = json!({
                "description": format!("Has no effect: {reason}."),
                "type": [kind.name(), "null"],
            });
            match path.split_once('.') {
                None => drop(properties.insert(path.to_owned(), property)),
                Some((object, member)) if self.has_members(object) && is_name(member) => {
                    let object = properties.entry(object).or_insert_with(|| {
                        json!({ "description": "Has no effect.", "type": ["object", "null"],
                            "properties": {}, "additionalProperties": false })
                    });
                    object["properties"][member] = property;
                }
                // A field within an object of the endpoint's types. The operation's description lists it.
                Some(_) => {}
            }
        }
        properties
    }

    /// The sentence about all ignored fields, for the description of an endpoint. `None` if there are none.
    pub fn summary(&self) -> Option<String> {
        let mut text = String::new();
        for (path, treatment) in self.rows() {
            if let Treatment::Ignored(_, reason) = treatment {
                let separator = if text.is_empty() { "" } else { "; " };
                let _ = write!(text, "{separator}`{path}` ({reason})");
            }
        }
        (!text.is_empty()).then(|| format!("Accepted without effect: {text}."))
    }

    fn has_members(&self, object: &str) -> bool {
        let is_object =
            |(path, treatment): Row| path == object && matches!(treatment, Treatment::Members);
        self.rows().any(is_object)
    }
}

/// Returns true for the path of a field of the body itself.
fn is_name(path: &str) -> bool {
    !path.contains(['.', '['])
}

/// Removes a field from an object, or from each item of a list. Returns true if it was there and has no effect.
fn take(fields: &mut Map<String, Value>, path: &str, treatment: Treatment) -> Result<bool, Fault> {
    let Some((name, rest)) = path.split_once('.') else {
        return take_field(fields, path, treatment);
    };
    let Some(list) = name.strip_suffix("[]") else {
        let inner = fields.get_mut(name).and_then(Value::as_object_mut);
        let taken = inner.map_or(Ok(false), |inner| take(inner, rest, treatment));
        return taken.map_err(|fault| fault.within(name.to_owned()));
    };
    let mut ignored = false;
    let items = fields.get_mut(list).and_then(Value::as_array_mut);
    for (index, item) in items.into_iter().flatten().enumerate() {
        if let Some(item) = item.as_object_mut() {
            let taken = take(item, rest, treatment);
            ignored |= taken.map_err(|fault| fault.within(format!("{list}[{index}]")))?;
        }
    }
    Ok(ignored)
}

fn take_field(
    fields: &mut Map<String, Value>,
    name: &str,
    treatment: Treatment,
) -> Result<bool, Fault> {
    let Some(value) = fields.get(name) else {
        return Ok(false);
    };
    let refuse = |rule: String| {
        Err(Fault {
            path: name.to_owned(),
            rule,
        })
    };
    let ignored = match treatment {
        Treatment::Ignored(kind, _) if kind.matches(value) => true,
        Treatment::Ignored(kind, reason) => {
            let kind = kind.name();
            return refuse(format!(
                "must be of type {kind} (it has no effect: {reason})"
            ));
        }
        Treatment::Only(values, reason) => {
            let is_value =
                |text: &&str| serde_json::from_str(text).is_ok_and(|it: Value| it == *value);
            if !values.iter().any(is_value) {
                return refuse(format!("must be {}: {reason}", values.join(" or ")));
            }
            false
        }
        Treatment::Refused(reason) => return refuse(format!("is not supported: {reason}")),
        Treatment::Members => match value.as_object() {
            Some(inner) if inner.is_empty() => false,
            // The caller reports the fields that are left.
            Some(_) => return Ok(false),
            None => return refuse("must be an object".to_owned()),
        },
    };
    fields.shift_remove(name);
    Ok(ignored)
}

impl Fault {
    fn within(mut self, outer: String) -> Self {
        self.path = format!("{outer}.{}", self.path);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(table: &FieldTable, body: Value) -> Result<(Value, Vec<&'static str>), String> {
        let mut fields: Map<String, Value> = serde_json::from_value(body).unwrap();
        let ignored = table.apply(&mut fields);
        let message = |error: ApiError| {
            let error = serde_json::to_value(error.body()).unwrap();
            error["message"].as_str().unwrap().to_owned()
        };
        let ignored = ignored.map_err(message)?;
        Ok((Value::Object(fields), ignored))
    }

    #[test]
    fn fields_are_removed_at_every_level() {
        let body = json!({
            "reasoning": { "mode": "high" }, "text": { "verbosity": "low", "format": {} }, "service_tier": "flex",
            "background": false, "input": [{ "content": [{ "prompt_cache_breakpoint": {} }, 5] }, "a"],
            "tools": [{ "defer_loading": false }, { "output_schema": {} }], "prompt_cache_options": {},
        });
        let (left, mut ignored) = applied(&RESPONSES, body).unwrap();
        ignored.sort_unstable();
        let expected = json!({ "reasoning": {}, "text": { "format": {} }, "input": [{ "content": [{}, 5] }, "a"], "tools": [{}, {}] });
        assert_eq!(left, expected);
        let paths = [
            "input[].content[].prompt_cache_breakpoint",
            "reasoning.mode",
            "service_tier",
            "text.verbosity",
            "tools[].output_schema",
        ];
        assert_eq!(ignored, paths);
    }

    #[test]
    fn wrong_values_are_named_with_their_place() {
        for (body, message) in [
            (
                json!({ "tools": [{}, { "defer_loading": true }] }),
                "tools[1].defer_loading: must be false: all functions are in the prompt",
            ),
            (
                json!({ "service_tier": 5 }),
                "service_tier: must be of type string (it has no effect: all requests are served in the order of their arrival)",
            ),
            (
                json!({ "image": { "context_compresion": "low" } }),
                "image.context_compresion: this field is not supported; did you mean context_compression?",
            ),
            (json!({ "image": 5 }), "image: must be an object"),
            (
                json!({ "truncation": "auto" }),
                "truncation: must be \"disabled\": an input that is longer than the context is an error; shorten it",
            ),
        ] {
            assert_eq!(applied(&RESPONSES, body).unwrap_err(), message);
        }
    }

    /// The fields of an object are removed before it is checked for others.
    #[test]
    fn rows_are_valid() {
        for table in [
            &CHAT,
            &COMPLETIONS,
            &RESPONSES,
            &EMBEDDINGS,
            &MESSAGES,
            &COUNT_TOKENS,
            &OLLAMA_CHAT,
            &OLLAMA_GENERATE,
            &CLASSIFY,
            &RERANK,
        ] {
            let rows: Vec<Row> = table.rows().collect();
            for (at, (path, treatment)) in rows.iter().enumerate() {
                assert!(
                    rows[..at].iter().all(|(other, _)| other != path),
                    "{path} has two rows"
                );
                match treatment {
                    Treatment::Only(values, _) => {
                        let is_json = |text: &&str| serde_json::from_str::<Value>(text).is_ok();
                        assert!(values.iter().all(is_json), "{path}");
                    }
                    Treatment::Members => {
                        let member = format!("{path}.");
                        let mut after = rows[at..].iter();
                        assert!(
                            after.all(|(other, _)| !other.starts_with(&member)),
                            "{path}"
                        );
                    }
                    Treatment::Ignored(..) | Treatment::Refused(_) => {}
                }
            }
        }
    }
}

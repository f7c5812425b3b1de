//! Translates parameters between tags to a JSON object during generation.

use serde_json::Value;

use super::format::ParameterTags;
use super::parser::Nesting;
use super::quoted_value::{end_of_value, json_of_quoted};
use super::types::{CallFormat, JsonType, JsonTypes};
use crate::markers::begun_marker;

/// The arguments of a call whose parameters are between tags.
///
/// Texts are translated as they arrive. Other values are translated when they are complete: a truncated one is dropped.
#[derive(Clone, Debug)]
pub(super) struct TaggedArguments {
    function: String,
    /// The names of the parameters so far.
    names: Vec<String>,
    place: Place,
}

/// The place within a list of parameters.
#[derive(Clone, Debug)]
enum Place {
    /// Before a parameter or the end.
    Between,
    /// Before a value. The key is not written yet.
    Value { key: String },
    /// In a text, whose key is written unless it is a repetition.
    Text { is_repeated: bool },
    /// In a value that is translated as a whole.
    Other {
        key: String,
        /// The length of the value's part that was examined.
        examined: usize,
        nesting: Nesting,
    },
}

/// The result of parsing one element.
pub(super) enum Progress {
    /// An element was parsed.
    Parsed,
    /// More text is needed.
    Waiting,
    /// The arguments are complete.
    Complete,
}

impl TaggedArguments {
    /// Creates the arguments of a call of `function`.
    pub fn new(function: String) -> Self {
        Self {
            function,
            names: Vec::new(),
            place: Place::Between,
        }
    }

    /// Parses the next element of `pending` and adds its JSON to `json`.
    pub fn step(
        &mut self,
        format: &CallFormat,
        tags: &ParameterTags,
        pending: &mut String,
        json: &mut String,
    ) -> Progress {
        match std::mem::replace(&mut self.place, Place::Between) {
            Place::Between => self.between(format, tags, pending, json),
            Place::Value { key } => self.value(format, tags, pending, json, key),
            Place::Text { is_repeated } => self.text(tags, pending, json, is_repeated),
            Place::Other {
                key,
                examined,
                nesting,
            } => self.other(format, tags, pending, json, (key, examined, nesting)),
        }
    }

    fn wait(&mut self, place: Place) -> Progress {
        self.place = place;
        Progress::Waiting
    }

    fn enter(&mut self, place: Place) -> Progress {
        self.place = place;
        Progress::Parsed
    }

    fn between(
        &mut self,
        format: &CallFormat,
        tags: &ParameterTags,
        pending: &mut String,
        json: &mut String,
    ) -> Progress {
        if pending.starts_with(format.after_arguments) {
            *json += if self.names.is_empty() { "{}" } else { "}" };
            return Progress::Complete;
        }
        let separator = if self.names.is_empty() {
            ""
        } else {
            tags.separator
        };
        let begun = pending.strip_prefix(separator);
        let begun = begun.and_then(|rest| rest.strip_prefix(tags.before_name));
        let named = begun.and_then(|rest| rest.split_once(tags.after_name));
        let Some((name, rest)) = named.filter(|(name, _)| tags.can_name(name)) else {
            return Progress::Waiting;
        };
        let (name, rest) = (name.to_owned(), rest.to_owned());
        *pending = rest;
        // A repeated parameter has no key, and its value is not written.
        let key = match (self.names.is_empty(), self.names.contains(&name)) {
            (_, true) => String::new(),
            (true, _) => format!("{{{}: ", Value::from(&*name)),
            (false, _) => format!(", {}: ", Value::from(&*name)),
        };
        self.names.push(name);
        self.enter(Place::Value { key })
    }

    /// The types of the current parameter.
    fn types(&self, format: &CallFormat) -> JsonTypes {
        let name = self.names.last().map(String::as_str).unwrap_or_default();
        format.types_of(&self.function, name)
    }

    fn value(
        &mut self,
        format: &CallFormat,
        tags: &ParameterTags,
        pending: &mut String,
        json: &mut String,
        key: String,
    ) -> Progress {
        let is_text = match tags.quote {
            "" => self.types(format) == JsonTypes::from([JsonType::Text]),
            quote if pending.starts_with(quote) => {
                pending.drain(..quote.len());
                true
            }
            quote if quote.starts_with(pending.as_str()) => return self.wait(Place::Value { key }),
            _ => false,
        };
        if !is_text {
            return self.enter(Place::Other {
                key,
                examined: 0,
                nesting: Nesting::default(),
            });
        }
        let is_repeated = key.is_empty();
        if !is_repeated {
            *json += &key;
            json.push('"');
        }
        self.enter(Place::Text { is_repeated })
    }

    fn text(
        &mut self,
        tags: &ParameterTags,
        pending: &mut String,
        json: &mut String,
        is_repeated: bool,
    ) -> Progress {
        let close = [tags.quote, tags.after_value].concat();
        let end = pending.find(&close);
        let length = end.unwrap_or_else(|| pending.len() - begun_marker(pending, &close));
        let rest = pending.split_off(length);
        let text = std::mem::replace(pending, rest);
        if !is_repeated {
            *json += inner_json(&text).as_str();
        }
        if end.is_none() {
            return self.wait(Place::Text { is_repeated });
        }
        pending.drain(..close.len());
        if !is_repeated {
            json.push('"');
        }
        Progress::Parsed
    }

    fn other(
        &mut self,
        format: &CallFormat,
        tags: &ParameterTags,
        pending: &mut String,
        json: &mut String,
        (key, mut examined, mut nesting): (String, usize, Nesting),
    ) -> Progress {
        let close = tags.after_value;
        let end = match tags.quote {
            "" => {
                let rest = pending.get(examined..).unwrap_or_default();
                let end = rest.find(close).map(|end| examined + end);
                examined = pending.len() - begun_marker(pending, close);
                end
            }
            // The next parameter, or the end, is outside of the value's brackets and strings.
            quote => {
                let ends = [tags.separator, format.after_arguments];
                let ends = ends.map(|end| end.chars().next());
                end_of_value(pending, quote, &ends, &mut examined, &mut nesting)
            }
        };
        let Some(end) = end else {
            return self.wait(Place::Other {
                key,
                examined,
                nesting,
            });
        };
        let rest = pending.split_off(end + close.len());
        let value = std::mem::replace(pending, rest);
        if !key.is_empty() {
            *json += &key;
            let value = value.get(..end).unwrap_or_default();
            *json += &match tags.quote {
                "" => value_json(value, &self.types(format)),
                quote => json_of_quoted(value, quote),
            };
        }
        Progress::Parsed
    }
}

/// The JSON of a value without quotes: itself if it is JSON of one of `types`, a string otherwise.
fn value_json(text: &str, types: &JsonTypes) -> String {
    let may_be_text = types.contains(&JsonType::Text);
    match serde_json::from_str::<Value>(text) {
        Ok(Value::String(_)) if may_be_text => Value::from(text).to_string(),
        Ok(value) if !may_be_text || types.contains(&JsonType::of(&value)) => {
            text.trim().to_owned()
        }
        _ => Value::from(text).to_string(),
    }
}

/// The JSON of a part of a text, without quotes.
fn inner_json(text: &str) -> String {
    let json = Value::from(text).to_string();
    let inner = json
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or_default().to_owned()
}

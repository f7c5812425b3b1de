//! Extraction of one string from a JSON object without building the rest of it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::RecordFault;
use crate::lists::quoted;

/// Returns the string at `path` in the JSON object `json`. Dots lead into nested objects, unless a name itself
/// contains them. If a name is repeated the last value is used, as in Python's `json`.
pub(super) fn text(json: &str, path: &str) -> Result<String, RecordFault> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let found = FieldSeeker { path: Some(path) }.deserialize(&mut deserializer);
    let found = found.and_then(|found| deserializer.end().map(|()| found));
    let reason = match found.map_err(|error| RecordFault::json(&error))? {
        FieldValue::Text(text) => return Ok(text),
        FieldValue::NotText("null") => format!("`{path}` is null"),
        FieldValue::NotText(kind) => format!("`{path}` is {kind}, not a string"),
        FieldValue::NotObject(kind) => format!("it is {kind}, not an object"),
        FieldValue::Missing => format!("no field `{path}`: it has {}", names(json)),
    };
    Err(RecordFault::Field(reason))
}

/// The names of an object's fields, for an error message.
fn names(json: &str) -> String {
    let fields: BTreeMap<Cow<str>, IgnoredAny> = serde_json::from_str(json).unwrap_or_default();
    quoted(&fields.into_keys().collect::<Vec<_>>())
}

/// The value found at a path.
enum FieldValue {
    Text(String),
    /// A value of another type than string.
    NotText(&'static str),
    /// A value that is not an object, although the path leads into it.
    NotObject(&'static str),
    Missing,
}

/// Searches a value for the field at `path`. Without a path, the value itself is the field.
struct FieldSeeker<'p> {
    path: Option<&'p str>,
}

impl FieldSeeker<'_> {
    fn other(&self, kind: &'static str) -> FieldValue {
        match self.path {
            None => FieldValue::NotText(kind),
            Some(_) => FieldValue::NotObject(kind),
        }
    }
}

impl<'de> DeserializeSeed<'de> for FieldSeeker<'_> {
    type Value = FieldValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<FieldValue, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldSeeker<'_> {
    type Value = FieldValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<FieldValue, E> {
        Ok(match self.path {
            None => FieldValue::Text(text.to_owned()),
            Some(_) => FieldValue::NotObject("a string"),
        })
    }

    fn visit_bool<E>(self, _: bool) -> Result<FieldValue, E> {
        Ok(self.other("true or false"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<FieldValue, E> {
        Ok(self.other("a number"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<FieldValue, E> {
        Ok(self.other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<FieldValue, E> {
        Ok(self.other("a number"))
    }

    fn visit_unit<E>(self) -> Result<FieldValue, E> {
        Ok(self.other("null"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<FieldValue, A::Error> {
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.other("an array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<FieldValue, A::Error> {
        let mut found = FieldValue::Missing;
        while let Some(name_match) = fields.next_key_seed(NameMatcher { path: self.path })? {
            match name_match {
                NameMatch::Other => {
                    fields.next_value::<IgnoredAny>()?;
                }
                NameMatch::Target => found = fields.next_value_seed(FieldSeeker { path: None })?,
                NameMatch::Ancestor(rest) => {
                    found = match fields.next_value_seed(FieldSeeker { path: Some(rest) })? {
                        FieldValue::NotObject(_) => FieldValue::Missing,
                        found => found,
                    }
                }
            }
        }
        Ok(match self.path {
            None => FieldValue::NotText("an object"),
            Some(_) => found,
        })
    }
}

/// The relation of a field's name to the path.
enum NameMatch<'p> {
    Other,
    Target,
    /// The field contains the target: the rest of the path leads into it.
    Ancestor(&'p str),
}

/// Compares a field's name with a path.
struct NameMatcher<'p> {
    path: Option<&'p str>,
}

impl<'de, 'p> DeserializeSeed<'de> for NameMatcher<'p> {
    type Value = NameMatch<'p>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<NameMatch<'p>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'p> Visitor<'_> for NameMatcher<'p> {
    type Value = NameMatch<'p>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<NameMatch<'p>, E> {
        let rest = self.path.and_then(|path| path.strip_prefix(name));
        Ok(match rest {
            None => NameMatch::Other,
            Some("") => NameMatch::Target,
            Some(rest) => rest
                .strip_prefix('.')
                .map_or(NameMatch::Other, NameMatch::Ancestor),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::check_table;

    /// The message of a record's fault, with its column if known.
    fn error_message(json: &str, path: &str) -> String {
        let fault = text(json, path).unwrap_err();
        match fault.column() {
            Some(column) => format!("{column}: {fault}"),
            None => fault.to_string(),
        }
    }

    #[test]
    fn string_is_found_at_its_path() {
        for (json, path) in [
            (r#"{"text": "x"}"#, "text"),
            (
                r#" {"a": [1, {"text": "y"}], "text":"x", "z": null} "#,
                "text",
            ),
            (r#"{"meta": {"text": "x"}, "text": "y"}"#, "meta.text"),
            (r#"{"meta": {"a": {"b": "x"}}}"#, "meta.a.b"),
            (r#"{"meta.text": "x"}"#, "meta.text"),
            (r#"{"meta": {"a.b": "x"}}"#, "meta.a.b"),
            (r#"{"metatext": "y", "text": "y", "text": "x"}"#, "text"),
            (r#"{"te\u0078t": "\u0078"}"#, "text"),
        ] {
            assert_eq!(text(json, path).as_deref(), Ok("x"), "{json}");
        }
        let escaped = r#"{"text": "\"\\\/\b\f\n\r\t\u00e9\ud83d\udd25"}"#;
        let plain = "\"\\/\u{8}\u{c}\n\r\té🔥";
        assert_eq!(text(escaped, "text").as_deref(), Ok(plain));
    }

    #[test]
    fn missing_or_wrong_field_is_reported() {
        check_table("records/json_field", |json| error_message(json, "m.text"));
        // A lone surrogate is not valid text. In a field that is not read it does not matter.
        let half = r#"{"a": "\ud83d", "b": "x"}"#;
        let reason = "14: invalid JSON: unexpected end of hex escape";
        assert_eq!(error_message(half, "a"), reason);
        assert_eq!(text(half, "b").as_deref(), Ok("x"));
        // Deep nesting does not overflow the stack.
        let deep = format!("{{\"x\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(error_message(&deep, "x"), "`x` is an array, not a string");
        let deep = format!("{}1{}", "{\"x\": ".repeat(100_000), "}".repeat(100_000));
        let path = ["x"; 1000].join(".");
        assert!(error_message(&deep, &path).contains("recursion limit exceeded"));
    }
}

//! Tables of the fields in files that other programs wrote. A reader lists every field that it knows with its treatment,
//! so that no field is ignored silently: a value that could change a result and is not supported is reported, as is a
//! field that is in no table.

use serde_json::{Map, Value};

/// The treatment of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The reader uses the value, and judges it itself.
    Read,
    /// No value changes a result: the field describes the origin of the file, its training, or another program.
    NoEffect,
    /// Only one value is supported, and absence. If this is an unset value (null, false or empty), all of these are.
    Only {
        /// The supported value as JSON, which is also the default.
        value: &'static str,
        /// The effect of other values.
        rule: &'static str,
    },
}

/// The fields of a kind of file.
#[derive(Clone, Copy, Debug)]
pub struct FieldTable(pub &'static [(&'static str, Treatment)]);

/// A field that is not read and could change a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Name of the field.
    pub field: String,
    /// Its value as JSON.
    pub value: String,
    /// The effect of the value; `None` if the field is in no table.
    pub rule: Option<&'static str>,
}

impl FieldTable {
    /// The names of the fields.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }

    /// The treatment of a field; `None` if it is not in the table.
    pub fn treatment(&self, name: &str) -> Option<Treatment> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, treatment)| *treatment)
    }

    /// The fields that are not read and could change a result, in the order of the file. Null is the same as absence, and a
    /// field in no table is off if it is false or empty.
    pub fn unread<'a>(&'a self, fields: &'a Map<String, Value>) -> impl Iterator<Item = Unread> {
        let present = fields.iter().filter(|(_, value)| !value.is_null());
        present.filter_map(|(name, value)| {
            let rule = match self.treatment(name) {
                Some(Treatment::Read | Treatment::NoEffect) => return None,
                Some(Treatment::Only { value: only, .. }) if is(value, only) => return None,
                Some(Treatment::Only { rule, .. }) => Some(rule),
                None if is_unset(value) => return None,
                None => None,
            };
            Some(Unread {
                field: name.clone(),
                value: value.to_string(),
                rule,
            })
        })
    }
}

impl Unread {
    /// A warning that the field is ignored. `unknown` is the reason for fields that are in no table.
    pub fn warning(&self, unknown: &str) -> String {
        let Self { field, value, rule } = self;
        format!(
            "`{field}` = {value} is ignored: {}",
            rule.unwrap_or(unknown)
        )
    }
}

/// Returns true if a value equals the JSON text. Numbers are compared as such: 1 is 1.0. Unset values are equal.
fn is(value: &Value, text: &str) -> bool {
    match (value, serde_json::from_str::<Value>(text)) {
        (Value::Number(a), Ok(Value::Number(b))) => a.as_f64() == b.as_f64(),
        (value, Ok(other)) => *value == other || (is_unset(value) && is_unset(&other)),
        (_, Err(_)) => false,
    }
}

/// Returns true for values with which a feature is off: null, false and empty ones.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TABLE: FieldTable = FieldTable(&[
        ("size", Treatment::Read),
        ("author", Treatment::NoEffect),
        (
            "scale",
            Treatment::Only {
                value: "1.0",
                rule: "scales",
            },
        ),
        (
            "prompt",
            Treatment::Only {
                value: "null",
                rule: "has no prompt",
            },
        ),
    ]);

    fn unread(fields: Value) -> Vec<(String, Option<&'static str>)> {
        let fields = fields.as_object().cloned().unwrap_or_default();
        let unread = TABLE.unread(&fields);
        unread.map(|unread| (unread.field, unread.rule)).collect()
    }

    #[test]
    fn defaults_and_nulls_are_the_same_as_absence() {
        let none: Vec<(String, Option<&str>)> = Vec::new();
        assert_eq!(unread(json!({"size": 3, "author": "me", "scale": 1})), none);
        assert_eq!(unread(json!({"scale": null, "other": null})), none);
        assert_eq!(unread(json!({"prompt": [], "other": false})), none);
    }

    #[test]
    fn other_values_and_unknown_fields_are_reported() {
        let found = unread(json!({"scale": 2, "other": 0}));
        let expected = [("scale", Some("scales")), ("other", None)];
        assert_eq!(found, expected.map(|(name, rule)| (name.to_owned(), rule)));
    }
}

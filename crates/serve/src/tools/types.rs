//! The JSON types of the parameters of functions. Where strings are written without quotes, they decide if a value
//! is a text or JSON.

use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::format::{ArgumentsForm, ToolFormat};
use super::tool_use::Function;

/// The most references to follow from one schema to the next.
const MAX_REFERENCES: usize = 16;
/// The most schemas to examine for one parameter. Beyond them, all types and texts are allowed.
pub(super) const MAX_SCHEMAS: usize = 200;

/// A JSON type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JsonType {
    Null,
    Boolean,
    /// An integer or another number.
    Number,
    Text,
    Array,
    Object,
}

impl JsonType {
    const ALL: [Self; 6] = [
        Self::Null,
        Self::Boolean,
        Self::Number,
        Self::Text,
        Self::Array,
        Self::Object,
    ];

    pub fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Boolean,
            Value::Number(_) => Self::Number,
            Value::String(_) => Self::Text,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        }
    }

    /// The name of the type in schemas.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Number => "number",
            Self::Text => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    /// The type by its name in schemas.
    pub fn named(name: &str) -> Option<Self> {
        let name = if name == "integer" { "number" } else { name };
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The types that a value may have.
pub(super) type JsonTypes = BTreeSet<JsonType>;

/// A simplified schema of a function's arguments, whose references lead to `$defs`.
#[derive(Clone, Copy)]
pub(super) struct ArgumentsSchema<'a>(Option<&'a Map<String, Value>>);

/// A parameter of a function.
pub(super) struct Parameter<'a> {
    pub name: &'a str,
    pub schema: &'a Value,
    pub is_required: bool,
}

/// The schema of a value of any type.
const ANY: &Value = &Value::Bool(true);

impl<'a> ArgumentsSchema<'a> {
    /// The schema of a function's arguments; `None` if there are none.
    pub fn new(parameters: Option<&'a Map<String, Value>>) -> Self {
        Self(parameters)
    }

    fn keyword(self, name: &str) -> Option<&'a Value> {
        self.0?.get(name)
    }

    /// The definitions that schemas refer to.
    pub fn definitions(self) -> Option<&'a Value> {
        self.keyword("$defs")
    }

    /// The declared and the required parameters.
    pub fn parameters(self) -> Vec<Parameter<'a>> {
        let required = self.keyword("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        let required: Vec<&str> = required.collect();
        let declared = self.keyword("properties").and_then(Value::as_object);
        let declared = declared.into_iter().flatten();
        let mut parameters: Vec<Parameter<'_>> = declared
            .map(|(name, schema)| Parameter {
                name,
                schema,
                is_required: required.contains(&name.as_str()),
            })
            .collect();
        for name in required {
            if !parameters.iter().any(|parameter| parameter.name == name) {
                parameters.push(Parameter {
                    name,
                    schema: self.keyword("additionalProperties").unwrap_or(ANY),
                    is_required: true,
                });
            }
        }
        parameters.retain(|it| it.is_required || *it.schema != Value::Bool(false));
        parameters
    }

    /// The schema of parameters of any name, if the function does not declare its parameters.
    pub fn any_parameter(self) -> Option<&'a Value> {
        let schema = self.keyword("additionalProperties").unwrap_or(ANY);
        let has_any = self.0.is_some() && *schema != Value::Bool(false);
        let declares = self.keyword("properties").is_some() || !self.parameters().is_empty();
        (has_any && !declares).then_some(schema)
    }

    /// The schema without references at its top. `None` if a reference has no target, or leads too far.
    pub fn resolved(self, mut schema: &'a Value) -> Option<&'a Value> {
        for _ in 0..MAX_REFERENCES {
            let Some(reference) = schema.get("$ref").and_then(Value::as_str) else {
                return Some(schema);
            };
            schema = self
                .0?
                .get("$defs")?
                .get(reference.strip_prefix("#/$defs/")?)?;
        }
        None
    }

    /// The types of the values that a schema allows.
    pub fn types(self, schema: &'a Value) -> JsonTypes {
        let mut budget = MAX_SCHEMAS;
        self.types_within(schema, &mut budget)
    }

    /// The types of a schema if `budget` more schemas may be examined.
    fn types_within(self, schema: &'a Value, budget: &mut usize) -> JsonTypes {
        let mut types = JsonTypes::from(JsonType::ALL);
        let Some(schema) = self.resolved(schema).filter(|schema| spend(schema, budget)) else {
            return types;
        };
        let mut only = |allowed: JsonTypes| types.retain(|kind| allowed.contains(kind));
        only(own_types(schema));
        for name in ["anyOf", "oneOf"] {
            if let Some(schemas) = schema.get(name).and_then(Value::as_array) {
                let of_each = schemas.iter();
                let of_each = of_each.flat_map(|schema| self.types_within(schema, budget));
                only(of_each.collect());
            }
        }
        let all = schema.get("allOf").and_then(Value::as_array);
        for schema in all.into_iter().flatten() {
            only(self.types_within(schema, budget));
        }
        types
    }
}

/// Spends part of a budget of schemas on one; a long list of values counts as several. Returns false if too little is left.
pub(super) fn spend(schema: &Value, budget: &mut usize) -> bool {
    let values = schema.get("enum").and_then(Value::as_array);
    let cost = 1 + values.map_or(0, Vec::len) / 100;
    let rest = budget.checked_sub(cost);
    *budget = rest.unwrap_or(0);
    rest.is_some()
}

/// The types that a schema allows by `type`, `const` and `enum`.
pub(super) fn own_types(schema: &Value) -> JsonTypes {
    let mut types = JsonTypes::from(JsonType::ALL);
    let mut only = |allowed: JsonTypes| types.retain(|kind| allowed.contains(kind));
    match schema.get("type") {
        Some(Value::String(name)) => only(JsonType::named(name).into_iter().collect()),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            only(names.filter_map(JsonType::named).collect());
        }
        _ => {}
    }
    if let Some(value) = schema.get("const") {
        only(JsonTypes::from([JsonType::of(value)]));
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        only(values.iter().map(JsonType::of).collect());
    }
    types
}

/// The types of a request's parameters, by function and parameter.
type ParameterTypes = HashMap<String, HashMap<String, JsonTypes>>;

/// A call format, with the types of the parameters of the functions that may be called.
#[derive(Clone, Debug)]
pub(crate) struct CallFormat {
    format: &'static ToolFormat,
    /// Empty if the format does not need them.
    types: Arc<ParameterTypes>,
}

impl CallFormat {
    /// The format of calls of `functions`.
    pub fn new<'a>(
        format: &'static ToolFormat,
        functions: impl IntoIterator<Item = Function<'a>>,
    ) -> Self {
        let mut types = ParameterTypes::new();
        if matches!(&format.arguments, ArgumentsForm::Tagged(tags) if tags.quote.is_empty()) {
            for function in functions {
                let schema = ArgumentsSchema::new(function.parameters);
                let parameters = schema.parameters().into_iter();
                let of_each = parameters
                    .map(|parameter| (parameter.name.to_owned(), schema.types(parameter.schema)));
                types.insert(function.name.to_owned(), of_each.collect());
            }
        }
        Self {
            format,
            types: Arc::new(types),
        }
    }

    /// The types of a parameter; all types if it is unknown.
    pub(super) fn types_of(&self, function: &str, parameter: &str) -> JsonTypes {
        let types = self.types.get(function);
        let types = types.and_then(|parameters| parameters.get(parameter));
        types.cloned().unwrap_or_else(|| JsonType::ALL.into())
    }
}

impl From<&'static ToolFormat> for CallFormat {
    /// The format with unknown functions: a value between tags is JSON if it reads as JSON, and a text otherwise.
    fn from(format: &'static ToolFormat) -> Self {
        Self::new(format, [])
    }
}

impl Deref for CallFormat {
    type Target = ToolFormat;

    fn deref(&self) -> &ToolFormat {
        self.format
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_types_of_schemas_are_found() {
        use JsonType::{Array, Boolean, Null, Number, Object, Text};
        let defs =
            json!({ "$defs": { "s": { "type": "string" }, "loop": { "$ref": "#/$defs/loop" } } });
        let schema = ArgumentsSchema::new(defs.as_object());
        let all = || JsonType::ALL.to_vec();
        for (value, types) in [
            (json!(true), all()),
            (json!({}), all()),
            (json!({ "type": "integer" }), vec![Number]),
            (json!({ "type": ["string", "null"] }), vec![Null, Text]),
            (json!({ "enum": ["a", 1] }), vec![Number, Text]),
            (json!({ "type": "string", "enum": ["a", 1] }), vec![Text]),
            (json!({ "const": [1] }), vec![Array]),
            (json!({ "$ref": "#/$defs/s" }), vec![Text]),
            (json!({ "$ref": "#/$defs/loop" }), all()),
            (json!({ "$ref": "#/$defs/none" }), all()),
            (
                json!({ "anyOf": [{ "$ref": "#/$defs/s" }, { "type": "object" }, { "type": "boolean" }] }),
                vec![Boolean, Text, Object],
            ),
            (
                json!({ "allOf": [{ "type": ["string", "null"] }, { "type": ["string", "array"] }] }),
                vec![Text],
            ),
        ] {
            let found: Vec<JsonType> = schema.types(&value).into_iter().collect();
            assert_eq!(found, types, "{value}");
        }
    }
}

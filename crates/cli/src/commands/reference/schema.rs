//! Tables of fields from JSON schemas.

use serde_json::{Map, Value};

use super::{code, header, row};

/// A schema's definitions, by name.
pub type Definitions = Map<String, Value>;

const POINTERS: [&str; 2] = ["#/components/schemas/", "#/$defs/"];

/// Writes the fields of one kind of document.
#[derive(Clone, Copy)]
pub struct FieldTables<'a> {
    /// The schemas that others refer to.
    pub definitions: &'a Definitions,
    /// True if null is the same as a missing field and defaults are listed, as in requests; false for files.
    pub of_requests: bool,
}

impl FieldTables<'_> {
    /// The table of an object's fields.
    pub fn table(&self, schema: &Value) -> String {
        let mut table = match self.of_requests {
            true => header(["field", "type", "default", "meaning"]),
            false => header(["field", "type", "meaning"]),
        };
        table.extend(self.rows(schema));
        table
    }

    fn rows(&self, schema: &Value) -> impl Iterator<Item = String> {
        let required = strings(&schema["required"]);
        let fields = schema["properties"].as_object().into_iter().flatten();
        fields.map(move |(name, field)| {
            let is_required = required.contains(&name.as_str());
            let (kind, docs) = (self.kind(field), description(field));
            if !self.of_requests {
                let kind = match is_required {
                    true => kind,
                    false => format!("{kind}, optional"),
                };
                return row([code(name), kind, docs]);
            }
            let default = match (is_required, &field["default"]) {
                (true, _) => "required".to_owned(),
                (false, Value::Null) => String::new(),
                (false, value) => code(&value.to_string()),
            };
            row([code(name), kind, default, docs])
        })
    }

    /// The type of a value with its range, as Markdown.
    pub fn kind(&self, schema: &Value) -> String {
        if let Some(name) = reference(schema) {
            return match self.definitions.get(name) {
                Some(definition) if !has_section(definition) => self.kind(definition),
                _ => format!("[{name}](#{})", anchor(name)),
            };
        }
        if let Some(value) = schema.get("const") {
            return code(&value.to_string());
        }
        if let Some(values) = schema["enum"].as_array() {
            let values = values.iter().filter(|value| !value.is_null());
            return alternatives(values.map(|value| code(&value.to_string())).collect());
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(options) = schema[key].as_array() {
                let options = options.iter().map(|option| self.kind(option));
                return alternatives(options.filter(|kind| !kind.is_empty()).collect());
            }
        }
        let kinds: Vec<&str> = match &schema["type"] {
            Value::String(kind) => vec![kind],
            kinds => strings(kinds),
        };
        let named = kinds.iter().filter(|kind| **kind != "null");
        let kinds: Vec<String> = named
            .map(|kind| match *kind {
                "array" => format!("list of {}", self.items(schema)),
                "object" => self.object(schema),
                kind => kind.to_owned(),
            })
            .collect();
        let kind = match kinds.is_empty() {
            true if schema["type"] == "null" => "null".to_owned(),
            true => "any".to_owned(),
            false => alternatives(kinds),
        };
        match range(schema) {
            Some(range) => format!("{kind}, {range}"),
            None => kind,
        }
    }

    fn items(&self, schema: &Value) -> String {
        if let Some(items) = schema["prefixItems"].as_array() {
            let items: Vec<String> = items.iter().map(|item| self.kind(item)).collect();
            return format!("({})", items.join(", "));
        }
        match self.kind(&schema["items"]) {
            kind if kind == "any" => "values".to_owned(),
            kind if kind.contains(" or ") => format!("({kind})"),
            kind => plural(&kind),
        }
    }

    fn object(&self, schema: &Value) -> String {
        match &schema["additionalProperties"] {
            Value::Object(_) => match self.kind(&schema["additionalProperties"]) {
                kind if kind == "any" => "object".to_owned(),
                kind => format!("object of {}", plural(&kind)),
            },
            _ => "object".to_owned(),
        }
    }

    /// A section for each definition that `schemas` refer to, directly or not.
    pub fn sections(&self, schemas: &[&Value], level: &str) -> String {
        let mut names = Vec::new();
        for schema in schemas {
            self.collect(schema, &mut names);
        }
        let mut text = String::new();
        for name in names {
            let definition = &self.definitions[&name];
            if !has_section(definition) {
                continue;
            }
            text.push_str(&format!("\n{level} {name}\n\n"));
            let docs = description(definition);
            if !docs.is_empty() {
                text.push_str(&format!("{docs}\n\n"));
            }
            text.push_str(&self.definition(definition));
        }
        text
    }

    fn definition(&self, schema: &Value) -> String {
        if schema["properties"].is_object() {
            return self.table(schema);
        }
        let options = ["oneOf", "anyOf"].into_iter();
        let options = options.filter_map(|key| schema[key].as_array()).flatten();
        let mut table = header(["value", "meaning"]);
        for option in options {
            match option["properties"].as_object() {
                Some(fields) => {
                    let fields = fields.iter().map(|(name, field)| {
                        let docs = description(field);
                        let docs = match docs.is_empty() {
                            true => String::new(),
                            false => format!(" ({})", docs.trim_end_matches('.')),
                        };
                        format!("`{name}`: {}{docs}", self.kind(field))
                    });
                    let fields: Vec<String> = fields.collect();
                    table.push_str(&row([fields.join("; "), description(option)]));
                }
                None => table.push_str(&row([self.kind(option), self.documentation(option)])),
            }
        }
        table
    }

    /// The description of a schema, or of the definition that it refers to.
    fn documentation(&self, schema: &Value) -> String {
        let referred = reference(schema).and_then(|name| self.definitions.get(name));
        match description(schema) {
            docs if docs.is_empty() => referred.map(description).unwrap_or_default(),
            docs => docs,
        }
    }

    /// Adds the names of the definitions that `schema` refers to, in order of their first use.
    fn collect(&self, schema: &Value, names: &mut Vec<String>) {
        if let Some(name) = reference(schema)
            && !names.iter().any(|known| known == name)
            && let Some(definition) = self.definitions.get(name)
        {
            names.push(name.to_owned());
            self.collect(definition, names);
        }
        match schema {
            Value::Array(values) => values.iter().for_each(|value| self.collect(value, names)),
            Value::Object(fields) => fields.values().for_each(|value| self.collect(value, names)),
            _ => {}
        }
    }
}

/// Returns true for definitions that need more than a few words where they are used.
fn has_section(schema: &Value) -> bool {
    if schema["properties"].is_object() {
        return true;
    }
    let options = ["oneOf", "anyOf"].into_iter();
    let mut options = options.filter_map(|key| schema[key].as_array()).flatten();
    options.any(|option| option["description"].is_string() || option["properties"].is_object())
}

/// The name of the definition that a schema is.
fn reference(schema: &Value) -> Option<&str> {
    let pointer = schema["$ref"].as_str()?;
    POINTERS
        .into_iter()
        .find_map(|prefix| pointer.strip_prefix(prefix))
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    heading.to_lowercase()
}

/// The description of a schema in one line: its first paragraph.
pub fn description(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let first = text.split("\n\n").next().unwrap_or_default();
    unlinked(&first.replace('\n', " "))
}

/// Replaces links to items of the code, which rustdoc resolves, by their text.
fn unlinked(text: &str) -> String {
    let text = text.replace("[`", "`").replace("`]", "`");
    text.replace("`crate::", "`")
}

fn strings(value: &Value) -> Vec<&str> {
    let values = value.as_array().into_iter().flatten();
    values.filter_map(Value::as_str).collect()
}

/// Kinds without repetitions and null.
fn alternatives(kinds: Vec<String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for kind in kinds {
        if kind != "null" && !distinct.contains(&kind) {
            distinct.push(kind);
        }
    }
    match distinct.is_empty() {
        true => "null".to_owned(),
        false => distinct.join(" or "),
    }
}

fn plural(kind: &str) -> String {
    let nouns = ["string", "integer", "number", "boolean", "object"];
    match kind.split_once(", ") {
        _ if nouns.contains(&kind) => format!("{kind}s"),
        Some((noun, range)) if nouns.contains(&noun) => format!("{noun}s, each {range}"),
        _ => match kind.strip_prefix("list of ") {
            Some(items) => format!("lists of {items}"),
            None => kind.to_owned(),
        },
    }
}

/// The range of a number, or of the length of a list. Bounds that are the type's own are left out.
fn range(schema: &Value) -> Option<String> {
    if schema["prefixItems"].is_array() {
        return None;
    }
    let number = |key: &str| schema[key].as_f64();
    let is_bound = |value: &f64| value.abs() < f64::from(u32::MAX);
    let least = number("minimum").filter(is_bound);
    let above = number("exclusiveMinimum").filter(is_bound);
    let most = number("maximum").filter(is_bound);
    let (fewest, longest) = (number("minItems"), number("maxItems"));
    let unsigned = schema["format"]
        .as_str()
        .is_some_and(|name| name.starts_with("uint"));
    Some(match (least, above, most) {
        (Some(least), _, Some(most)) => format!("{least} to {most}"),
        (_, Some(above), Some(most)) => format!("above {above}, at most {most}"),
        (_, _, Some(most)) => format!("at most {most}"),
        (_, Some(above), _) => format!("above {above}"),
        (Some(least), ..) if least > 0.0 || !unsigned => format!("at least {least}"),
        _ => match (fewest, longest) {
            (_, Some(longest)) => format!("at most {longest}"),
            (Some(fewest), _) => format!("at least {fewest}"),
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_name_ranges_alternatives_and_definitions() {
        let definitions = json!({
            "Mode": { "type": "string", "enum": ["a", "b"] },
            "Item": { "type": "object", "properties": { "text": { "type": "string" } } },
        });
        let tables = FieldTables {
            definitions: definitions.as_object().unwrap(),
            of_requests: true,
        };
        for (schema, kind) in [
            (
                json!({ "type": ["integer", "null"], "minimum": 0, "maximum": 20 }),
                "integer, 0 to 20",
            ),
            (
                json!({ "type": "integer", "format": "uint32", "minimum": 0, "maximum": u32::MAX }),
                "integer",
            ),
            (
                json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 }),
                "number, above 0, at most 1",
            ),
            (
                json!({ "type": "array", "items": { "type": "string" }, "maxItems": 3 }),
                "list of strings, at most 3",
            ),
            (
                json!({ "anyOf": [{ "$ref": "#/components/schemas/Mode" }, { "type": "null" }] }),
                "`\"a\"` or `\"b\"`",
            ),
            (
                json!({ "$ref": "#/components/schemas/Item" }),
                "[Item](#item)",
            ),
            (json!(true), "any"),
        ] {
            assert_eq!(tables.kind(&schema), kind, "{schema}");
        }
    }

    #[test]
    fn rows_state_whether_a_field_is_required() {
        let definitions = Definitions::new();
        let tables = FieldTables {
            definitions: &definitions,
            of_requests: true,
        };
        let schema = json!({
            "properties": {
                "model": { "type": "string", "description": "The model.\n\nMore." },
                "n": { "type": "integer", "default": 1 },
            },
            "required": ["model"],
        });
        let rows: Vec<String> = tables.rows(&schema).collect();
        assert_eq!(
            rows,
            [
                "| `model` | string | required | The model. |\n",
                "| `n` | integer | `1` |  |\n"
            ]
        );
    }
}

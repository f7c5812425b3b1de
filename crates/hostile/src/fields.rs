//! The fields of a body: every place at which a description allows a value.

use serde_json::Value;

use super::schema::{DescriptionError, Schemas, Variant, listed};

/// The name of a property that no description has.
const UNKNOWN: &str = "unknown_field";
/// The name of a member of a map. Some maps have numbers as names.
const MEMBER: &str = "1";

/// A place in the body of a request. The body around it has minimal valid values in the required fields, and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The JSON pointer of the place. It is empty for the whole body.
    pub pointer: String,
    /// The text of the body before and after the value.
    pub(crate) before: String,
    pub(crate) after: String,
    /// Valid items and members, if the place allows lists or maps.
    pub(crate) parts: Vec<Part>,
}

/// The part of a list or map that can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// An item of a list.
    Item(String),
    /// The value of a member of a map.
    Member(String),
}

impl Field {
    /// The body with a value at this place. The value may be any text, even one that is not JSON.
    pub fn body(&self, value: &str) -> String {
        [&self.before, value, &self.after].concat()
    }

    /// The length of a body with an empty text at this place.
    pub(crate) fn rest(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// The field of a value inside this one.
    fn inside(&self, name: &str, before: &str, after: &str) -> Self {
        let name = name.replace('~', "~0").replace('/', "~1");
        Self {
            pointer: format!("{}/{name}", self.pointer),
            before: [&self.before, before].concat(),
            after: [after, &self.after].concat(),
            parts: Vec::new(),
        }
    }
}

/// All fields of bodies of a schema, in the order of the description.
///
/// # Errors
/// A part of the description is not supported.
pub(crate) fn all(
    schemas: Schemas<'_>,
    schema: &Value,
    operation: &str,
) -> Result<Vec<Field>, DescriptionError> {
    let mut walk = Walk {
        schemas,
        operation,
        open: Vec::new(),
        fields: Vec::new(),
    };
    let body = Field {
        pointer: String::new(),
        before: String::new(),
        after: String::new(),
        parts: Vec::new(),
    };
    walk.add(&body, schema)?;
    Ok(walk.fields)
}

struct Walk<'a> {
    schemas: Schemas<'a>,
    operation: &'a str,
    /// The references that lead to the current schema.
    open: Vec<String>,
    fields: Vec<Field>,
}

impl Walk<'_> {
    /// Adds a field and those inside.
    fn add(&mut self, field: &Field, schema: &Value) -> Result<(), DescriptionError> {
        let variants = self.schemas.variants(schema, &self.place(field))?;
        for variant in variants {
            let part = self.part(&variant, field)?;
            self.push(field, part);
            let is_open = |name: &String| self.open.contains(name);
            if variant.allows_all() || variant.references.iter().any(is_open) {
                continue;
            }
            let outside = self.open.len();
            self.open.extend(variant.references.iter().cloned());
            self.add_members(field, &variant)?;
            self.add_items(field, &variant)?;
            self.open.truncate(outside);
        }
        Ok(())
    }

    /// Adds the properties of an object, an unknown one, and a member of a map.
    fn add_members(&mut self, field: &Field, variant: &Variant) -> Result<(), DescriptionError> {
        if !variant.allows("object") {
            return Ok(());
        }
        let place = self.place(field);
        let minimal =
            |name, schema| -> Result<Value, _> { self.schemas.minimal(Some(name), schema, &place) };
        let mut required = Vec::new();
        for (name, schema) in variant.properties() {
            if variant.required().any(|required| required == name) {
                required.push((name, format!("{}:{}", text(name), minimal(name, schema)?)));
            }
        }
        let members = variant.keywords.get("additionalProperties");
        let extra = match members {
            // A schema that says nothing about the members allows any.
            None | Some(Value::Bool(_)) => (UNKNOWN, &Value::Bool(true)),
            Some(schema) => (MEMBER, schema),
        };
        for (name, schema) in variant.properties().chain([extra]) {
            let others = required.iter().filter(|(other, _)| *other != name);
            let mut before = "{".to_owned();
            for (_, other) in others {
                before += other;
                before += ",";
            }
            before += &format!("{}:", text(name));
            self.add(&field.inside(name, &before, "}"), schema)?;
        }
        Ok(())
    }

    /// Adds the items of a list.
    fn add_items(&mut self, field: &Field, variant: &Variant) -> Result<(), DescriptionError> {
        if !variant.allows("array") {
            return Ok(());
        }
        let place = self.place(field);
        let mut before = "[".to_owned();
        let first = listed(&variant.keywords, "prefixItems");
        let rest = variant.keywords.get("items");
        for (index, schema) in first.chain(rest).enumerate() {
            let item = self.schemas.minimal(None, schema, &place)?.to_string();
            // The last schema is the one of all further items.
            let more = variant.min_items().saturating_sub(index + 1);
            let after = format!(",{item}").repeat(more) + "]";
            self.add(&field.inside(&index.to_string(), &before, &after), schema)?;
            before += &format!("{item},");
        }
        Ok(())
    }

    /// A valid item or member of the values of a variant.
    fn part(&self, variant: &Variant, field: &Field) -> Result<Option<Part>, DescriptionError> {
        let part = |keyword: &str| {
            let schema = variant
                .keywords
                .get(keyword)
                .filter(|schema| schema.is_object());
            let minimal = |schema| self.schemas.minimal(None, schema, &self.place(field));
            schema.map(minimal).transpose()
        };
        if variant.allows("array")
            && let Some(item) = part("items")?
        {
            return Ok(Some(Part::Item(item.to_string())));
        }
        if variant.allows("object")
            && let Some(member) = part("additionalProperties")?
        {
            return Ok(Some(Part::Member(member.to_string())));
        }
        Ok(None)
    }

    /// Adds a place, or a part to a place that other variants have too.
    fn push(&mut self, field: &Field, part: Option<Part>) {
        let mut known = self.fields.iter();
        let at = known.position(|known| known.before == field.before && known.after == field.after);
        let at = at.unwrap_or_else(|| {
            self.fields.push(field.clone());
            self.fields.len() - 1
        });
        let parts = &mut self.fields[at].parts;
        parts.extend(part.filter(|part| !parts.contains(part)));
    }

    fn place(&self, field: &Field) -> String {
        format!("{} {}", self.operation, field.pointer)
    }
}

/// A JSON string.
fn text(name: &str) -> Value {
    Value::from(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The fields of a body with this schema, and with these components.
    fn fields(schema: &Value, components: &Value) -> Result<Vec<Field>, DescriptionError> {
        let document = json!({ "components": { "schemas": components } });
        let schemas = Schemas {
            document: &document,
            known: &json!({ "model": "m" }),
        };
        all(schemas, schema, "POST /a")
    }

    fn bodies(schema: &Value, components: &Value) -> Vec<(String, String)> {
        let fields = fields(schema, components).unwrap();
        let body = |field: &Field| (field.pointer.clone(), field.body("X"));
        fields.iter().map(body).collect()
    }

    fn contains(bodies: &[(String, String)], pointer: &str, body: &str) {
        let found = bodies
            .iter()
            .any(|found| found.0 == pointer && found.1 == body);
        assert!(found, "{pointer} {body}: {bodies:#?}");
    }

    #[test]
    fn fields_inside_alternatives_of_items_and_maps_are_found() {
        let schema = json!({
            "type": "object",
            "properties": {
                "model": { "type": "string" },
                "messages": { "type": "array", "items": { "$ref": "#/components/schemas/Message" }, "minItems": 2 },
                "bias": { "type": ["object", "null"], "additionalProperties": { "type": "number" } },
            },
            "required": ["model", "messages"],
            "additionalProperties": false,
        });
        let components = json!({
            "Message": { "oneOf": [
                { "type": "string" },
                { "type": "object", "properties": { "kind": { "const": "call" }, "call": { "allOf": [
                    { "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] },
                    { "type": "object", "properties": { "time": { "type": "integer", "minimum": 5 } }, "required": ["time"] },
                ] } }, "required": ["kind"] },
            ] },
        });
        let bodies = bodies(&schema, &components);
        let messages = r#""messages":["a","a"]"#;
        for (pointer, body) in [
            ("", "X"),
            ("/model", format!("{{{messages},\"model\":X}}").as_str()),
            ("/bias", &format!(r#"{{"model":"m",{messages},"bias":X}}"#)),
            (
                "/bias/1",
                &format!(r#"{{"model":"m",{messages},"bias":{{"1":X}}}}"#),
            ),
            (
                "/unknown_field",
                &format!(r#"{{"model":"m",{messages},"unknown_field":X}}"#),
            ),
            ("/messages/0", r#"{"model":"m","messages":[X,"a"]}"#),
            (
                "/messages/0/kind",
                r#"{"model":"m","messages":[{"kind":X},"a"]}"#,
            ),
            (
                "/messages/0/call/name",
                r#"{"model":"m","messages":[{"kind":"call","call":{"time":5,"name":X}},"a"]}"#,
            ),
            (
                "/messages/0/call/unknown_field",
                r#"{"model":"m","messages":[{"kind":"call","call":{"name":"a","time":5,"unknown_field":X}},"a"]}"#,
            ),
        ] {
            contains(&bodies, pointer, body);
        }
    }

    #[test]
    fn schemas_that_contain_themselves_end() {
        let tree = json!({ "Tree": {
            "type": "object",
            "properties": { "left": { "$ref": "#/components/schemas/Tree" }, "value": {} },
            "required": ["left"],
        } });
        let reference = json!({ "$ref": "#/components/schemas/Tree" });
        let found = fields(&reference, &tree).unwrap();
        let pointers: Vec<&str> = found.iter().map(|field| field.pointer.as_str()).collect();
        assert_eq!(pointers, ["", "/left", "/value", "/unknown_field"]);
        let own = json!({ "Own": { "anyOf": [{ "$ref": "#/components/schemas/Own" }, { "type": "string" }] } });
        let reference = json!({ "$ref": "#/components/schemas/Own" });
        assert_eq!(fields(&reference, &own).unwrap().len(), 1);
    }

    #[test]
    fn unknown_parts_of_a_description_are_errors() {
        for schema in [
            json!({ "type": "object", "patternProperties": {} }),
            json!({ "type": "array", "items": { "not": {} } }),
            json!({ "$ref": "#/components/schemas/Missing" }),
            json!(5),
        ] {
            let error = fields(&schema, &json!({})).unwrap_err();
            assert!(error.place.starts_with("POST /a "), "{error}");
        }
    }
}

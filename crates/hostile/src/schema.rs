//! JSON schemas of a description: their variants, and minimal values.
//!
//! A variant is an object schema without `$ref`, `allOf`, `anyOf` and `oneOf`: one combination of their alternatives.

use serde_json::{Map, Value, json};

/// A part of a description from which no requests can be generated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct DescriptionError {
    /// The operation, and the part of it.
    pub place: String,
    /// The reason.
    pub reason: String,
}

/// Keywords that combine schemas.
const COMBINED: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];
/// Keywords with schemas of nested values.
const NESTED: [&str; 4] = ["properties", "additionalProperties", "items", "prefixItems"];
/// Keywords about the value itself.
const PLAIN: [&str; 25] = [
    "$comment",
    "const",
    "default",
    "deprecated",
    "description",
    "enum",
    "example",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "readOnly",
    "required",
    "title",
    "type",
    "writeOnly",
];
/// Levels below which a minimal value is null, for schemas that require themselves.
const DEEPEST: usize = 32;

/// A schema without combinations of others.
#[derive(Clone, Debug, Default)]
pub struct Variant {
    pub keywords: Map<String, Value>,
    /// The references that were followed.
    pub references: Vec<String>,
}

/// The schemas of a document.
#[derive(Clone, Copy, Debug)]
pub struct Schemas<'a> {
    pub document: &'a Value,
    /// Values of properties by name, used instead of minimal ones.
    pub known: &'a Value,
}

impl Variant {
    /// The names of the required properties.
    pub fn required(&self) -> impl Iterator<Item = &str> {
        let names = self.keywords.get("required").and_then(Value::as_array);
        names.into_iter().flatten().filter_map(Value::as_str)
    }

    /// The schemas of the properties, by name.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &Value)> {
        let properties = self.keywords.get("properties").and_then(Value::as_object);
        let properties = properties.into_iter().flatten();
        properties.map(|(name, schema)| (name.as_str(), schema))
    }

    /// Returns true if values may have this type. A schema without types allows all of them.
    pub fn allows(&self, kind: &str) -> bool {
        match self.keywords.get("type") {
            None => true,
            Some(Value::Array(kinds)) => kinds.iter().any(|allowed| allowed == kind),
            Some(allowed) => allowed == kind,
        }
    }

    /// Returns true if any value is valid.
    pub fn allows_all(&self) -> bool {
        let mut nested = NESTED.iter().chain(&["type", "enum", "const"]);
        !nested.any(|keyword| self.keywords.contains_key(*keyword))
    }

    /// The number of a keyword.
    pub fn number(&self, keyword: &str) -> Option<f64> {
        self.keywords.get(keyword)?.as_f64()
    }

    /// The least length of a list.
    pub fn min_items(&self) -> usize {
        self.number("minItems").map_or(0, |count| count as usize)
    }

    /// The variant that fulfils both.
    fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        for (keyword, value) in &other.keywords {
            match (keyword.as_str(), both.keywords.get_mut(keyword), value) {
                ("properties", Some(Value::Object(own)), Value::Object(more)) => {
                    own.extend(more.clone());
                }
                ("required", Some(Value::Array(own)), Value::Array(more)) => {
                    own.extend(more.iter().cloned());
                }
                _ => drop(both.keywords.insert(keyword.clone(), value.clone())),
            }
        }
        both.references.extend_from_slice(&other.references);
        both
    }
}

impl Schemas<'_> {
    /// The variants of a schema.
    ///
    /// # Errors
    /// A reference leads nowhere, or the schema has an unknown keyword.
    pub fn variants(self, schema: &Value, place: &str) -> Result<Vec<Variant>, DescriptionError> {
        self.expand(schema, place, &mut Vec::new())
    }

    /// `open` are the references that lead to this schema.
    fn expand(
        self,
        schema: &Value,
        place: &str,
        open: &mut Vec<String>,
    ) -> Result<Vec<Variant>, DescriptionError> {
        let keywords = match schema {
            Value::Bool(true) => return Ok(vec![Variant::default()]),
            Value::Bool(false) => return Ok(Vec::new()),
            Value::Object(keywords) => keywords,
            _ => {
                return Err(unknown(
                    place,
                    "a schema is neither an object nor a boolean",
                ));
            }
        };
        let mut own = Variant::default();
        for (keyword, value) in keywords {
            let name = keyword.as_str();
            if NESTED.contains(&name) || PLAIN.contains(&name) {
                own.keywords.insert(keyword.clone(), value.clone());
            } else if !COMBINED.contains(&name) {
                return Err(unknown(
                    place,
                    format!("the keyword `{keyword}` is not supported"),
                ));
            }
        }
        let mut variants = vec![own];
        if let Some(name) = keywords.get("$ref").and_then(Value::as_str) {
            let target = name.strip_prefix('#');
            let target = target.and_then(|pointer| self.document.pointer(pointer));
            let target = target.ok_or_else(|| unknown(place, format!("`{name}` is missing")))?;
            // A schema that refers to itself adds nothing.
            if open.iter().any(|open| open == name) {
                return Ok(Vec::new());
            }
            open.push(name.to_owned());
            let mut targets = self.expand(target, place, open)?;
            open.pop();
            for target in &mut targets {
                target.references.push(name.to_owned());
            }
            variants = product(&variants, &targets);
        }
        for part in listed(keywords, "allOf") {
            variants = product(&variants, &self.expand(part, place, open)?);
        }
        for keyword in ["anyOf", "oneOf"] {
            if !keywords.contains_key(keyword) {
                continue;
            }
            let mut alternatives = Vec::new();
            for part in listed(keywords, keyword) {
                alternatives.extend(self.expand(part, place, open)?);
            }
            variants = product(&variants, &alternatives);
        }
        Ok(variants)
    }

    /// A small valid value of the property `name`, or of a nested value without a name.
    ///
    /// # Errors
    /// See [`Schemas::variants`].
    pub fn minimal(
        self,
        name: Option<&str>,
        schema: &Value,
        place: &str,
    ) -> Result<Value, DescriptionError> {
        self.minimal_within(name, schema, place, DEEPEST)
    }

    fn minimal_within(
        self,
        name: Option<&str>,
        schema: &Value,
        place: &str,
        levels: usize,
    ) -> Result<Value, DescriptionError> {
        if let Some(known) = name.and_then(|name| self.known.get(name)) {
            return Ok(known.clone());
        }
        let variants = self.variants(schema, place)?;
        match (variants.first(), levels.checked_sub(1)) {
            (Some(variant), Some(levels)) => self.minimal_of(variant, place, levels),
            _ => Ok(Value::Null),
        }
    }

    fn minimal_of(
        self,
        variant: &Variant,
        place: &str,
        levels: usize,
    ) -> Result<Value, DescriptionError> {
        let keywords = &variant.keywords;
        if let Some(value) = keywords.get("const") {
            return Ok(value.clone());
        }
        if let Some(value) = listed(keywords, "enum").next() {
            return Ok(value.clone());
        }
        if variant.allows("string") {
            let length = variant.number("minLength").unwrap_or(1.0).max(1.0);
            return Ok(Value::String("a".repeat(length as usize)));
        }
        if variant.allows("integer") || variant.allows("number") {
            let least = variant.number("minimum").unwrap_or(f64::MIN);
            let most = variant.number("maximum").unwrap_or(f64::MAX);
            let number = 1.0_f64.max(least).min(most);
            return Ok(match number.fract() == 0.0 {
                true => json!(number as i64),
                false => json!(number),
            });
        }
        if variant.allows("boolean") {
            return Ok(Value::Bool(false));
        }
        if variant.allows("array") {
            let first: Vec<&Value> = listed(keywords, "prefixItems").collect();
            let any = Value::Bool(true);
            let rest = keywords.get("items").unwrap_or(&any);
            let schemas = first.iter().copied().chain(std::iter::repeat(rest));
            let count = variant.min_items().max(first.len());
            let items = schemas.take(count);
            let items = items.map(|item| self.minimal_within(None, item, place, levels));
            return Ok(Value::Array(items.collect::<Result<_, _>>()?));
        }
        if !variant.allows("object") {
            return Ok(Value::Null);
        }
        let mut object = Map::new();
        for (name, schema) in variant.properties() {
            if variant.required().any(|required| required == name) {
                let value = self.minimal_within(Some(name), schema, place, levels)?;
                object.insert(name.to_owned(), value);
            }
        }
        Ok(Value::Object(object))
    }
}

/// The members of a keyword's list.
pub fn listed<'a>(
    keywords: &'a Map<String, Value>,
    keyword: &str,
) -> impl Iterator<Item = &'a Value> {
    let list = keywords.get(keyword).and_then(Value::as_array);
    list.into_iter().flatten()
}

fn product(left: &[Variant], right: &[Variant]) -> Vec<Variant> {
    let pairs = left
        .iter()
        .flat_map(|one| right.iter().map(|other| one.and(other)));
    pairs.collect()
}

pub fn unknown(place: &str, reason: impl Into<String>) -> DescriptionError {
    DescriptionError {
        place: place.to_owned(),
        reason: reason.into(),
    }
}

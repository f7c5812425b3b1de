//! The pass over a schema and the schemas in it.

use std::collections::HashMap;
use std::mem;

use serde_json::{Value, json};

use super::integers::with_integers;
use super::issue::{SchemaIssue, Unsupported};
use super::keywords::{FORMATS, Fields, Form, Keyword, Role, TYPES, is_any};
use super::overlap::MOST_COMPARED;
use super::patterns;
use super::references::{Document, push, shown};
use super::size::{MAX_VALUES, count_values};

/// Rewrites the schemas of a document.
pub(super) struct Rewriter<'a> {
    pub document: Document<'a>,
    unsupported: Unsupported,
    /// The unsupported keywords that were dropped.
    pub loosened: Vec<SchemaIssue>,
    /// The JSON pointer of the current schema.
    at: String,
    /// The schemas that the current one is part of by their `allOf`.
    pub around: Vec<&'a Fields>,
    /// The targets of references: pointer, name and schema.
    pub targets: Vec<(String, String, &'a Value)>,
    /// The names of the targets by their pointers.
    pub target_names: HashMap<String, String>,
    /// The number of values that may still be read.
    left: usize,
    /// The comparisons of alternatives that may still be made.
    pub comparisons: usize,
}

/// A schema that is being rewritten.
#[derive(Default)]
pub(super) struct Simple {
    fields: Fields,
    /// Schemas that must match in addition.
    also: Vec<Value>,
    /// True if no value matches.
    impossible: bool,
    nullable: bool,
    /// True if properties that are not listed must not be restricted.
    open: bool,
}

impl Simple {
    /// Adds a keyword.
    pub fn put(&mut self, keyword: &str, value: Value) {
        match self.fields.contains_key(keyword) {
            true => self.also.push(json!({ keyword: value })),
            false => drop(self.fields.insert(keyword.to_owned(), value)),
        }
    }

    /// Adds a schema that must match in addition.
    pub fn also(&mut self, schema: Value) {
        self.also.push(schema);
    }

    /// Allows all properties that are not listed.
    pub fn open(&mut self) {
        self.open = true;
    }

    fn finish(mut self) -> Value {
        if self.open {
            // The order of properties is that of the text.
            self.fields.shift_remove("additionalProperties");
        }
        if !self.also.is_empty() {
            let all = self.fields.entry("allOf").or_insert_with(|| json!([]));
            if let Some(all) = all.as_array_mut() {
                all.append(&mut self.also);
            }
        }
        let schema = match self.impossible {
            true => Value::Bool(false),
            false => Value::Object(self.fields),
        };
        match self.nullable {
            true => json!({ "anyOf": [schema, { "type": "null" }] }),
            false => schema,
        }
    }
}

impl<'a> Rewriter<'a> {
    pub fn new(root: &'a Value, unsupported: Unsupported) -> Self {
        Self {
            document: Document::new(root),
            unsupported,
            loosened: Vec::new(),
            at: String::new(),
            around: Vec::new(),
            targets: Vec::new(),
            target_names: HashMap::new(),
            left: 2 * MAX_VALUES,
            comparisons: MOST_COMPARED,
        }
    }

    /// The rewritten targets of references, by the names that the rewritten references have.
    pub fn definitions(&mut self) -> Result<Fields, SchemaIssue> {
        let mut definitions = Fields::new();
        let mut index = 0;
        while let Some((pointer, name, target)) = self.targets.get(index).cloned() {
            self.at = pointer;
            definitions.insert(name, self.schema(target)?);
            index += 1;
        }
        Ok(definitions)
    }

    /// Rewrites a schema.
    pub fn schema(&mut self, schema: &'a Value) -> Result<Value, SchemaIssue> {
        let fields = match schema {
            Value::Bool(any) => return Ok(Value::Bool(*any)),
            Value::Object(fields) => fields,
            _ => return Err(self.no_schema(schema)),
        };
        self.count(1 + fields.len())?;
        let mut simple = Simple::default();
        for (name, value) in fields {
            // Null is the same as a missing keyword.
            if value.is_null() && name != "const" {
                continue;
            }
            let Some(keyword) = Keyword::find(name) else {
                continue;
            };
            if keyword.of.is_some_and(|kind| !may_be(fields, kind)) {
                continue;
            }
            match keyword.role {
                Role::Annotation => {}
                Role::Enforced(form) => {
                    if let Some(value) = self.enforced(keyword.name, form, value, fields)? {
                        simple.put(keyword.name, value);
                    }
                }
                Role::Rewritten => self.rewritten(keyword.name, value, fields, &mut simple)?,
            }
        }
        Ok(simple.finish())
    }

    /// The value of an enforced keyword. `None` if it has no effect.
    fn enforced(
        &mut self,
        name: &'static str,
        form: Form,
        value: &'a Value,
        fields: &'a Fields,
    ) -> Result<Option<Value>, SchemaIssue> {
        let rule = match form {
            Form::Any => {
                self.count(count_values(value))?;
                return Ok(Some(with_integers(value.clone())));
            }
            Form::Values => {
                self.count(count_values(value))?;
                match value.as_array().is_some_and(|values| !values.is_empty()) {
                    true => return Ok(Some(with_integers(value.clone()))),
                    false => "must be a list of values that is not empty",
                }
            }
            Form::Types => match are_types(value) {
                true => return Ok(Some(value.clone())),
                false => {
                    "must be null, boolean, integer, number, string, array or object, or a list of these"
                }
            },
            Form::Number if value.is_number() => return self.bound(name, value),
            Form::Number => "must be a number",
            Form::Divisor if value.as_f64().is_some_and(|value| value > 0.0) => {
                return self.divisor(name, value);
            }
            Form::Divisor => "must be a number above 0",
            Form::Count => {
                let count = self.number(name, value)?;
                return Ok((count > 0 || !name.starts_with("min")).then(|| count.into()));
            }
            Form::Names => match value.as_array() {
                Some(names) if names.iter().all(Value::is_string) => {
                    self.count(names.len())?;
                    return Ok(Some(value.clone()));
                }
                _ => "must be a list of names",
            },
            Form::Schema => {
                let inner = self.inner(name, None, value)?;
                return Ok((!is_any(&inner)).then_some(inner));
            }
            Form::Schemas => {
                let around = (name == "allOf").then_some(fields);
                return self.schemas(name, value, around).map(Some);
            }
            Form::NamedSchemas => return self.named(name, value).map(Some),
        };
        Err(self.issue(name, format!("{rule}, and is {}", shown_value(value))))
    }

    fn rewritten(
        &mut self,
        name: &'static str,
        value: &'a Value,
        fields: &'a Fields,
        simple: &mut Simple,
    ) -> Result<(), SchemaIssue> {
        match name {
            "nullable" => simple.nullable = self.flag(name, value)?,
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                let reference = self.text(name, value)?;
                simple.put("$ref", self.target(name, reference)?.into());
            }
            "oneOf" => self.one_of(value, fields, simple)?,
            "not" if is_any(value) => simple.impossible = true,
            "not" if *value == Value::Bool(false) => {}
            "not" => self.unsupported(name, "is not supported")?,
            "if" => self.condition(value, fields, simple)?,
            "pattern" => {
                let pattern = self.text(name, value)?;
                match patterns::refusal(pattern) {
                    Some(reason) => {
                        let rule = format!("is not supported: {}: {reason}", shown(pattern));
                        self.unsupported(name, rule)?;
                    }
                    None => simple.put(name, value.clone()),
                }
            }
            "format" => {
                if FORMATS.contains(&self.text(name, value)?) {
                    simple.put(name, value.clone());
                }
            }
            "exclusiveMinimum" => self.exclusive(name, "minimum", value, fields, simple)?,
            "exclusiveMaximum" => self.exclusive(name, "maximum", value, fields, simple)?,
            "items" | "uniqueItems" | "contains" | "unevaluatedItems" => {
                self.of_array(name, value, fields, simple)?;
            }
            _ => self.of_object(name, value, fields, simple)?,
        }
        Ok(())
    }

    /// Rewrites a schema within the current one.
    pub fn inner(
        &mut self,
        keyword: &str,
        name: Option<&str>,
        schema: &'a Value,
    ) -> Result<Value, SchemaIssue> {
        let around = mem::take(&mut self.around);
        let rewritten = self.within(keyword, name, schema);
        self.around = around;
        rewritten
    }

    fn within(
        &mut self,
        keyword: &str,
        name: Option<&str>,
        schema: &'a Value,
    ) -> Result<Value, SchemaIssue> {
        let length = self.at.len();
        push(&mut self.at, keyword);
        if let Some(name) = name {
            push(&mut self.at, name);
        }
        let rewritten = self.schema(schema)?;
        self.at.truncate(length);
        Ok(rewritten)
    }

    /// Rewrites a list of schemas. `around` is the schema that they are part of.
    pub fn schemas(
        &mut self,
        keyword: &str,
        value: &'a Value,
        around: Option<&'a Fields>,
    ) -> Result<Value, SchemaIssue> {
        let schemas = value.as_array();
        let schemas = schemas.filter(|schemas| !schemas.is_empty() || keyword == "prefixItems");
        let schemas = schemas
            .ok_or_else(|| self.issue(keyword, "must be a list of schemas that is not empty"))?;
        let mut rewritten = Vec::new();
        for (index, schema) in schemas.iter().enumerate() {
            let name = index.to_string();
            rewritten.push(match around {
                Some(fields) => {
                    self.around.push(fields);
                    let schema = self.within(keyword, Some(&name), schema);
                    self.around.pop();
                    schema?
                }
                None => self.inner(keyword, Some(&name), schema)?,
            });
        }
        Ok(rewritten.into())
    }

    /// Rewrites schemas by name.
    pub fn named(&mut self, keyword: &str, value: &'a Value) -> Result<Value, SchemaIssue> {
        let schemas = value.as_object();
        let schemas = schemas.ok_or_else(|| self.issue(keyword, "must be an object of schemas"))?;
        let mut rewritten = Fields::new();
        for (name, schema) in schemas {
            rewritten.insert(name.clone(), self.inner(keyword, Some(name), schema)?);
        }
        Ok(rewritten.into())
    }

    pub fn number(&self, keyword: &str, value: &Value) -> Result<u64, SchemaIssue> {
        let rule = || {
            format!(
                "must be a whole number, 0 or more, and is {}",
                shown_value(value)
            )
        };
        count(value).ok_or_else(|| self.issue(keyword, rule()))
    }

    pub fn text(&self, keyword: &str, value: &'a Value) -> Result<&'a str, SchemaIssue> {
        let text = value.as_str();
        text.ok_or_else(|| self.issue(keyword, "must be a text"))
    }

    pub fn flag(&self, keyword: &str, value: &Value) -> Result<bool, SchemaIssue> {
        let flag = value.as_bool();
        flag.ok_or_else(|| self.issue(keyword, "must be true or false"))
    }

    /// An error about a keyword of the current schema.
    pub fn issue(&self, keyword: &str, rule: impl Into<String>) -> SchemaIssue {
        let mut pointer = self.at.clone();
        push(&mut pointer, keyword);
        SchemaIssue {
            keyword: keyword.to_owned(),
            pointer,
            rule: rule.into(),
        }
    }

    /// Refuses or notes a keyword of the current schema that is not supported.
    pub fn unsupported(
        &mut self,
        keyword: &str,
        rule: impl Into<String>,
    ) -> Result<(), SchemaIssue> {
        let issue = self.issue(keyword, rule);
        match self.unsupported {
            Unsupported::Refuse => Err(issue),
            Unsupported::Loosen => {
                self.loosened.push(issue);
                Ok(())
            }
        }
    }

    /// The error for a value that is no schema.
    fn no_schema(&self, value: &Value) -> SchemaIssue {
        let (before, name) = self.at.rsplit_once('/').unwrap_or_default();
        let keyword = match before.rsplit_once('/') {
            Some((_, keyword)) if Keyword::find(name).is_none() => keyword,
            _ => name,
        };
        SchemaIssue {
            keyword: keyword.to_owned(),
            pointer: self.at.clone(),
            rule: format!(
                "must be a schema (an object, true or false), and is {}",
                shown_value(value)
            ),
        }
    }

    fn count(&mut self, values: usize) -> Result<(), SchemaIssue> {
        let left = self.left.checked_sub(values);
        self.left = left.ok_or_else(|| {
            let rule = format!("must have at most {MAX_VALUES} values with all references");
            self.issue("$ref", rule)
        })?;
        Ok(())
    }
}

/// Returns false if the `type` of a schema excludes `kind`.
pub(super) fn may_be(fields: &Fields, kind: &str) -> bool {
    let is_kind = |name: &str| name == kind || (name == "integer" && kind == "number");
    match fields.get("type") {
        Some(Value::String(name)) => is_kind(name),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).any(is_kind),
        _ => true,
    }
}

fn are_types(value: &Value) -> bool {
    let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    match value {
        Value::Array(names) => !names.is_empty() && names.iter().all(is_type),
        value => is_type(value),
    }
}

/// A whole number, 0 or more, also one that is written as a float.
pub(super) fn count(value: &Value) -> Option<u64> {
    // Every integer below 2^53 is exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = value
        .as_f64()
        .filter(|float| float.fract() == 0.0 && (0.0..EXACT).contains(float));
    value.as_u64().or(float.map(|float| float as u64))
}

fn shown_value(value: &Value) -> String {
    const MAX_SHOWN: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MAX_SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

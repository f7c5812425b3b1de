//! Alternatives that exclude each other, which makes `oneOf` the same as `anyOf`.

use serde_json::Value;

use super::keywords::Fields;
use super::references::Document;

/// The types as bits. A number is an integer or not.
const NULL: u8 = 1;
const BOOLEAN: u8 = 2;
const INTEGER: u8 = 4;
const FRACTION: u8 = 8;
const STRING: u8 = 16;
const ARRAY: u8 = 32;
const OBJECT: u8 = 64;
const ALL: u8 = 127;

/// The most forms of one alternative that are compared.
const MOST_FORMS: usize = 64;
/// The most schemas that are read within each other: references may be circular.
const MOST_NESTED: usize = 64;
/// The most comparisons of all alternatives of a document: properties, values and forms.
pub(super) const MOST_COMPARED: usize = 1_000_000;

/// Finds alternatives that a value may match together.
#[derive(Debug)]
pub(super) struct Overlap<'a, 'b> {
    document: &'b Document<'a>,
    left: &'b mut usize,
    /// The schemas within each other that are being read.
    depth: usize,
}

/// Properties of all values that match one form of a schema. Values that match need not have all of them.
#[derive(Clone, Debug)]
struct Form<'a> {
    types: u8,
    /// The only values.
    values: Option<Vec<&'a Value>>,
    required: Vec<&'a str>,
    properties: Vec<(&'a str, &'a Value)>,
    /// The listed properties of schemas that allow no others.
    closed: Vec<Option<&'a Fields>>,
}

impl<'a, 'b> Overlap<'a, 'b> {
    /// `left` is the number of comparisons that may still be made. When there are none, alternatives count as
    /// overlapping.
    pub fn new(document: &'b Document<'a>, left: &'b mut usize) -> Self {
        Self {
            document,
            left,
            depth: 0,
        }
    }

    /// The first two of the alternatives that may match together. `around` are schemas that match in any case.
    pub fn find(
        &mut self,
        alternatives: &'a [Value],
        around: &[&'a Fields],
    ) -> Option<(usize, usize)> {
        let mut base = Form::any();
        for fields in around {
            base.restrict(fields);
        }
        let mut forms: Vec<Vec<Form<'a>>> = Vec::new();
        for (second, alternative) in alternatives.iter().enumerate() {
            let before = second.saturating_sub(1);
            if !self.spend(base.size()) {
                return Some((before, second));
            }
            let new = self.forms(alternative, base.clone());
            for (first, before) in forms.iter().enumerate() {
                if !self.exclude(before, &new) {
                    return Some((first, second));
                }
            }
            forms.push(new);
        }
        None
    }

    /// Returns false if the comparisons are used up.
    fn spend(&mut self, comparisons: usize) -> bool {
        let left = self.left.checked_sub(comparisons + 1);
        *self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Returns true if no value matches two schemas.
    fn are_exclusive(&mut self, first: &'a Value, second: &'a Value) -> bool {
        if self.depth == MOST_NESTED {
            return false;
        }
        self.depth += 1;
        let first = self.forms(first, Form::any());
        let second = self.forms(second, Form::any());
        let exclusive = self.exclude(&first, &second);
        self.depth -= 1;
        exclusive
    }

    fn exclude(&mut self, first: &[Form<'a>], second: &[Form<'a>]) -> bool {
        let mut pairs = first
            .iter()
            .flat_map(|first| second.iter().map(move |second| (first, second)));
        pairs.all(|(first, second)| self.excludes(first, second))
    }

    fn excludes(&mut self, first: &Form<'a>, second: &Form<'a>) -> bool {
        let values = |form: &Form<'a>| form.values.as_ref().map_or(1, Vec::len);
        if !self.spend(values(first).saturating_mul(values(second))) {
            return false;
        }
        let common = first.types & second.types;
        if common == 0 {
            return true;
        }
        match (&first.values, &second.values) {
            (Some(values), Some(others)) => {
                return values
                    .iter()
                    .all(|value| others.iter().all(|other| !are_equal(value, other)));
            }
            (Some(values), None) | (None, Some(values)) if common != OBJECT => {
                return values.iter().all(|value| type_of(value) & common == 0);
            }
            _ => {}
        }
        if common != OBJECT {
            return false;
        }
        let keys = first.required.iter().chain(&second.required);
        let keys: Vec<&str> = keys.copied().collect();
        keys.into_iter().any(|key| {
            if first.forbids(key) || second.forbids(key) {
                return true;
            }
            if !self.spend(first.size() + second.size()) {
                return false;
            }
            let of = |form: &Form<'a>| -> Vec<&'a Value> {
                let properties = form.properties.iter();
                let named = properties.filter(|(name, _)| *name == key);
                named.map(|(_, schema)| *schema).collect()
            };
            let (first, second) = (of(first), of(second));
            first.into_iter().any(|first| {
                let mut second = second.iter();
                second.any(|second| self.are_exclusive(first, second))
            })
        })
    }

    /// The forms of a schema: the alternatives of all its alternatives. A form may lack restrictions.
    fn forms(&mut self, schema: &'a Value, base: Form<'a>) -> Vec<Form<'a>> {
        let fields = match schema {
            Value::Bool(false) => return Vec::new(),
            Value::Object(fields) => fields,
            _ => return vec![base],
        };
        let mut form = base;
        form.restrict(fields);
        if self.depth == MOST_NESTED || !self.spend(form.size()) {
            return vec![Form::any()];
        }
        self.depth += 1;
        let mut forms = vec![form];
        let list = |name: &str| fields.get(name).and_then(Value::as_array);
        let reference = fields.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|reference| self.document.resolve(reference).ok());
        let parts = list("allOf").into_iter().flatten();
        for part in parts.chain(target.map(|(_, target)| target)) {
            forms = self.apply(forms, std::slice::from_ref(part));
        }
        for alternatives in ["anyOf", "oneOf"].into_iter().filter_map(list) {
            forms = self.apply(forms, alternatives);
        }
        if fields.get("nullable") == Some(&Value::Bool(true)) {
            forms.push(Form {
                types: NULL,
                ..Form::any()
            });
        }
        self.depth -= 1;
        forms
    }

    fn apply(&mut self, forms: Vec<Form<'a>>, alternatives: &'a [Value]) -> Vec<Form<'a>> {
        let mut applied = Vec::new();
        for form in &forms {
            for alternative in alternatives {
                applied.extend(self.forms(alternative, form.clone()));
                if applied.len() > MOST_FORMS {
                    return forms;
                }
            }
        }
        applied
    }
}

impl<'a> Form<'a> {
    fn any() -> Self {
        Self {
            types: ALL,
            values: None,
            required: Vec::new(),
            properties: Vec::new(),
            closed: Vec::new(),
        }
    }

    /// Applies the keywords of a schema that apply no other schema to the same value.
    fn restrict(&mut self, fields: &'a Fields) {
        match fields.get("type") {
            Some(Value::String(name)) => self.types &= named_type(name),
            Some(Value::Array(names)) => {
                let names = names.iter().filter_map(Value::as_str);
                self.types &= names.fold(0, |types, name| types | named_type(name));
            }
            _ => {}
        }
        let values = match (fields.get("const"), fields.get("enum")) {
            (Some(value), _) => Some(vec![value]),
            (None, Some(Value::Array(values))) => Some(values.iter().collect()),
            _ => None,
        };
        if let Some(mut values) = values {
            let types = self.types;
            values.retain(|value| type_of(value) & types != 0);
            self.types &= values.iter().fold(0, |types, value| types | type_of(value));
            self.values = Some(values);
        }
        let required = fields.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        self.required.extend(required);
        let properties = fields.get("properties").and_then(Value::as_object);
        let listed = properties.into_iter().flatten();
        self.properties
            .extend(listed.map(|(name, schema)| (name.as_str(), schema)));
        if fields.get("additionalProperties") == Some(&Value::Bool(false))
            && !fields.contains_key("patternProperties")
        {
            self.closed.push(properties);
        }
    }

    /// The memory that a copy takes.
    fn size(&self) -> usize {
        let values = self.values.as_ref().map_or(0, Vec::len);
        values + self.required.len() + self.properties.len() + self.closed.len()
    }

    /// Returns true if no object has a property of this name.
    fn forbids(&self, key: &str) -> bool {
        self.closed
            .iter()
            .any(|listed| listed.is_none_or(|listed| !listed.contains_key(key)))
    }
}

fn named_type(name: &str) -> u8 {
    match name {
        "null" => NULL,
        "boolean" => BOOLEAN,
        "integer" => INTEGER,
        "number" => INTEGER | FRACTION,
        "string" => STRING,
        "array" => ARRAY,
        "object" => OBJECT,
        _ => ALL,
    }
}

fn type_of(value: &Value) -> u8 {
    match value {
        Value::Null => NULL,
        Value::Bool(_) => BOOLEAN,
        Value::Number(number) => match number.as_f64().is_some_and(|float| float.fract() != 0.0) {
            true => FRACTION,
            false => INTEGER,
        },
        Value::String(_) => STRING,
        Value::Array(_) => ARRAY,
        Value::Object(_) => OBJECT,
    }
}

/// Compares as JSON Schema does: numbers by their value. Numbers within lists and objects that are written differently
/// count as different only if their values differ.
fn are_equal(first: &Value, second: &Value) -> bool {
    match (first, second) {
        (Value::Number(first), Value::Number(second)) => first.as_f64() == second.as_f64(),
        (Value::Array(first), Value::Array(second)) => {
            first.len() == second.len()
                && first
                    .iter()
                    .zip(second)
                    .all(|(first, second)| are_equal(first, second))
        }
        (Value::Object(first), Value::Object(second)) => {
            first.len() == second.len()
                && first.iter().all(|(name, value)| {
                    second
                        .get(name)
                        .is_some_and(|other| are_equal(value, other))
                })
        }
        _ => first == second,
    }
}

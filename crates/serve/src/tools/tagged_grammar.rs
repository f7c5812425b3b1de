//! The grammar of parameters between tags.
//!
//! The parameters are in the schema's order. A value that is no string is JSON of its schema. A string is free text up to
//! the tag after it, or one of the texts that its schema lists.

use std::collections::HashSet;
use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::format::{ArgumentsForm, ParameterTags, ToolFormat};
use super::lark::{escaped, joined, quoted, with_guidance};
use super::types::{ArgumentsSchema, JsonType, MAX_SCHEMAS, own_types, spend};

/// The longest text whose length is restricted, in characters. The automaton grows with it.
const MAX_LENGTH: u64 = 500;
/// The size in bytes beyond which rules need no values: a grammar of this size is refused.
const MAX_RULES: usize = 1 << 20;

/// The shared terminals of free texts and of names, if any rule uses them.
const VALUE: &str = "VALUE";
const KEY: &str = "KEY";

/// The grammar of the arguments of one function.
pub(super) struct TaggedGrammar<'a> {
    pub tags: &'a ParameterTags,
    pub schema: ArgumentsSchema<'a>,
    /// The function's number, which its rules have in their names.
    number: usize,
    /// The depth of lists and objects.
    pub depth: usize,
    /// The rules.
    lark: &'a mut String,
}

/// The texts that a schema allows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Texts<'a> {
    /// All texts with a number of characters in this range.
    Any { min: u64, max: Option<u64> },
    /// These texts.
    Only(Vec<&'a str>),
}

impl<'a> TaggedGrammar<'a> {
    /// The grammar of the arguments of the function with this number, whose rules are added to `lark`.
    pub fn new(
        tags: &'a ParameterTags,
        parameters: Option<&'a Map<String, Value>>,
        number: usize,
        lark: &'a mut String,
    ) -> Self {
        Self {
            tags,
            schema: ArgumentsSchema::new(parameters),
            number,
            depth: 0,
            lark,
        }
    }

    /// Adds the rules, and returns the expression of the arguments. It is empty if there are none.
    pub fn write(mut self) -> String {
        let parameters = self.schema.parameters();
        let separator = joined(&[self.tags.separator]);
        if let Some(schema) = self.schema.any_parameter() {
            let name = format!("any{}", self.number);
            let begin = sequence(&[joined(&[self.tags.before_name]), KEY.to_owned()]);
            let begin = sequence(&[begin, joined(&[self.tags.after_name])]);
            self.parameter(&name, &begin, schema);
            return match &*separator {
                "" => format!("{name}*"),
                _ => format!("({name} ({separator} {name})*)?"),
            };
        }
        let mut rules = Vec::new();
        for (place, parameter) in parameters.iter().enumerate() {
            let name = format!("parameter{}_{place}", self.number);
            let tags = self.tags;
            let begin = [tags.before_name, parameter.name, tags.after_name].concat();
            self.parameter(&name, &quoted(&begin), parameter.schema);
            rules.push((name, parameter.is_required));
        }
        match &*separator {
            "" => optional(&rules, ""),
            separator => {
                let rest = format!("rest{}", self.number);
                self.separated(&rules, separator, &rest)
            }
        }
    }

    /// Adds rules of parameters between separators, whose names begin with `name`, and returns their expression.
    pub fn separated(&mut self, rules: &[(String, bool)], separator: &str, name: &str) -> String {
        let rest = |place: usize| match place < rules.len() {
            true => format!("{name}_{place}"),
            false => String::new(),
        };
        for place in 1..rules.len() {
            let parameter = optional(&rules[place..=place], separator);
            let expression = sequence(&[parameter, rest(place + 1)]);
            let _ = writeln!(self.lark, "{}: {expression}", rest(place));
        }
        let mut first = Vec::new();
        for (place, (name, is_required)) in rules.iter().enumerate() {
            first.push(sequence(&[name.clone(), rest(place + 1)]));
            if *is_required {
                return format!("({})", first.join(" | "));
            }
        }
        match first.is_empty() {
            true => String::new(),
            false => format!("({})?", first.join(" | ")),
        }
    }

    /// Adds the rule `name` of a parameter that starts with `begin`.
    pub fn parameter(&mut self, name: &str, begin: &str, schema: &'a Value) {
        let values = self.values(name, schema);
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(self.lark, "{name}: {begin} ({})", values.join(" | "));
    }

    /// The alternatives of a value and the tag after it.
    fn values(&mut self, name: &str, schema: &'a Value) -> Vec<String> {
        if self.lark.len() > MAX_RULES {
            return vec![VALUE.to_owned()];
        }
        let types = self.schema.types(schema);
        let tags = self.tags;
        let mut budget = MAX_SCHEMAS;
        let texts = match types.contains(&JsonType::Text) {
            true => texts(self.schema, schema, &mut budget),
            false => Texts::Only(Vec::new()),
        };
        let mut values = match &texts {
            Texts::Only(texts) => {
                let texts = texts
                    .iter()
                    .map(|text| quoted(&[tags.quote, text, tags.quote, tags.after_value].concat()));
                texts.collect()
            }
            Texts::Any { min, max } => {
                let terminal = self.free_text(name, *min, *max);
                vec![match tags.quote {
                    "" => terminal,
                    quote => sequence(&[quoted(quote), terminal, joined(&[tags.after_value])]),
                }]
            }
        };
        // Without quotes, a free text may look like any JSON.
        let is_free = tags.quote.is_empty() && matches!(texts, Texts::Any { .. });
        let others = types.iter().filter(|kind| **kind != JsonType::Text);
        let others: Vec<&str> = others.map(|kind| kind.name()).collect();
        if !is_free && (!others.is_empty() || values.is_empty()) {
            let all = (others.len() == types.len()).then_some(());
            let json = all
                .and_then(|()| self.nested(name, schema))
                .unwrap_or_else(|| {
                    let json = format!("json_{name}");
                    let schema = self.json(schema, all.is_none().then_some(&others));
                    let _ = writeln!(self.lark, "{json}: %json {schema}");
                    json
                });
            values.push(sequence(&[json, joined(&[tags.after_value])]));
        }
        values
    }

    /// The schema of a value that is JSON, of one of `types`.
    fn json(&self, schema: &Value, types: Option<&Vec<&str>>) -> Value {
        let mut json = Map::new();
        match (schema, types) {
            (Value::Object(fields), None) => json = fields.clone(),
            (_, None) => {
                json.insert("allOf".to_owned(), json!([schema]));
            }
            (Value::Bool(true), Some(types)) => {
                json.insert("type".to_owned(), json!(types));
            }
            (_, Some(types)) => {
                json.insert("allOf".to_owned(), json!([schema, { "type": types }]));
            }
        }
        let refers = || schema.to_string().contains("\"$ref\"");
        if let Some(definitions) = self.schema.definitions().filter(|_| refers()) {
            json.insert("$defs".to_owned(), definitions.clone());
        }
        with_guidance(json)
    }

    /// The terminal of a free text and the tag or quote after it.
    fn free_text(&mut self, name: &str, min: u64, max: Option<u64>) -> String {
        if (min, max) == (0, None) {
            return VALUE.to_owned();
        }
        let terminal = format!("VALUE_{}", name.to_uppercase());
        let max = max.map(|max| max.to_string()).unwrap_or_default();
        let repeated = format!("{{{min},{max}}}");
        let _ = writeln!(
            self.lark,
            "{terminal}: {}",
            text_until(self.tags, &repeated)
        );
        terminal
    }
}

/// The expression of parameters in this order, each after `separator`.
fn optional(rules: &[(String, bool)], separator: &str) -> String {
    let parts = rules.iter().map(|(name, is_required)| {
        let part = sequence(&[separator.to_owned(), name.clone()]);
        match is_required {
            true => part,
            false => format!("({part})?"),
        }
    });
    parts.collect::<Vec<String>>().join(" ")
}

/// The expression of parts in this order, without the empty ones.
fn sequence(parts: &[String]) -> String {
    let parts = parts.iter().filter(|part| !part.is_empty());
    parts.map(String::as_str).collect::<Vec<&str>>().join(" ")
}

/// Adds the shared terminals that the rules in `lark` use.
pub(super) fn write_terminals(tags: &ParameterTags, lark: &mut String) {
    let uses = |terminal: &str| {
        lark.split_whitespace()
            .any(|word| word.trim_matches(['(', ')']) == terminal)
    };
    let (value, key) = (uses(VALUE), uses(KEY));
    if value {
        let _ = writeln!(lark, "{VALUE}: {}", text_until(tags, "*"));
    }
    if key {
        let _ = writeln!(lark, "{KEY}: /[a-zA-Z0-9_.-]{{1,64}}/");
    }
}

/// The terminal of a text, with a number of characters, and the tag or quote after it, which it does not contain.
fn text_until(tags: &ParameterTags, repeated: &str) -> String {
    let end = if tags.quote.is_empty() {
        tags.after_value
    } else {
        tags.quote
    };
    let tag = end.trim();
    let after = end.len() - end.trim_start().len() + tag.len();
    // Whitespace is one character per byte.
    let more = end.len() - after + 1;
    format!(
        "/(?s:.{repeated}){}/ & ~/(?s:.*){}(?s:.{{{more},}})/",
        escaped(end),
        escaped(tag)
    )
}

impl<'a> Texts<'a> {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Only(texts), Self::Only(others)) => {
                let others: HashSet<&str> = others.into_iter().collect();
                let both = texts.into_iter().filter(|text| others.contains(text));
                Self::Only(both.collect())
            }
            (Self::Only(texts), Self::Any { .. }) | (Self::Any { .. }, Self::Only(texts)) => {
                Self::Only(texts)
            }
            (
                Self::Any { min, max },
                Self::Any {
                    min: other,
                    max: most,
                },
            ) => Self::Any {
                min: min.max(other),
                max: max.into_iter().chain(most).min(),
            },
        }
    }

    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Only(mut texts), Self::Only(others)) => {
                texts.extend(others);
                texts.dedup();
                Self::Only(texts)
            }
            (Self::Only(texts), any) | (any, Self::Only(texts)) if texts.is_empty() => any,
            (
                Self::Any { min, max },
                Self::Any {
                    min: other,
                    max: most,
                },
            ) => Self::Any {
                min: min.min(other),
                max: max.zip(most).map(|(max, most)| max.max(most)),
            },
            _ => ANY_TEXT,
        }
    }
}

const ANY_TEXT: Texts<'static> = Texts::Any { min: 0, max: None };

/// The texts that a schema allows, if `budget` more schemas may be examined.
fn texts<'a>(root: ArgumentsSchema<'a>, schema: &'a Value, budget: &mut usize) -> Texts<'a> {
    let Some(schema) = root.resolved(schema).filter(|schema| spend(schema, budget)) else {
        return ANY_TEXT;
    };
    if !own_types(schema).contains(&JsonType::Text) {
        return Texts::Only(Vec::new());
    }
    let length = |name: &str| schema.get(name).and_then(Value::as_u64);
    let lengths = length_is_enforced(schema);
    let mut found = Texts::Any {
        min: length("minLength").filter(|_| lengths).unwrap_or(0),
        max: length("maxLength").filter(|_| lengths),
    };
    let listed = schema.get("enum").and_then(Value::as_array);
    if let Some(values) = listed {
        found = found.and(Texts::Only(
            values.iter().filter_map(Value::as_str).collect(),
        ));
    }
    if let Some(value) = schema.get("const") {
        found = found.and(Texts::Only(value.as_str().into_iter().collect()));
    }
    for name in ["anyOf", "oneOf"] {
        if let Some(schemas) = schema.get(name).and_then(Value::as_array) {
            let each = schemas.iter().map(|schema| texts(root, schema, budget));
            found = found.and(each.fold(Texts::Only(Vec::new()), Texts::or));
        }
    }
    let all = schema.get("allOf").and_then(Value::as_array);
    for schema in all.into_iter().flatten() {
        found = found.and(texts(root, schema, budget));
    }
    found
}

/// True if the lengths of a schema are within the limit.
fn length_is_enforced(schema: &Value) -> bool {
    let lengths = ["minLength", "maxLength"].into_iter();
    let mut lengths = lengths.filter_map(|name| schema.get(name)?.as_u64());
    lengths.all(|length| length <= MAX_LENGTH)
}

/// The keywords of a function's parameters that do not restrict texts between tags, each with its place and the rule.
pub(crate) fn unenforced(format: &ToolFormat, parameters: &Map<String, Value>) -> Vec<String> {
    if format.arguments == ArgumentsForm::Object {
        return Vec::new();
    }
    let root = ArgumentsSchema::new(Some(parameters));
    let mut found = Vec::new();
    for parameter in root.parameters() {
        let schema = root.resolved(parameter.schema).unwrap_or(parameter.schema);
        if !root.types(schema).contains(&JsonType::Text) || schema.get("enum").is_some() {
            continue;
        }
        let is_long = !length_is_enforced(schema);
        for (name, is_free) in [
            ("pattern", true),
            ("format", true),
            ("minLength", is_long),
            ("maxLength", is_long),
        ] {
            if is_free && schema.get(name).is_some() {
                let place = parameter.name;
                found.push(format!(
                    "`{name}` at /properties/{place}/{name} is not supported: this model's calls have strings as free text"
                ));
            }
        }
    }
    found
}

/// The rule that a parameter's name violates, if the format cannot express it.
pub(crate) fn inexpressible(
    format: &ToolFormat,
    parameters: &Map<String, Value>,
) -> Option<String> {
    let ArgumentsForm::Tagged(tags) = &format.arguments else {
        return None;
    };
    let parameters = ArgumentsSchema::new(Some(parameters)).parameters();
    let parameter = parameters
        .iter()
        .find(|parameter| !tags.can_name(parameter.name))?;
    Some(format!(
        "the name {:?} of a parameter must consist of letters, digits, spaces, _, -, ., $ and @: this model's calls have it between tags",
        parameter.name
    ))
}

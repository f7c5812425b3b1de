//! The grammar of lists and objects in formats with quotes for strings: `[<escape>a<escape>,<escape>b<escape>]`.

use serde_json::{Map, Value};

use super::lark::{joined, quoted};
use super::tagged_grammar::TaggedGrammar;

/// The deepest nesting in the format's form. Deeper values are JSON.
const MAX_DEPTH: usize = 4;
/// Keywords of lists and objects whose grammar has the format's form. Values with others are JSON.
const LIST: [&str; 2] = ["type", "items"];
const OBJECT: [&str; 4] = ["type", "properties", "required", "additionalProperties"];

impl<'a> TaggedGrammar<'a> {
    /// Adds the rules of a list or an object, whose names contain `name`, and returns its expression. `None` if the format
    /// has no quotes, or the schema has keywords that only the grammar of JSON can express.
    pub fn nested(&mut self, name: &str, schema: &'a Value) -> Option<String> {
        if self.tags.quote.is_empty() || self.depth >= MAX_DEPTH {
            return None;
        }
        let fields = self.schema.resolved(schema)?.as_object()?;
        let has_only = |keywords: &[&str]| {
            let mut names = fields.keys();
            names.all(|name| keywords.contains(&name.as_str()))
        };
        self.depth += 1;
        let expression = match fields.get("type").and_then(Value::as_str) {
            Some("array") if has_only(&LIST) => self.list(name, fields),
            Some("object") if has_only(&OBJECT) => self.object(name, fields),
            _ => None,
        };
        self.depth -= 1;
        expression
    }

    fn list(&mut self, name: &str, fields: &'a Map<String, Value>) -> Option<String> {
        let item = format!("item_{name}");
        self.parameter(&item, "", fields.get("items")?);
        let separator = quoted(self.tags.separator);
        Some(format!("\"[\" ({item} ({separator} {item})*)? \"]\""))
    }

    fn object(&mut self, name: &str, fields: &'a Map<String, Value>) -> Option<String> {
        let properties = fields.get("properties")?.as_object()?;
        let required = fields.get("required").and_then(Value::as_array);
        let is_required =
            |name: &str| required.is_some_and(|names| names.iter().any(|it| it == name));
        let required_are_declared = required.is_none_or(|names| {
            let mut names = names.iter().filter_map(Value::as_str);
            names.all(|name| properties.contains_key(name))
        });
        let is_closed = fields.get("additionalProperties") == Some(&Value::Bool(false));
        let tags = self.tags;
        let can_name = properties.keys().all(|name| tags.can_name(name));
        let is_possible = properties
            .values()
            .all(|schema| *schema != Value::Bool(false));
        if !(is_closed && required_are_declared && can_name && is_possible) {
            return None;
        }
        let mut rules = Vec::new();
        for (place, (property, schema)) in properties.iter().enumerate() {
            let rule = format!("field{place}_{name}");
            let begin = joined(&[tags.before_name, property, tags.after_name]);
            self.parameter(&rule, &begin, schema);
            rules.push((rule, is_required(property)));
        }
        let inner = self.separated(&rules, &quoted(tags.separator), &format!("rest_{name}"));
        Some(format!("\"{{\" {inner} \"}}\""))
    }
}

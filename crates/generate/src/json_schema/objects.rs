//! Keywords of objects that are rewritten.

use serde_json::{Value, json};

use super::arrays;
use super::issue::SchemaIssue;
use super::keywords::{Fields, Keyword, Role, is_any};
use super::patterns;
use super::references::shown;
use super::rewrite::{Rewriter, Simple, count};

/// The names that a schema of property names allows.
enum NameRule {
    Any,
    OneOf(Vec<String>),
    Pattern(String),
    Other,
}

impl<'a> Rewriter<'a> {
    pub(super) fn of_object(
        &mut self,
        name: &'static str,
        value: &'a Value,
        fields: &'a Fields,
        simple: &mut Simple,
    ) -> Result<(), SchemaIssue> {
        match name {
            "patternProperties" => self.pattern_properties(value, simple),
            "propertyNames" => self.property_names(value, simple),
            "minProperties" | "maxProperties" => self.property_count(name, value, fields, simple),
            "unevaluatedProperties" => self.unevaluated_properties(value, fields, simple),
            _ => self.dependencies(name, value, fields),
        }
    }

    fn pattern_properties(
        &mut self,
        value: &'a Value,
        simple: &mut Simple,
    ) -> Result<(), SchemaIssue> {
        let mut schemas = self.named("patternProperties", value)?;
        if let Some(schemas) = schemas.as_object_mut() {
            let patterns: Vec<String> = schemas.keys().cloned().collect();
            for pattern in patterns {
                if let Some(reason) = patterns::refusal(&pattern) {
                    let rule = format!("is not supported: {}: {reason}", shown(&pattern));
                    self.unsupported("patternProperties", rule)?;
                    // Without its pattern, the properties are additional ones, which must not be restricted instead.
                    simple.open();
                    return Ok(());
                }
            }
            if schemas.is_empty() {
                return Ok(());
            }
        }
        simple.put("patternProperties", schemas);
        Ok(())
    }

    fn property_names(&mut self, value: &'a Value, simple: &mut Simple) -> Result<(), SchemaIssue> {
        match self.name_rule(value) {
            NameRule::Any => {}
            NameRule::OneOf(names) => {
                let names: Fields = names.into_iter().map(|name| (name, true.into())).collect();
                simple.also(json!({ "properties": names, "additionalProperties": false }));
            }
            NameRule::Pattern(pattern) => {
                let names = json!({ "patternProperties": { pattern: true }, "additionalProperties": false });
                simple.also(names);
            }
            NameRule::Other => {
                let rule = "is only supported with `enum`, `const` or `pattern`";
                self.unsupported("propertyNames", rule)?;
            }
        }
        Ok(())
    }

    fn name_rule(&self, mut schema: &'a Value) -> NameRule {
        const MAX_REFERENCES: usize = 16;
        for _ in 0..MAX_REFERENCES {
            let Some(reference) = schema.get("$ref").and_then(Value::as_str) else {
                break;
            };
            match self.document.resolve(reference) {
                Ok((_, target)) => schema = target,
                Err(_) => return NameRule::Other,
            }
        }
        if is_any(schema) {
            return NameRule::Any;
        }
        let Some(fields) = schema.as_object() else {
            return NameRule::Other;
        };
        let restricts = |name: &&String| {
            Keyword::find(name).is_some_and(|keyword| keyword.role != Role::Annotation)
                && *name != "type"
        };
        let restricting: Vec<&String> = fields.keys().filter(restricts).collect();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        match restricting.as_slice() {
            [] if super::rewrite::may_be(fields, "string") => NameRule::Any,
            [name] => match (name.as_str(), &fields[name.as_str()]) {
                ("enum", Value::Array(values)) => {
                    NameRule::OneOf(values.iter().filter_map(text).collect())
                }
                ("const", Value::String(value)) => NameRule::OneOf(vec![value.clone()]),
                ("pattern", Value::String(pattern)) if patterns::refusal(pattern).is_none() => {
                    NameRule::Pattern(pattern.clone())
                }
                ("minLength", value) if count(value) == Some(0) => NameRule::Any,
                ("minLength", value) => match count(value) {
                    Some(least) => NameRule::Pattern(format!("^(?s:.){{{least},}}$")),
                    None => NameRule::Other,
                },
                ("maxLength", value) => match count(value) {
                    Some(most) => NameRule::Pattern(format!("^(?s:.){{0,{most}}}$")),
                    None => NameRule::Other,
                },
                _ => NameRule::Other,
            },
            _ => NameRule::Other,
        }
    }

    /// The compiler counts properties only if all `properties` are required, or if one of them is.
    fn property_count(
        &mut self,
        name: &'static str,
        value: &Value,
        fields: &'a Fields,
        simple: &mut Simple,
    ) -> Result<(), SchemaIssue> {
        let number = |name: &str| fields.get(name).and_then(count);
        let bound = self.number(name, value)?;
        let required = names(fields.get("required"));
        let listed = fields.get("properties").and_then(Value::as_object);
        let listed = listed.into_iter().flatten();
        let listed = listed.filter(|(_, schema)| **schema != Value::Bool(false));
        let listed: Vec<&String> = listed.map(|(name, _)| name).collect();
        let optional = listed
            .iter()
            .filter(|name| !required.contains(&name.as_str()));
        let is_closed = fields.get("additionalProperties") == Some(&Value::Bool(false))
            && !fields.contains_key("patternProperties");
        let least = number("minProperties").unwrap_or(0);
        let least = least.saturating_sub(required.len() as u64);
        let most = number("maxProperties");
        let most = most.map(|most| most.saturating_sub(required.len() as u64));
        let has_effect = match name {
            "minProperties" => least > 0,
            _ => !(is_closed && bound >= listed.len() as u64),
        };
        if !has_effect {
            return Ok(());
        }
        let counts_one = is_closed && least <= 1 && most.unwrap_or(1) == 1;
        if optional.count() > 0 && !counts_one {
            return self.unsupported(name, "is not supported beside optional `properties`");
        }
        simple.put(name, bound.into());
        Ok(())
    }

    fn unevaluated_properties(
        &mut self,
        value: &'a Value,
        fields: &'a Fields,
        simple: &mut Simple,
    ) -> Result<(), SchemaIssue> {
        // `additionalProperties` evaluates all properties.
        if is_any(value) || fields.contains_key("additionalProperties") {
            return Ok(());
        }
        if arrays::applies_others(fields) || !fields.contains_key("properties") {
            let rule = "is only supported beside `properties`, without keywords that apply other schemas: \
                        use `additionalProperties`";
            return self.unsupported("unevaluatedProperties", rule);
        }
        let rest = self.inner("unevaluatedProperties", None, value)?;
        simple.put("additionalProperties", rest);
        Ok(())
    }

    /// A dependency has no effect if the names that it requires are required in any case.
    fn dependencies(
        &mut self,
        name: &'static str,
        value: &'a Value,
        fields: &'a Fields,
    ) -> Result<(), SchemaIssue> {
        let required = names(fields.get("required"));
        let Some(dependencies) = value.as_object() else {
            return Err(self.issue(name, "must be an object"));
        };
        let has_no_effect = dependencies.values().all(|needed| match needed {
            Value::Array(_) => names(Some(needed))
                .iter()
                .all(|name| required.contains(name)),
            schema => is_any(schema),
        });
        match has_no_effect {
            true => Ok(()),
            false => self.unsupported(name, "is not supported"),
        }
    }
}

/// The names in a list.
fn names(value: Option<&Value>) -> Vec<&str> {
    let names = value.and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).collect()
}

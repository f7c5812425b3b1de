//! Keywords of arrays that are rewritten.

use serde_json::{Value, json};

use super::issue::SchemaIssue;
use super::keywords::{Fields, is_any};
use super::rewrite::{Rewriter, Simple, count};

impl<'a> Rewriter<'a> {
    pub(super) fn of_array(
        &mut self,
        name: &'static str,
        value: &'a Value,
        fields: &'a Fields,
        simple: &mut Simple,
    ) -> Result<(), SchemaIssue> {
        match name {
            "items" => self.items(value, fields, simple),
            "uniqueItems" => {
                let most = fields.get("maxItems").and_then(count);
                match self.flag(name, value)? && most.is_none_or(|most| most > 1) {
                    true => self.unsupported(name, "is not supported"),
                    false => Ok(()),
                }
            }
            "contains" => self.contains(value, fields, simple),
            _ => self.unevaluated_items(value, fields, simple),
        }
    }

    /// Before draft 2020-12, a list of schemas is that of the first items, and `additionalItems` is that of the rest.
    fn items(
        &mut self,
        value: &'a Value,
        fields: &'a Fields,
        simple: &mut Simple,
    ) -> Result<(), SchemaIssue> {
        if !value.is_array() {
            let items = self.inner("items", None, value)?;
            simple.put("items", items);
            return Ok(());
        }
        if value.as_array().is_some_and(|items| !items.is_empty()) {
            let first = self.schemas("items", value, None)?;
            simple.put("prefixItems", first);
        }
        if let Some(rest) = fields.get("additionalItems")
            && !rest.is_null()
        {
            let rest = self.inner("additionalItems", None, rest)?;
            simple.put("items", rest);
        }
        Ok(())
    }

    fn contains(
        &mut self,
        value: &'a Value,
        fields: &'a Fields,
        simple: &mut Simple,
    ) -> Result<(), SchemaIssue> {
        let bound = |name: &str| {
            let value = fields.get(name).filter(|value| !value.is_null());
            value.map(|value| self.number(name, value)).transpose()
        };
        let (least, most) = (bound("minContains")?.unwrap_or(1), bound("maxContains")?);
        if least == 0 && most.is_none() {
            return Ok(());
        }
        if !is_any(value) {
            return self.unsupported("contains", "is not supported");
        }
        if least > 0 {
            simple.also(json!({ "minItems": least }));
        }
        if let Some(most) = most {
            simple.also(json!({ "maxItems": most }));
        }
        Ok(())
    }

    fn unevaluated_items(
        &mut self,
        value: &'a Value,
        fields: &'a Fields,
        simple: &mut Simple,
    ) -> Result<(), SchemaIssue> {
        // A schema of all items leaves none.
        let evaluates_all = fields.get("items").is_some_and(|items| !items.is_array())
            || fields.contains_key("additionalItems");
        if is_any(value) || evaluates_all {
            return Ok(());
        }
        if applies_others(fields) || fields.contains_key("contains") {
            let rule = "is not supported beside keywords that apply other schemas";
            return self.unsupported("unevaluatedItems", rule);
        }
        let rest = self.inner("unevaluatedItems", None, value)?;
        simple.put("items", rest);
        Ok(())
    }
}

/// Returns true if a schema applies other schemas to the same value.
pub(super) fn applies_others(fields: &Fields) -> bool {
    const APPLICATORS: [&str; 10] = [
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "dependentSchemas",
        "dependencies",
    ];
    APPLICATORS.iter().any(|name| fields.contains_key(*name))
}

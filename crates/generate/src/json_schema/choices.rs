//! References, conditions, alternatives and bounds that are rewritten.

use serde_json::Value;

use super::SchemaIssue;
use super::keywords::is_any;
use super::overlap::Overlap;
use super::rewrite::{Fields, Rewriter, Simple};

impl<'a> Rewriter<'a> {
    /// A bound that excludes its value. In draft 4 and OpenAPI 3.0 it is a flag of `bound`.
    pub(super) fn exclusive(
        &self,
        name: &str,
        bound: &str,
        value: &Value,
        fields: &Fields,
        simple: &mut Simple,
    ) -> Result<(), SchemaIssue> {
        match (value, fields.get(bound)) {
            (Value::Number(_), _) => simple.put(name, value.clone()),
            (Value::Bool(true), Some(bound)) if bound.is_number() => {
                simple.put(name, bound.clone());
            }
            (Value::Bool(_), _) => {}
            _ => return Err(self.issue(name, "must be a number")),
        }
        Ok(())
    }

    pub(super) fn one_of(
        &mut self,
        value: &'a Value,
        fields: &'a Fields,
        simple: &mut Simple,
    ) -> Result<(), SchemaIssue> {
        let alternatives = self.schemas("oneOf", value, None)?;
        let around: Vec<&Fields> = self.around.iter().copied().chain([fields]).collect();
        let mut overlap = Overlap::new(&self.document);
        let given = value.as_array().map_or(&[][..], Vec::as_slice);
        if let Some((first, second)) = overlap.find(given, &around) {
            let rule = format!(
                "is only supported if at most one alternative can match, and {first} and {second} may match together: \
                 use `anyOf`"
            );
            self.unsupported("oneOf", rule)?;
        }
        simple.put("anyOf", alternatives);
        Ok(())
    }

    pub(super) fn condition(
        &mut self,
        condition: &'a Value,
        fields: &'a Fields,
        simple: &mut Simple,
    ) -> Result<(), SchemaIssue> {
        let given = |name: &str| fields.get(name).filter(|value| !value.is_null());
        let branches = [("then", given("then")), ("else", given("else"))];
        let restricts = |branch: Option<&Value>| branch.is_some_and(|value| !is_any(value));
        let certain = match condition {
            Value::Bool(false) => Some(1),
            condition if is_any(condition) => Some(0),
            _ => None,
        };
        match certain.map(|index| branches[index]) {
            Some((name, Some(branch))) => {
                let branch = self.inner(name, None, branch)?;
                simple.also(branch);
                Ok(())
            }
            None if branches.into_iter().any(|(_, branch)| restricts(branch)) => {
                self.unsupported("if", "is not supported")
            }
            _ => Ok(()),
        }
    }

    /// The rewritten form of a reference.
    pub(super) fn target(&mut self, keyword: &str, reference: &str) -> Result<String, SchemaIssue> {
        let resolved = self.document.resolve(reference);
        let (pointer, target) = resolved.map_err(|rule| self.issue(keyword, rule))?;
        if pointer.is_empty() {
            return Ok("#".to_owned());
        }
        let known = self.targets.iter().find(|(known, ..)| *known == pointer);
        let name = match known {
            Some((_, name, _)) => name.clone(),
            None => {
                let last = pointer.rsplit('/').next().unwrap_or_default();
                let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
                let is_free = self.targets.iter().all(|(_, name, _)| name != last);
                let name = match is_free && last.chars().all(plain) && !last.is_empty() {
                    true => last.to_owned(),
                    false => format!("target-{}", self.targets.len()),
                };
                self.targets.push((pointer, name.clone(), target));
                name
            }
        };
        Ok(format!("#/$defs/{name}"))
    }
}

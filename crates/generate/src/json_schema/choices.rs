//! References, conditions, alternatives and bounds that are rewritten.

use serde_json::Value;

use super::issue::SchemaIssue;
use super::keywords::{Fields, is_any};
use super::overlap::Overlap;
use super::rewrite::{Rewriter, Simple};

/// 2^63: numbers from here on are not expressible as bounds.
const LARGEST: f64 = 9_223_372_036_854_775_808.0;
/// The largest f64 below.
const LARGEST_BOUND: i64 = 9_223_372_036_854_774_784;
/// Bounds below have too many digits.
const SMALLEST: f64 = 1e-100;

/// The most targets of references that keep their names.
const MOST_NAMED: usize = 1000;

impl<'a> Rewriter<'a> {
    /// A bound of numbers. One that excludes only numbers that the compiler cannot express is moved to the last that it
    /// can, so that all texts match.
    pub(super) fn bound(
        &mut self,
        name: &str,
        value: &Value,
    ) -> Result<Option<Value>, SchemaIssue> {
        let bound = value.as_f64().unwrap_or_default();
        let is_upper = name.ends_with("aximum");
        if bound.abs() < LARGEST && (bound == 0.0 || bound.abs() > SMALLEST) {
            return Ok(Some(value.clone()));
        }
        if bound.abs() >= LARGEST && is_upper == (bound > 0.0) {
            let last = LARGEST_BOUND * if is_upper { 1 } else { -1 };
            return Ok(Some(last.into()));
        }
        self.unsupported_value(name, value)
    }

    /// Refuses or drops a keyword that is not supported with its value.
    fn unsupported_value(
        &mut self,
        name: &str,
        value: &Value,
    ) -> Result<Option<Value>, SchemaIssue> {
        self.unsupported(name, format!("is not supported with the value {value}"))?;
        Ok(None)
    }

    /// The compiler computes with the digits of a divisor as they are in binary.
    pub(super) fn divisor(
        &mut self,
        name: &str,
        value: &Value,
    ) -> Result<Option<Value>, SchemaIssue> {
        let mut digits = value.as_f64().unwrap_or_default();
        while digits.fract() != 0.0 {
            digits *= 10.0;
        }
        if digits <= f64::from(u32::MAX) {
            return Ok(Some(value.clone()));
        }
        self.unsupported_value(name, value)
    }

    /// A bound that excludes its value. In draft 4 and OpenAPI 3.0 it is a flag of `limit`.
    pub(super) fn exclusive(
        &mut self,
        name: &str,
        limit: &str,
        value: &Value,
        fields: &Fields,
        simple: &mut Simple,
    ) -> Result<(), SchemaIssue> {
        let bound = match (value, fields.get(limit)) {
            (Value::Number(_), _) => self.bound(name, value)?,
            (Value::Bool(true), Some(bound)) if bound.is_number() => self.bound(name, bound)?,
            (Value::Bool(_), _) => None,
            _ => return Err(self.issue(name, "must be a number")),
        };
        if let Some(bound) = bound {
            simple.put(name, bound);
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
        let mut overlap = Overlap::new(&self.document, &mut self.comparisons);
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
        let name = match self.target_names.get(&pointer) {
            Some(name) => name.clone(),
            None => {
                let last = pointer.rsplit('/').next().unwrap_or_default();
                let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
                let is_plain = last.chars().all(plain) && !last.is_empty();
                let is_free = self.targets.iter().take(MOST_NAMED).all(|it| it.1 != last);
                let name = match is_plain && is_free && self.targets.len() < MOST_NAMED {
                    true => last.to_owned(),
                    false => format!("target {}", self.targets.len()),
                };
                self.target_names.insert(pointer.clone(), name.clone());
                self.targets.push((pointer, name.clone(), target));
                name
            }
        };
        Ok(format!("#/$defs/{name}"))
    }
}

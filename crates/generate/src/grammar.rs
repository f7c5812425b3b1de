//! Grammars as the client writes them, and inexpensive checks.

use llguidance::api::TopLevelGrammar;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::SettingError;
use crate::expression;
use crate::json_schema::{MAX_VALUES, Unsupported, count_values, simplify};

/// The most bytes of a schema, an expression or a grammar.
pub(crate) const MAX_SOURCE: usize = 256 << 10;

/// A grammar that describes the allowed texts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grammar {
    /// JSON that matches a schema of draft 4 to 2020-12 or of OpenAPI. Whitespace is a single space after each comma and
    /// colon, unless the schema has llguidance's `x-guidance`. References must be within the schema (`#/$defs/…`).
    /// [`json_schema`](crate::json_schema) lists the keywords.
    JsonSchema(String),
    /// A text that a regular expression in the syntax of the `regex` crate matches in full.
    Regex(String),
    /// A text of a grammar in llguidance's variant of Lark syntax.
    Lark(String),
}

impl Grammar {
    /// A grammar for a choice between several texts.
    pub fn choice<S: AsRef<str>>(texts: &[S]) -> Self {
        let text = |text: &S| regex_syntax::escape(text.as_ref());
        let texts: Vec<String> = texts.iter().map(text).collect();
        Self::Regex(texts.join("|"))
    }

    /// The source text of the grammar.
    pub fn source(&self) -> &str {
        match self {
            Self::JsonSchema(source) | Self::Regex(source) | Self::Lark(source) => source,
        }
    }

    /// An error about this grammar that still needs its reason.
    pub(crate) fn refusal(&self) -> Refusal {
        let field = match self {
            Self::JsonSchema(_) => "json_schema",
            Self::Regex(_) => "regex",
            Self::Lark(_) => "grammar",
        };
        let value = beginning(self.source());
        Refusal { field, value }
    }

    /// Checks size, nesting and repetitions, in time linear in the length of the source.
    ///
    /// # Errors
    /// Returns the exceeded limit.
    pub fn check(&self) -> Result<(), SettingError> {
        self.check_size()?;
        let checked = match self {
            Self::JsonSchema(schema) => check_schema(schema),
            Self::Regex(regex) => expression::check(regex),
            Self::Lark(_) => Ok(()),
        };
        checked.map_err(|rule| self.refusal().because(rule))
    }

    /// Checks the size.
    ///
    /// # Errors
    /// The source is too long.
    pub fn check_size(&self) -> Result<(), SettingError> {
        match self.source().len() > MAX_SOURCE {
            true => {
                let rule = format!("must have at most {MAX_SOURCE} bytes");
                Err(self.refusal().because(rule))
            }
            false => Ok(()),
        }
    }

    /// Parses the grammar into the form that llguidance compiles.
    ///
    /// # Errors
    /// The source is not JSON, or not a regular expression.
    pub(crate) fn read(&self) -> Result<TopLevelGrammar, String> {
        match self {
            Self::JsonSchema(schema) => {
                let given = parse_json(schema)?;
                let simple = simplify(&given, Unsupported::Refuse);
                let simple = simple.map_err(|issue| issue.to_string())?.schema;
                let schema = with_few_blanks(simple, given.get(GUIDANCE));
                Ok(TopLevelGrammar::from_json_schema(schema))
            }
            Self::Regex(regex) => {
                // llguidance drops a trailing backslash, and its error messages are harder to read.
                regex_syntax::parse(regex).map_err(|error| expression::reason(&error))?;
                Ok(TopLevelGrammar::from_regex(regex))
            }
            Self::Lark(grammar) => Ok(TopLevelGrammar::from_lark(grammar.clone())),
        }
    }
}

/// An error about a grammar that still needs its reason.
pub(crate) struct Refusal {
    field: &'static str,
    value: String,
}

impl Refusal {
    pub fn because(&self, rule: impl Into<String>) -> SettingError {
        SettingError::new(self.field, &self.value, rule)
    }
}

/// Parses a schema. serde_json limits the nesting depth to 128.
fn parse_json(schema: &str) -> Result<Value, String> {
    serde_json::from_str(schema).map_err(|error| format!("it is not JSON: {error}"))
}

/// The keyword of llguidance's own rules, such as those for whitespace.
const GUIDANCE: &str = "x-guidance";

/// Restricts whitespace, unless the schema sets its own rules: a small model may otherwise emit whitespace
/// forever.
fn with_few_blanks(mut schema: Value, given: Option<&Value>) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        let few = || json!({ "whitespace_flexible": false, "item_separator": ", ", "key_separator": ": " });
        let rules = given.cloned().unwrap_or_else(few);
        fields.insert(GUIDANCE.to_owned(), rules);
    }
    schema
}

fn check_schema(schema: &str) -> Result<(), String> {
    let values = count_values(&parse_json(schema)?);
    match values > MAX_VALUES {
        true => Err(format!(
            "must have at most {MAX_VALUES} values, and has {values}"
        )),
        false => Ok(()),
    }
}

/// The beginning of a source text, for an error message.
fn beginning(source: &str) -> String {
    const MAX_SHOWN: usize = 60;
    match source.char_indices().nth(MAX_SHOWN) {
        Some((at, _)) => format!("{}…", &source[..at]),
        None => source.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excessive_grammars_are_rejected_before_compilation() {
        let long = Grammar::Regex("a".repeat(MAX_SOURCE + 1))
            .check()
            .unwrap_err();
        assert!(long.rule.contains("at most 262144 bytes"), "{long}");
        let many = format!("{{\"enum\": [{}1]}}", "1,".repeat(MAX_VALUES));
        let many = Grammar::JsonSchema(many).check().unwrap_err();
        assert!(many.rule.contains("at most 50000 values"), "{many}");
        let deep = r#"{"items":"#.repeat(20_000) + &"}".repeat(20_000);
        let deep = Grammar::JsonSchema(deep).check().unwrap_err();
        assert!(deep.rule.contains("recursion limit"), "{deep}");
    }
}

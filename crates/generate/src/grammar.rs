//! Grammars as the client writes them, and inexpensive checks.

use llguidance::api::TopLevelGrammar;
use regex_syntax::ast::{self, Ast, RepetitionKind, RepetitionRange};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::SettingError;
use crate::json_schema::{MAX_VALUES, Unsupported, count_values, simplify};

/// The most bytes of a schema, an expression or a grammar.
pub(crate) const MAX_SOURCE: usize = 256 << 10;
/// The deepest nesting of groups in an expression.
pub(crate) const MAX_NESTING: u32 = 100;
/// The most characters of an expression with its repetitions expanded.
pub(crate) const MAX_CHARACTERS: u64 = 500_000;
/// The most subexpressions that match the empty text, with repetitions expanded. Memory grows with the square
/// of their number.
pub(crate) const MAX_OPTIONAL: u64 = 2000;

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
        let checked = match self {
            it if it.source().len() > MAX_SOURCE => {
                Err(format!("must have at most {MAX_SOURCE} bytes"))
            }
            Self::JsonSchema(schema) => check_schema(schema),
            Self::Regex(regex) => check_regex(regex),
            Self::Lark(_) => Ok(()),
        };
        checked.map_err(|rule| self.refusal().because(rule))
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
                regex_syntax::parse(regex).map_err(|error| reason(&error))?;
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

/// The last line of a multi-line error of `regex_syntax`, which also draws the expression.
pub(crate) fn reason(error: &impl ToString) -> String {
    let text = error.to_string();
    let reason = text.rsplit("\nerror: ").next().unwrap_or(&text);
    reason.trim().to_owned()
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

/// Checks an expression by its syntax tree. Expanding character classes to ranges would take too much memory.
fn check_regex(regex: &str) -> Result<(), String> {
    let mut parser = ast::parse::ParserBuilder::new()
        .nest_limit(MAX_NESTING)
        .build();
    let ast = parser.parse(regex).map_err(|error| reason(&error))?;
    let size = RegexSize::of(&ast);
    if size.characters > MAX_CHARACTERS {
        return Err(format!(
            "must have at most {MAX_CHARACTERS} characters with its repetitions written out"
        ));
    }
    if size.optional > MAX_OPTIONAL {
        return Err(format!(
            "must have at most {MAX_OPTIONAL} optional parts, such as `a?`, `a*` or `(a|)`, with its repetitions written out"
        ));
    }
    Ok(())
}

/// The size of an expression with its repetitions expanded.
#[derive(Clone, Copy, Default)]
struct RegexSize {
    characters: u64,
    optional: u64,
    matches_empty: bool,
}

impl RegexSize {
    fn of(ast: &Ast) -> Self {
        match ast {
            Ast::Empty(_) | Ast::Flags(_) | Ast::Assertion(_) => Self {
                matches_empty: true,
                ..Self::default()
            },
            Ast::Literal(_)
            | Ast::Dot(_)
            | Ast::ClassUnicode(_)
            | Ast::ClassPerl(_)
            | Ast::ClassBracketed(_) => Self {
                characters: 1,
                ..Self::default()
            },
            Ast::Group(group) => Self::of(&group.ast),
            Ast::Concat(parts) => Self::sum(&parts.asts, |all| all.all(|it| it.matches_empty)),
            Ast::Alternation(parts) => {
                let size = Self::sum(&parts.asts, |all| all.any(|it| it.matches_empty));
                size.counted()
            }
            Ast::Repetition(repetition) => {
                let (least, times) = bounds(&repetition.op.kind);
                let inner = Self::of(&repetition.ast);
                let size = Self {
                    characters: inner.characters.saturating_mul(times),
                    optional: inner.optional.saturating_mul(times),
                    matches_empty: least == 0 || inner.matches_empty,
                };
                size.counted()
            }
        }
    }

    fn sum(
        parts: &[Ast],
        matches_empty: impl FnOnce(&mut std::slice::Iter<'_, Self>) -> bool,
    ) -> Self {
        let parts: Vec<Self> = parts.iter().map(Self::of).collect();
        let add = |total: u64, part: u64| total.saturating_add(part);
        Self {
            characters: parts.iter().map(|it| it.characters).fold(0, add),
            optional: parts.iter().map(|it| it.optional).fold(0, add),
            matches_empty: matches_empty(&mut parts.iter()),
        }
    }

    /// Counts this expression itself if it can match the empty text.
    fn counted(mut self) -> Self {
        self.optional = self.optional.saturating_add(self.matches_empty.into());
        self
    }
}

/// The minimum number of repetitions, and the number of copies in the expanded expression. An unbounded
/// repetition is expanded once.
fn bounds(kind: &RepetitionKind) -> (u32, u64) {
    let (least, most) = match kind {
        RepetitionKind::ZeroOrOne => (0, 1),
        RepetitionKind::ZeroOrMore => (0, 1),
        RepetitionKind::OneOrMore => (1, 1),
        RepetitionKind::Range(RepetitionRange::Exactly(count)) => (*count, *count),
        RepetitionKind::Range(RepetitionRange::AtLeast(least)) => (*least, *least),
        RepetitionKind::Range(RepetitionRange::Bounded(least, most)) => (*least, *most),
    };
    (least, most.max(1).into())
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

    fn regex_error(regex: &str) -> Option<String> {
        check_regex(regex).err()
    }

    #[test]
    fn regex_size_expands_repetitions() {
        for (regex, characters, optional) in [
            ("abc", 3, 0),
            ("a?b*c+", 3, 2),
            ("(?:a|)(?:b|c)", 3, 1),
            ("(?:a?){10}", 10, 11),
            ("(?:a{2,3}){4}", 12, 0),
            (r"\d{3}-[a-z]{0,4}", 8, 1),
            ("((a{1,50}){1,50}){1,50}", 125_000, 0),
        ] {
            let mut parser = ast::parse::Parser::new();
            let size = RegexSize::of(&parser.parse(regex).unwrap());
            assert_eq!(
                (size.characters, size.optional),
                (characters, optional),
                "{regex}"
            );
        }
    }

    #[test]
    fn excessive_grammars_are_rejected_before_compilation() {
        for part in ["a?", "a*", ".?", "(?:a|)", "(?:a?){2}"] {
            let error = regex_error(&part.repeat(2001)).unwrap();
            assert!(error.contains("at most 2000 optional parts"), "{error}");
        }
        let error = regex_error("((((a{999}){999}){999}){999}){999}").unwrap();
        assert!(error.contains("repetitions written out"), "{error}");
        let error = regex_error(&("(".repeat(101) + &")".repeat(101))).unwrap();
        assert!(error.contains("nest"), "{error}");
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

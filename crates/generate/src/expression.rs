//! Regular expressions: their syntax, and limits on their size.

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{Ast, RepetitionKind, RepetitionRange};

/// The deepest nesting of groups in an expression.
pub(crate) const MAX_NESTING: u32 = 100;
/// The most characters of an expression with its repetitions expanded.
pub(crate) const MAX_CHARACTERS: u64 = 500_000;
/// The most subexpressions that match the empty text, with repetitions expanded. Memory grows with the square
/// of their number.
pub(crate) const MAX_OPTIONAL: u64 = 2000;

/// Parses an expression.
///
/// # Errors
/// The reason, if it is invalid or nested too deeply.
pub(crate) fn parse(regex: &str) -> Result<Ast, String> {
    let mut parser = ParserBuilder::new().nest_limit(MAX_NESTING).build();
    parser.parse(regex).map_err(|error| reason(&error))
}

/// The last line of a multi-line error of `regex_syntax`, which also draws the expression.
pub(crate) fn reason(error: &impl ToString) -> String {
    let text = error.to_string();
    let reason = text.rsplit("\nerror: ").next().unwrap_or(&text);
    reason.trim().to_owned()
}

/// Checks an expression by its syntax tree. Expanding character classes to ranges would take too much memory.
///
/// # Errors
/// The expression is invalid or exceeds a limit.
pub(crate) fn check(regex: &str) -> Result<(), String> {
    let size = RegexSize::of(&parse(regex)?);
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

#[cfg(test)]
mod tests {
    use super::*;

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
            let size = RegexSize::of(&parse(regex).unwrap());
            assert_eq!(
                (size.characters, size.optional),
                (characters, optional),
                "{regex}"
            );
        }
    }

    #[test]
    fn excessive_expressions_are_rejected() {
        let regex_error = |regex: &str| check(regex).err();
        for part in ["a?", "a*", ".?", "(?:a|)", "(?:a?){2}"] {
            let error = regex_error(&part.repeat(2001)).unwrap();
            assert!(error.contains("at most 2000 optional parts"), "{error}");
        }
        let error = regex_error("((((a{999}){999}){999}){999}){999}").unwrap();
        assert!(error.contains("repetitions written out"), "{error}");
        let error = regex_error(&("(".repeat(101) + &")".repeat(101))).unwrap();
        assert!(error.contains("nest"), "{error}");
    }
}

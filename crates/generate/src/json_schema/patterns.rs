//! Regular expressions of schemas.

use regex_syntax::ast::{AssertionKind, Ast};

use crate::expression::parse;

/// The reason that a grammar cannot express a pattern. `None` if it can.
pub(super) fn refusal(pattern: &str) -> Option<String> {
    match parse(pattern) {
        Err(reason) => Some(reason),
        Ok(ast) if is_supported(&ast, true, true) => None,
        Ok(_) => Some("`^` and `$` are only supported at its ends, and \\b nowhere".to_owned()),
    }
}

/// Returns true if assertions are at the ends of the expression only.
fn is_supported(ast: &Ast, at_start: bool, at_end: bool) -> bool {
    match ast {
        Ast::Assertion(assertion) => match assertion.kind {
            AssertionKind::StartLine | AssertionKind::StartText => at_start,
            AssertionKind::EndLine | AssertionKind::EndText => at_end,
            _ => false,
        },
        Ast::Group(group) => is_supported(&group.ast, at_start, at_end),
        Ast::Repetition(repetition) => is_supported(&repetition.ast, false, false),
        Ast::Alternation(parts) => {
            let mut parts = parts.asts.iter();
            parts.all(|part| is_supported(part, at_start, at_end))
        }
        Ast::Concat(parts) => {
            let parts = &parts.asts;
            let first = parts.iter().position(|part| !is_empty(part));
            let last = parts.iter().rposition(|part| !is_empty(part));
            parts.iter().enumerate().all(|(index, part)| {
                let starts = at_start && first.is_none_or(|first| index <= first);
                let ends = at_end && last.is_none_or(|last| index >= last);
                is_supported(part, starts, ends)
            })
        }
        Ast::Empty(_)
        | Ast::Flags(_)
        | Ast::Literal(_)
        | Ast::Dot(_)
        | Ast::ClassUnicode(_)
        | Ast::ClassPerl(_)
        | Ast::ClassBracketed(_) => true,
    }
}

/// Returns true for parts that match no characters, such as `(?i)`.
fn is_empty(ast: &Ast) -> bool {
    matches!(ast, Ast::Assertion(_) | Ast::Flags(_) | Ast::Empty(_))
}

//! Splits Rust source into code, string literals and comments by line, so that a rule can check one of them.

use ra_ap_rustc_lexer::{FrontmatterAllowed, LiteralKind, TokenKind, tokenize};

/// A line of a source file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Line {
    /// The code, with each string literal as `""` and without comments.
    pub code: String,
    /// String literals that begin on this line.
    pub strings: Vec<String>,
    /// The text of comments after `//`, or between `/*` and `*/`. The text of a doc comment begins with `/` or
    /// `!`.
    pub comment: String,
}

/// Splits a file that compiles. Lines of other files may be misread.
pub fn lines(source: &str) -> Vec<Line> {
    let mut lines = vec![Line::default()];
    let mut rest = source;
    for token in tokenize(source, FrontmatterAllowed::No) {
        let (text, after) = rest.split_at(token.len as usize);
        rest = after;
        match token.kind {
            TokenKind::LineComment { .. } => add(&mut lines, &text[2..], |line| &mut line.comment),
            TokenKind::BlockComment { .. } => {
                let text = text.trim_start_matches("/*").trim_end_matches("*/");
                add(&mut lines, text, |line| &mut line.comment);
            }
            TokenKind::Literal { kind, .. } => match kind {
                LiteralKind::Char { .. } | LiteralKind::Byte { .. } => {}
                LiteralKind::Int { .. } | LiteralKind::Float { .. } => {
                    add(&mut lines, text, |line| &mut line.code);
                }
                _ => add_string(&mut lines, text),
            },
            _ => add(&mut lines, text, |line| &mut line.code),
        }
    }
    lines
}

/// Adds text to a part of the last line, and more lines if the text has line breaks.
fn add(lines: &mut Vec<Line>, text: &str, part: impl Fn(&mut Line) -> &mut String) {
    for (number, text) in text.split('\n').enumerate() {
        if number > 0 {
            lines.push(Line::default());
        }
        if let Some(line) = lines.last_mut() {
            part(line).push_str(text);
        }
    }
}

/// Adds a string literal, whose quotes may have a prefix and hashes.
fn add_string(lines: &mut Vec<Line>, literal: &str) {
    let mut parts = literal.splitn(2, '"');
    let (prefix, text) = (parts.next(), parts.next().unwrap_or_default());
    let text = text.rsplit_once('"').map_or(text, |(text, _)| text);
    if let Some(line) = lines.last_mut() {
        line.code += prefix.unwrap_or_default().trim_end_matches('#');
        line.code += "\"\"";
        line.strings.push(text.to_owned());
    }
    let breaks = literal.matches('\n').count();
    lines.extend(std::iter::repeat_n(Line::default(), breaks));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_strings_and_comments_are_separate() {
        let found = |source: &str| {
            let lines = lines(source).into_iter();
            let parts = lines.map(|line| (line.code, line.strings.join("|"), line.comment));
            parts.collect::<Vec<_>>()
        };
        let line = |code: &str, strings: &str, comment: &str| {
            (code.to_owned(), strings.to_owned(), comment.to_owned())
        };
        assert_eq!(
            found("a // \"b\n/* c\n e */f(\"one \\\" //\ntwo\", br#\"\"3\"\"#, '\"')\n/// d"),
            [
                line("a ", "", " \"b"),
                line("", "", " c"),
                line("f(\"\"", "one \\\" //\ntwo", " e "),
                line(", br\"\", )", "\"3\"", ""),
                line("", "", "/ d"),
            ]
        );
    }
}

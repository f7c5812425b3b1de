//! Splits Rust source into code, string literals and comments by line, so that a rule can check one of them.

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
    let mut lexer = Lexer {
        chars: source.chars().collect(),
        at: 0,
        lines: vec![Line::default()],
    };
    while lexer.at < lexer.chars.len() {
        lexer.step();
    }
    lexer.lines
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    lines: Vec<Line>,
}

impl Lexer {
    fn step(&mut self) {
        if self.sees("//") {
            self.at += 2;
            while self.peek(0).is_some_and(|next| next != '\n') {
                self.keep_comment();
            }
        } else if self.sees("/*") {
            self.block_comment();
        } else if let Some(hashes) = self.raw_string() {
            self.string(Some(hashes));
        } else if self.peek(0) == Some('"') {
            self.string(None);
        } else if self.peek(0) == Some('\'') {
            self.quote();
        } else {
            self.keep();
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn sees(&self, text: &str) -> bool {
        text.chars()
            .enumerate()
            .all(|(ahead, wanted)| self.peek(ahead) == Some(wanted))
    }

    /// Takes one character and counts lines.
    fn take(&mut self) -> Option<char> {
        let next = self.peek(0)?;
        self.at += 1;
        if next == '\n' {
            self.lines.push(Line::default());
        }
        Some(next)
    }

    /// Takes one character of code.
    fn keep(&mut self) {
        if let Some(next) = self.take().filter(|next| *next != '\n')
            && let Some(line) = self.lines.last_mut()
        {
            line.code.push(next);
        }
    }

    /// Takes one character of a comment.
    fn keep_comment(&mut self) {
        if let Some(next) = self.take().filter(|next| *next != '\n')
            && let Some(line) = self.lines.last_mut()
        {
            line.comment.push(next);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        loop {
            let step = if self.sees("/*") {
                1
            } else {
                -i32::from(self.sees("*/"))
            };
            depth += step;
            if step == 0 {
                self.keep_comment();
            } else {
                self.at += 2;
            }
            if depth == 0 || self.peek(0).is_none() {
                return;
            }
        }
    }

    /// The number of hashes, if the quote and hashes of a raw string begin here. The `r` before them is already
    /// part of the code.
    fn raw_string(&self) -> Option<usize> {
        let hashes = self
            .chars
            .iter()
            .skip(self.at)
            .take_while(|next| **next == '#')
            .count();
        let prefix = self.code_word();
        (matches!(prefix, "r" | "br" | "cr") && self.peek(hashes) == Some('"')).then_some(hashes)
    }

    /// The word at the end of the code so far.
    fn code_word(&self) -> &str {
        let code = self.lines.last().map_or("", |line| line.code.as_str());
        let start = code
            .rfind(|next: char| !next.is_alphanumeric() && next != '_')
            .map_or(0, |at| at + 1);
        code.get(start..).unwrap_or_default()
    }

    /// Takes a string literal, from its hashes or quote to its end. `raw` is the number of hashes.
    fn string(&mut self, raw: Option<usize>) {
        let line = self.lines.len() - 1;
        let end = format!("\"{}", "#".repeat(raw.unwrap_or(0)));
        self.at += raw.unwrap_or(0) + 1;
        let mut text = String::new();
        while !self.sees(&end) {
            let Some(next) = self.take() else { break };
            text.push(next);
            if next == '\\' && raw.is_none() {
                text.extend(self.take());
            }
        }
        self.at += end.len();
        if let Some(begun) = self.lines.get_mut(line) {
            begun.code.push_str("\"\"");
            begun.strings.push(text);
        }
    }

    /// Skips a character literal. A lifetime is code.
    fn quote(&mut self) {
        let escaped = self.peek(1) == Some('\\');
        if !escaped && self.peek(2) != Some('\'') {
            return self.keep();
        }
        self.at += if escaped { 3 } else { 2 };
        while self.take().is_some_and(|next| next != '\'') {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> Vec<String> {
        lines(source)
            .into_iter()
            .map(|line| line.code.trim().to_owned())
            .collect()
    }

    fn strings(source: &str) -> Vec<(usize, String)> {
        let numbered = lines(source).into_iter().enumerate();
        numbered
            .flat_map(|(at, line)| line.strings.into_iter().map(move |text| (at + 1, text)))
            .collect()
    }

    #[test]
    fn comments_are_separate_and_lines_kept() {
        let comments: Vec<String> = lines("a // b\n/* c /* d */\n e */ f")
            .into_iter()
            .map(|line| line.comment)
            .collect();
        assert_eq!(comments, [" b", " c  d ", " e "]);
        assert_eq!(code("a // b\n/* c /* d */\n e */ f"), ["a", "", "f"]);
        assert_eq!(code("/// \"half a string\na()"), ["", "a()"]);
    }

    #[test]
    fn strings_are_separate_from_code() {
        assert_eq!(code(r#"f("unsafe \" // x", b"y")"#), [r#"f("", b"")"#]);
        assert_eq!(
            strings("a\nf(\"one\ntwo\", \"three\")"),
            [(2, "one\ntwo".to_owned()), (3, "three".to_owned())]
        );
        assert_eq!(strings("r#\"a \" b\"# r\"c\\\" br##\"d\"##").len(), 3);
        assert_eq!(code("bar\"x\" r#type"), ["bar\"\" r#type"]);
    }

    #[test]
    fn quotes_of_characters_and_lifetimes_do_not_begin_strings() {
        assert_eq!(
            code(r#"f('"', '\'', '\u{22}') g::<'a, 'b>("x")"#),
            [r#"f(, , ) g::<'a, 'b>("")"#]
        );
    }
}

//! Python's literals, which templates of lm-evaluation-harness write for lists (`ast.literal_eval`).

use serde_json::Value;

/// Reads a list or tuple of strings and integers, in Python's or Rust's notation of strings. `None` for anything else.
pub(super) fn list(text: &str) -> Option<Vec<Value>> {
    let text = text.trim();
    let close = match text.chars().next()? {
        '[' => ']',
        '(' => ')',
        _ => return None,
    };
    let inner = text[1..].strip_suffix(close)?;
    let mut values = Vec::new();
    let mut rest = inner.trim_start();
    while !rest.is_empty() {
        let (value, after) = item(rest)?;
        values.push(value);
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after.trim_start(),
            None if rest.is_empty() => {}
            None => return None,
        }
    }
    Some(values)
}

/// The first item of a text, and the text after it.
fn item(text: &str) -> Option<(Value, &str)> {
    let quote = text.chars().next()?;
    if quote != '\'' && quote != '"' {
        let end = text.find(',').unwrap_or(text.len());
        let number: i64 = text[..end].trim().parse().ok()?;
        return Some((Value::from(number), &text[end..]));
    }
    let mut string = String::new();
    let mut rest = &text[1..];
    loop {
        let c = rest.chars().next()?;
        rest = &rest[c.len_utf8()..];
        match c {
            c if c == quote => return Some((Value::from(string), rest)),
            '\\' => {
                let (escaped, after) = escape(rest)?;
                string.push_str(&escaped);
                rest = after;
            }
            c => string.push(c),
        }
    }
}

/// The character that an escape sequence stands for, without its backslash, and the text after it.
fn escape(text: &str) -> Option<(String, &str)> {
    let c = text.chars().next()?;
    let rest = &text[c.len_utf8()..];
    let hex = |digits: &str| Some(char::from_u32(u32::from_str_radix(digits, 16).ok()?)?.into());
    let fixed = |count: usize| Some((hex(rest.get(..count)?)?, rest.get(count..)?));
    let known = |c: char| Some((c.to_string(), rest));
    match c {
        'n' => known('\n'),
        't' => known('\t'),
        'r' => known('\r'),
        '0' => known('\0'),
        'a' => known('\u{7}'),
        'b' => known('\u{8}'),
        'f' => known('\u{c}'),
        'v' => known('\u{b}'),
        '\\' | '\'' | '"' => known(c),
        '\n' => Some((String::new(), rest)),
        'x' => fixed(2),
        'U' => fixed(8),
        'u' => match rest.strip_prefix('{') {
            // As Rust writes it.
            Some(braced) => {
                let (digits, after) = braced.split_once('}')?;
                Some((hex(digits)?, after))
            }
            None => fixed(4),
        },
        // Python keeps the backslash before other characters.
        _ => Some((format!("\\{c}"), rest)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_read_as_python_reads_them() {
        for (text, expected) in [
            ("[]", json!([])),
            ("['a', \"b's\", 'c\\'d']", json!(["a", "b's", "c'd"])),
            (" ( 'a' , 3, -4, ) ", json!(["a", 3, -4])),
            (
                r#"["\u{301}\n", '\u00e9\x41\d']"#,
                json!(["\u{301}\n", "éA\\d"]),
            ),
            ("['a, b', '[c]']", json!(["a, b", "[c]"])),
        ] {
            assert_eq!(list(text).map(Value::from), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_lists() {
        for text in [
            "",
            "a",
            "[",
            "['a'",
            "['a' 'b'",
            "[a]",
            "['a']]",
            "['a'] x",
            "[1.5]",
            "['\\u{x}']",
        ] {
            assert_eq!(list(text), None, "{text}");
        }
    }
}

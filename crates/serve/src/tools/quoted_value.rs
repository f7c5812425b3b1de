//! Values whose strings are between quotes of the call format, and whose keys have no quotes: `{a:<escape>b<escape>}`.

use serde_json::Value;

use super::parser::Nesting;

/// The position at which a value at the beginning of `text` ends: at one of `ends`, outside of its brackets and strings.
/// `None` if it may continue. `examined` is the length of the part that was examined, and `nesting` its nesting.
pub(super) fn end_of_value(
    text: &str,
    quote: &str,
    ends: &[Option<char>],
    examined: &mut usize,
    nesting: &mut Nesting,
) -> Option<usize> {
    while let Some(rest) = text.get(*examined..)
        && let Some(c) = rest.chars().next()
    {
        if !nesting.is_in_text() {
            if let Some(inner) = rest.strip_prefix(quote) {
                *examined += 2 * quote.len() + inner.find(quote)?;
                continue;
            }
            if quote.starts_with(rest) {
                return None;
            }
            if nesting.is_outside() && ends.contains(&Some(c)) {
                return Some(*examined);
            }
        }
        // Only ASCII characters affect the nesting.
        if let Ok(byte) = u8::try_from(c) {
            nesting.pass(byte);
        }
        *examined += c.len_utf8();
    }
    None
}

/// The JSON of a value. A text that is no value becomes a string.
pub(super) fn json_of_quoted(text: &str, quote: &str) -> String {
    let mut json = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some((string, after)) = quoted(rest, quote) {
            json += &Value::from(string).to_string();
            rest = after;
        } else if let Some((string, after)) = json_string(rest) {
            json += string;
            rest = after;
        } else if matches!(c, '{' | '}' | '[' | ']' | ',' | ':') {
            json.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            let end = rest.find(['{', '}', '[', ']', ',', ':', '"']);
            let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
            json += &match after.starts_with(':') {
                true => Value::from(word.trim()).to_string(),
                false => word.to_owned(),
            };
            rest = after;
            // A quote within a word.
            if let Some(after) = rest.strip_prefix('"')
                && json_string(rest).is_none()
            {
                json.push('"');
                rest = after;
            }
        }
    }
    match serde_json::from_str::<Value>(&json) {
        Ok(_) => json,
        Err(_) => Value::from(text).to_string(),
    }
}

/// The string between quotes at the beginning of `text`, and the rest.
fn quoted<'a>(text: &'a str, quote: &str) -> Option<(&'a str, &'a str)> {
    text.strip_prefix(quote)?.split_once(quote)
}

/// The JSON string at the beginning of `text`, with its quotes, and the rest.
fn json_string(text: &str) -> Option<(&str, &str)> {
    let mut strings = serde_json::Deserializer::from_str(text).into_iter::<String>();
    text.starts_with('"').then(|| strings.next())??.ok()?;
    text.split_at_checked(strings.byte_offset())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_json() {
        for (text, json) in [
            ("5", "5"),
            ("true", "true"),
            ("[<q>a, \"b\"<q>,<q>]<q>]", "[\"a, \\\"b\\\"\",\"]\"]"),
            (
                "{a:<q>x<q>,b.c:{d:[1,2]}}",
                "{\"a\":\"x\",\"b.c\":{\"d\":[1,2]}}",
            ),
            (
                "{\"a\": \"x:{\", \"b\": [1, null]}",
                "{\"a\": \"x:{\", \"b\": [1, null]}",
            ),
            ("{}", "{}"),
            // No values.
            ("five", "\"five\""),
            ("{a:", "\"{a:\""),
            ("<q>a", "\"<q>a\""),
            ("a\"b", "\"a\\\"b\""),
            ("", "\"\""),
        ] {
            assert_eq!(json_of_quoted(text, "<q>"), json, "{text}");
        }
    }

    #[test]
    fn the_end_of_a_value_is_found_whatever_its_parts() {
        for (text, end) in [
            ("5,b", Some(1)),
            ("5}", Some(1)),
            ("5", None),
            ("[<q>]}<q>,{é:1}],x", Some(17)),
            ("[\"}\\\"\",2]}", Some(9)),
            ("[<q>]}", None),
            ("[<", None),
        ] {
            let (mut examined, mut nesting) = (0, Nesting::default());
            let mut found = None;
            for (start, c) in text.char_indices() {
                let text = &text[..start + c.len_utf8()];
                let ends = [Some(','), Some('}')];
                found =
                    found.or_else(|| end_of_value(text, "<q>", &ends, &mut examined, &mut nesting));
            }
            assert_eq!(found, end, "{text}");
        }
    }
}

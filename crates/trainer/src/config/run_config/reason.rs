//! One-line messages for TOML errors.

use toml::de::Error;

/// The position and the cause of an error in `text`, such as "line 2, column 7: unclosed table, expected `]`".
///
/// ```
/// use emberlm_trainer::run_config::toml_reason;
///
/// let text = "steps = 3\n[train";
/// let error = toml::from_str::<toml::Table>(text).expect_err("an unclosed table");
/// let reason = toml_reason(&error, text);
/// assert!(reason.starts_with("line 2, column 7: unclosed table"), "{reason}");
/// ```
pub fn toml_reason(error: &Error, text: &str) -> String {
    let message = error.message().trim_end().replace('\n', " ");
    let before = error.span().and_then(|span| text.get(..span.start));
    let Some(before) = before else {
        return message;
    };
    let line = before.matches('\n').count() + 1;
    let begun = before.rsplit('\n').next().unwrap_or_default();
    let column = begun.chars().count() + 1;
    format!("line {line}, column {column}: {message}")
}

/// An error of serde with the expected value in words instead of a type of Rust.
pub(super) fn in_words(message: &str) -> String {
    let message = message.trim_end().replace('\n', " ");
    let Some((before, rest)) = message.split_once("expected ") else {
        return message;
    };
    let end = rest.find(" in `").unwrap_or(rest.len());
    let (expected, place) = rest.split_at(end);
    let words = match expected {
        "usize" | "u64" | "u32" | "u16" | "u8" => "a whole number, 0 or more",
        "f64" | "f32" => "a number",
        "a boolean" => "true or false",
        name if name.starts_with("struct ") || name.contains("tagged enum ") => "a table",
        other => other,
    };
    format!("{before}expected {words}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_types_are_described() {
        for (message, words) in [
            (
                "invalid value: integer `-1`, expected usize\nin `train.steps`\n",
                "invalid value: integer `-1`, expected a whole number, 0 or more in `train.steps`",
            ),
            (
                "invalid type: string \"x\", expected struct Head in `model`",
                "invalid type: string \"x\", expected a table in `model`",
            ),
            (
                "unknown variant `a`, expected one of `b`, `c`",
                "unknown variant `a`, expected one of `b`, `c`",
            ),
            ("missing field `tokens`", "missing field `tokens`"),
        ] {
            assert_eq!(in_words(message), words);
        }
    }
}

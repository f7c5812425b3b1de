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

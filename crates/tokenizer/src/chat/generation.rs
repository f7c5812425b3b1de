//! Implements `{% generation %}…{% endgeneration %}`, with which a template marks the assistant's answers.
//!
//! These tags are an addition to Jinja by `transformers`, which implements them as a call block around a
//! function that records the position of its body in the output. The implementation here is similar: the tags
//! are rewritten to `{% call … %}`, preserving line numbers and white-space control, and the function puts a
//! mark on either side of the body.

use minijinja::value::Kwargs;
use minijinja::{Environment, Error, State, Value};

use super::marks::Marks;

/// The function that the rewritten tags call.
const FUNCTION: &str = "__emberlm_generation";
/// The variable with the mark characters.
pub(crate) const MARKS: &str = "__emberlm_marks";

/// Rewrites the tags in `source`. Returns true if there were any.
pub(crate) fn rewrite(source: &str) -> (String, bool) {
    let mut rewritten = String::with_capacity(source.len());
    let mut found = false;
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        rewritten.push_str(before);
        match read_tag(tag) {
            Some((tag, after)) => {
                found = true;
                rewritten.push_str(&tag);
                rest = after;
            }
            None => {
                rewritten.push_str("{%");
                rest = &tag[2..];
            }
        }
    }
    rewritten.push_str(rest);
    (rewritten, found)
}

/// Rewrites the tag at the beginning of `text`. Returns it with the rest of the text, or `None` for other tags.
fn read_tag(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix("{%")?;
    let word = inner.strip_prefix(['-', '+']).unwrap_or(inner).trim_start();
    let (name, new) = match word.strip_prefix("end") {
        Some(word) if word.starts_with("generation") => ("endgeneration", "endcall".to_owned()),
        _ if word.starts_with("generation") => ("generation", format!("call {FUNCTION}()")),
        _ => return None,
    };
    // Only the keyword is replaced. Line breaks within the tag remain, so line numbers do not change.
    let (before, rest) = (&inner[..inner.len() - word.len()], &word[name.len()..]);
    let control = rest.trim_start();
    let close = control.strip_prefix(['-', '+']).unwrap_or(control);
    let after = close.strip_prefix("%}")?;
    let rest = &rest[..rest.len() - after.len()];
    Some((format!("{{%{before}{new}{rest}"), after))
}

/// Registers the function.
pub(crate) fn install(env: &mut Environment<'static>) {
    env.add_function(FUNCTION, |state: &mut State, kwargs: Kwargs| {
        let caller: Value = kwargs.get("caller")?;
        let body = caller.call(state, &[])?;
        let marks = state.lookup(MARKS).unwrap_or_default();
        let marks: Vec<char> = marks.as_str().unwrap_or_default().chars().collect();
        Ok::<_, Error>(match marks[..] {
            [begin, end] => format!("{begin}{body}{end}"),
            _ => body.to_string(),
        })
    });
}

/// Returns the value of [`MARKS`].
pub(crate) fn marks_variable(marks: &Marks) -> String {
    [marks.begin, marks.end].iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_rewritten_and_keep_their_white_space_control_and_lines() {
        let (text, found) = rewrite(
            "a {%- generation -%} b {% endgeneration %}\n{%\ngeneration+%}{%+endgeneration%}",
        );
        assert!(found);
        let expected = "a {%- call __emberlm_generation() -%} b {% endcall %}\n\
                        {%\ncall __emberlm_generation()+%}{%+endcall%}";
        assert_eq!(text, expected);
    }

    #[test]
    fn other_text_is_unchanged() {
        for text in [
            "",
            "{% if generation %}x{% endif %}",
            "generation endgeneration {{ generation }}",
            "{% generations %}{%",
            "{% for x in y %}{% endfor %} {% generation",
        ] {
            assert_eq!(rewrite(text), (text.to_owned(), false));
        }
    }
}

//! The grammar of an answer that may, or must, call functions.

use std::fmt::Write;

use emberlm_generate::Grammar;

use super::channel_grammar::channel_grammar;
use super::format::{ArgumentsForm, ToolFormat, WrittenId};
use super::lark::{arguments_schema, escaped, joined, quoted};
use super::tagged_grammar::{TaggedGrammar, write_terminals};
use super::tool_use::{Function, ToolUse};

/// The grammar of an answer that may call `functions`. If a call is not required, the answer is unconstrained
/// text up to the opening marker of a call, and follows the grammar from there.
pub(crate) fn tool_grammar(
    format: &ToolFormat,
    functions: &[Function<'_>],
    tool_use: ToolUse,
) -> Grammar {
    if let Some(channels) = format.channels {
        return channel_grammar(channels, functions, tool_use);
    }
    let ToolFormat { open, next, .. } = format;
    let first = joined(&[open, format.first]);
    // Several calls need a format that separates them.
    let more = match next {
        Some(next) if tool_use.parallel => format!(" ({} call)*", quoted(next)),
        _ => String::new(),
    };
    let end = match format.end {
        "" => String::new(),
        end => format!(" {}", quoted(end)),
    };
    let start = match (tool_use.required, *open) {
        (true, _) => format!("{first} call{more}{end}"),
        (false, "") => format!("TEXT? | {first} call{more}{end}"),
        (false, _) => {
            let first = joined(&[format.first]);
            format!("TEXT? | HEAD {first} call{more}{end}")
        }
    };
    let mut lark = format!("start: {start}\ncall: ");
    for index in 0..functions.len() {
        let or = if index == 0 { "" } else { " | " };
        // Writing to a string cannot fail, here and below.
        let _ = write!(lark, "{or}function{index}");
    }
    lark.push('\n');
    let after = joined(&[format.after_arguments]);
    for (index, function) in functions.iter().enumerate() {
        let begin = beginning(format, function.name);
        let arguments = match &format.arguments {
            ArgumentsForm::Object => {
                let schema = arguments_schema(function.parameters);
                let _ = writeln!(lark, "arguments{index}: %json {schema}");
                format!("arguments{index}")
            }
            ArgumentsForm::Tagged(tags) => {
                TaggedGrammar::new(tags, function.parameters, index, &mut lark).write()
            }
        };
        let _ = writeln!(lark, "function{index}: {begin} {arguments} {after}");
    }
    match format.id {
        Some(WrittenId::NumberBeforeName(_)) => lark += "ID: /[0-9]{1,3}/\n",
        Some(WrittenId::ShortAfterName(_)) => lark += "ID: /[a-zA-Z0-9]{9}/\n",
        None => {}
    }
    if let ArgumentsForm::Tagged(tags) = &format.arguments {
        write_terminals(tags, &mut lark);
    }
    if !tool_use.required {
        lark += &text_terminals(open);
    }
    Grammar::Lark(lark)
}

/// The beginning of a call, up to its arguments.
fn beginning(format: &ToolFormat, name: &str) -> String {
    let before = format.before_arguments;
    match format.id {
        Some(WrittenId::NumberBeforeName(mark)) => {
            format!("ID {}", joined(&[mark, name, before]))
        }
        Some(WrittenId::ShortAfterName(mark)) => {
            format!("{} ID {}", joined(&[name, mark]), quoted(before))
        }
        None => joined(&[name, before]),
    }
}

/// The terminal of an answer without a call (`TEXT`) and, if text may precede the marker `open`, that of the
/// text with the marker (`HEAD`).
fn text_terminals(open: &str) -> String {
    if open.is_empty() {
        return "TEXT: /[^{](?s:.*)/\n".to_owned();
    }
    let marker = escaped(open);
    format!(
        "HEAD: /(?s:.*){marker}/ & ~/(?s:.*){marker}(?s:.+)/\n\
         TEXT: /(?s:.+)/ & ~/(?s:.*){marker}(?s:.*)/\n"
    )
}

#[cfg(test)]
mod tests {
    use crate::tools::tests::with_two_functions as written;

    use super::*;

    const HERMES: &str = "tools <tool_call>";
    const LLAMA: &str = "tools tool_calls \"parameters\": ";
    /// Mistral's formats.
    const LIST: &str = "tools [TOOL_CALLS] [";
    const MARKED: &str = "tools [TOOL_CALLS] [ARGS]";
    const WITH_ID: &str = "tools [TOOL_CALLS] [CALL_ID] [ARGS]";

    fn call(name: &str, arguments: &str) -> String {
        format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>")
    }

    #[test]
    fn text_is_unconstrained_before_the_marker() {
        for text in ["", "Hello, <tool>!\n{\"name\": 1}", "a <tool_cal", "é\n\n<"] {
            assert_eq!(written(HERMES, false, text), text);
        }
        for text in ["", "[TOOL_CALL] [INST", "[TOOL_CALLS"] {
            assert_eq!(written(LIST, false, text), text);
            assert_eq!(written(MARKED, false, text), text);
        }
        for text in ["", "Hello {\"name\"}", "\n{"] {
            assert_eq!(written(LLAMA, false, text), text);
        }
    }

    #[test]
    fn calls_follow_the_schema_of_their_function() {
        for text in [
            call("count", "{\"n\": 12}"),
            format!("I count.\n{}", call("count", "{\"n\": -3}")),
            format!("{}\n{}", call("now", "{}"), call("count", "{\"n\": 0}")),
        ] {
            assert_eq!(written(HERMES, false, &text), text);
        }
        for (template, text) in [
            (LIST, r#"[TOOL_CALLS] [{"name": "now", "arguments": {}}]"#),
            (
                LIST,
                r#"So: [TOOL_CALLS] [{"name": "now", "arguments": {}}, {"name": "count", "arguments": {"n": 5}}]"#,
            ),
            (
                MARKED,
                r#"[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]count[ARGS]{"n": 5}"#,
            ),
            (
                WITH_ID,
                r#"é[TOOL_CALLS]count[CALL_ID]a1B2c3D4e[ARGS]{"n": 5}"#,
            ),
        ] {
            assert_eq!(written(template, false, text), text);
        }
        let text = "{\"name\": \"count\", \"parameters\": {\"n\": 7}}";
        assert_eq!(written(LLAMA, false, text), text);
        assert_eq!(written(LLAMA, true, text), text);
    }

    #[test]
    fn only_calls_follow_the_opening_marker() {
        // Each of these leaves the grammar at a different position.
        for wanted in [
            "<tool_call>no".to_owned(),
            call("delete", "{}"),
            call("now", "{\"n\": 1}"),
            format!("{} and text", call("now", "{}")),
        ] {
            let text = written(HERMES, false, &wanted);
            assert_ne!(text, wanted);
            assert!(text.starts_with("<tool_call>\n{\"name\": \""), "{text}");
        }
        for (template, wanted, begin) in [
            (LIST, "[TOOL_CALLS] and text", "[TOOL_CALLS] [{\"name\": \""),
            (MARKED, "a[TOOL_CALLS]delete[ARGS]{}", "a[TOOL_CALLS]"),
            (
                WITH_ID,
                "[TOOL_CALLS]now[CALL_ID]-[ARGS]{}",
                "[TOOL_CALLS]now[CALL_ID]",
            ),
        ] {
            let text = written(template, false, wanted);
            assert_ne!(text, wanted);
            assert!(text.starts_with(begin), "{text}");
        }
        let text = written(LLAMA, false, "{\"a\": 1}");
        assert!(text.starts_with("{\"name\": \""), "{text}");
    }

    #[test]
    fn a_required_call_is_enforced() {
        for template in [HERMES, LLAMA, LIST, MARKED, WITH_ID] {
            let text = written(template, true, "I would rather not.");
            let begin = ToolFormat::of_template(template).unwrap();
            let begin = [begin.open, begin.first].concat();
            assert!(text.starts_with(&begin), "{text}");
        }
        // The end token is not allowed before a call.
        assert!(written(LLAMA, true, "").starts_with('{'));
    }
}

//! The grammar of an answer that consists of messages in channels, of which the last may, or must, be a call.

use std::fmt::Write;

use emberlm_generate::Grammar;

use super::lark::{arguments_schema, escaped, quoted};
use super::tool_use::{Function, ToolUse};
use crate::channels::{CallHeader, ChannelFormat};

/// The grammar of an answer that may call one of `functions`. If a call is not required, the answer is unconstrained text up
/// to the name of a called function. A required call may follow one message of reasoning.
///
/// The arguments end the answer: the end token of a call follows.
pub(super) fn channel_grammar(
    format: &ChannelFormat,
    functions: &[Function<'_>],
    tool_use: ToolUse,
) -> Grammar {
    let headers = || format.call_headers.iter().enumerate();
    let mut lark = match tool_use.required {
        true => {
            let calls = headers()
                .map(|(rank, header)| format!("{} call{rank}", quoted(header.before_name)));
            let calls: Vec<String> = calls.collect();
            let role = quoted(&format.message_start());
            format!("start: (PREFACE {role})? ({})\n", calls.join(" | "))
        }
        false => {
            let calls = headers().map(|(rank, _)| format!(" | HEAD{rank} call{rank}"));
            format!("start: TEXT?{}\n", calls.collect::<String>())
        }
    };
    // Writing to a string cannot fail, here and below.
    for (rank, header) in headers() {
        let calls = functions.iter().enumerate().map(|(index, function)| {
            let names = header.after_name.iter();
            let names = names.map(|after| quoted(&[function.name, after].concat()));
            let names: Vec<String> = names.collect();
            format!("({}) arguments{index}", names.join(" | "))
        });
        let calls: Vec<String> = calls.collect();
        let _ = writeln!(lark, "call{rank}: {}", calls.join(" | "));
    }
    for (index, function) in functions.iter().enumerate() {
        let schema = arguments_schema(function.parameters);
        let _ = writeln!(lark, "arguments{index}: %json {schema}");
    }
    match tool_use.required {
        true => {
            let [open, close] = format.call_preface.map(escaped);
            let _ = writeln!(
                lark,
                "PREFACE: /{open}(?s:.*){close}/ & ~/(?s:.*){close}(?s:.+)/"
            );
        }
        false => {
            let heads: Vec<String> = headers().map(|(_, header)| head(format, header)).collect();
            let any = heads.join("|");
            for (rank, head) in heads.iter().enumerate() {
                let _ = writeln!(lark, "HEAD{rank}: /{head}/ & ~/(?:{any})(?s:.+)/");
            }
            let _ = writeln!(lark, "TEXT: /(?s:.+)/ & ~/(?:{any})(?s:.*)/");
        }
    }
    Grammar::Lark(lark)
}

/// The expression of a text that ends before the name of a called function. The role of the first message is part of the
/// prompt.
fn head(format: &ChannelFormat, header: &CallHeader) -> String {
    let before_name = escaped(header.before_name);
    match header.follows_role {
        true => {
            let role = escaped(&format.message_start());
            format!("(?:(?s:.*){role})?{before_name}")
        }
        false => format!("(?s:.*){before_name}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::tools::tests;

    const TEMPLATE: &str = "tools <|start|>assistant<|channel|>analysis<|message|>";
    const ANALYSIS: &str = "<|channel|>analysis<|message|>Two? <|channel|> to=functions.x<|end|>";

    fn written(required: bool, wanted: &str) -> String {
        tests::with_two_functions(TEMPLATE, required, wanted)
    }

    /// Calls with every header.
    fn calls() -> Vec<String> {
        [
            "<|channel|>commentary to=functions.count <|constrain|>json<|message|>{\"n\": 12}",
            "<|channel|>commentary to=functions.now json<|message|>{}",
            "<|channel|>analysis to=functions.count <|constrain|>json<|message|>{\"n\": -3}",
            " to=functions.count<|channel|>commentary json<|message|>{\"n\": 0}",
            " to=functions.now<|channel|>commentary <|constrain|>json<|message|>{}",
        ]
        .map(str::to_owned)
        .into()
    }

    #[test]
    fn messages_without_calls_are_unconstrained() {
        let text = "<|start|>assistant<|channel|>final<|message|>a to=functions.now {";
        for text in [
            "",
            "Hello",
            ANALYSIS,
            " to=function",
            &[ANALYSIS, text].concat(),
        ] {
            assert_eq!(written(false, text), text);
        }
    }

    #[test]
    fn calls_follow_their_schema_with_every_header() {
        let preamble = "<|start|>assistant<|channel|>commentary<|message|>é<|end|>";
        for call in calls() {
            assert_eq!(written(false, &call), call);
            assert_eq!(written(true, &call), call);
            let reasoned = format!("{ANALYSIS}<|start|>assistant{call}");
            assert_eq!(written(false, &reasoned), reasoned);
            assert_eq!(written(true, &reasoned), reasoned);
            let announced = format!("{ANALYSIS}{preamble}<|start|>assistant{call}");
            assert_eq!(written(false, &announced), announced);
        }
    }

    #[test]
    fn only_a_function_follows_its_header() {
        for (wanted, begin) in [
            (
                "<|channel|>commentary to=functions.delete <|constrain|>json<|message|>{}",
                "<|channel|>commentary to=functions.",
            ),
            (
                " to=functions.now<|message|>{}",
                " to=functions.now<|channel|>commentary ",
            ),
            (
                "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{\"n\": 1}",
                "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}",
            ),
            (
                "<|channel|>commentary to=functions.now json<|message|>{}<|start|>",
                "<|channel|>commentary to=functions.now json<|message|>{}",
            ),
        ] {
            let text = written(false, wanted);
            assert_ne!(text, wanted);
            assert!(text.starts_with(begin), "{text}");
        }
    }

    #[test]
    fn a_required_call_follows_at_most_one_message_of_reasoning() {
        for wanted in [
            "I would rather not.",
            "<|channel|>final<|message|>No.",
            &format!("{ANALYSIS}<|start|>assistant<|channel|>final<|message|>No."),
            &[ANALYSIS, "<|start|>assistant", ANALYSIS].concat(),
        ] {
            let text = written(true, wanted);
            let begin = match wanted.starts_with(ANALYSIS) {
                true => [ANALYSIS, "<|start|>assistant"].concat(),
                false => String::new(),
            };
            let call = text.strip_prefix(&*begin).unwrap();
            assert!(call.contains("to=functions."), "{text}");
        }
    }
}

//! The table of call formats.

use crate::channels::HARMONY;

use super::format::{ArgumentsForm, ParameterTags, ToolFormat, WrittenId};

/// A format with empty fields, to derive others from.
const EMPTY: ToolFormat = ToolFormat {
    models: "",
    contains: &[],
    lacks: &[],
    open: "",
    first: "",
    next: None,
    end: "",
    id: None,
    before_arguments: "",
    arguments: ArgumentsForm::Object,
    after_arguments: "",
    short_ids: false,
    channels: None,
};

/// A JSON object between tags. Templates that do not support tools have it, too.
const HERMES: ToolFormat = ToolFormat {
    models: "Hermes 2 Pro and 3, Qwen 2.5 and 3, QwQ, SmolLM3, Granite 4, MiMo",
    contains: &["tools", "<tool_call>"],
    lacks: &["<function=", "<arg_key>", "<tool_calls>["],
    open: "<tool_call>",
    first: "\n{\"name\": \"",
    next: Some("\n<tool_call>\n{\"name\": \""),
    before_arguments: "\", \"arguments\": ",
    after_arguments: "}\n</tool_call>",
    ..EMPTY
};

/// A JSON list after a marker.
const LIST: ToolFormat = ToolFormat {
    first: "[{\"name\": \"",
    next: Some(", {\"name\": \""),
    end: "]",
    before_arguments: "\", \"arguments\": ",
    after_arguments: "}",
    ..EMPTY
};

/// A JSON list, as in Mistral models up to tokenizer version 7.
const MISTRAL_LIST: ToolFormat = ToolFormat {
    models: "Mistral, byte-level tokenizer versions 3 and 7",
    contains: &["tools", "[TOOL_CALLS]"],
    lacks: &["[ARGS]"],
    open: "[TOOL_CALLS]",
    short_ids: true,
    ..LIST
};

/// A marker before each call, as in Mistral models from tokenizer version 11 on.
const MISTRAL_MARKED: ToolFormat = ToolFormat {
    models: "Mistral, tokenizer version 13",
    contains: &["tools", "[TOOL_CALLS]", "[ARGS]"],
    open: "[TOOL_CALLS]",
    next: Some("[TOOL_CALLS]"),
    before_arguments: "[ARGS]",
    short_ids: true,
    ..EMPTY
};

/// Parameters between tags, each value on lines between them.
const QWEN_CODER: ToolFormat = ToolFormat {
    models: "Qwen3-Coder, Qwen 3.5, Nemotron 3 Nano, Step 3.5",
    contains: &["tools", "<tool_call>", "<function=", "<parameter="],
    open: "<tool_call>",
    first: "\n<function=",
    next: Some("\n<tool_call>\n<function="),
    before_arguments: ">\n",
    arguments: ArgumentsForm::Tagged(ParameterTags {
        before_name: "<parameter=",
        after_name: ">\n",
        quote: "",
        after_value: "\n</parameter>\n",
        separator: "",
    }),
    after_arguments: "</function>\n</tool_call>",
    ..EMPTY
};

/// Parameters as pairs of a key and a value.
const GLM: ToolFormat = ToolFormat {
    models: "GLM 4.5 and 4.6",
    contains: &["tools", "<tool_call>", "<arg_key>"],
    open: "<tool_call>",
    next: Some("\n<tool_call>"),
    before_arguments: "\n",
    arguments: ArgumentsForm::Tagged(ParameterTags {
        before_name: "<arg_key>",
        after_name: "</arg_key>\n<arg_value>",
        quote: "",
        after_value: "</arg_value>\n",
        separator: "",
    }),
    after_arguments: "</tool_call>",
    ..EMPTY
};

/// Parameters as in an object whose strings are between special tokens.
const FUNCTION_GEMMA: ToolFormat = ToolFormat {
    models: "FunctionGemma",
    contains: &["tools", "<start_function_call>", "<escape>"],
    open: "<start_function_call>",
    first: "call:",
    next: Some("<start_function_call>call:"),
    before_arguments: "{",
    arguments: ArgumentsForm::Tagged(GEMMA_PARAMETERS),
    after_arguments: "}<end_function_call>",
    ..EMPTY
};

const GEMMA_PARAMETERS: ParameterTags = ParameterTags {
    before_name: "",
    after_name: ":",
    quote: "<escape>",
    after_value: "",
    separator: ",",
};

/// The format of calls if the chat template does not support tools, or only in an unsupported format.
pub(crate) const BUILT_IN: &ToolFormat = &HERMES;

/// All formats. A template has the first one that matches.
pub(crate) const FORMATS: &[ToolFormat] = &[
    HERMES,
    QWEN_CODER,
    ToolFormat {
        models: "GLM 4.7",
        contains: &["tools", "<tool_call>", "</arg_key><arg_value>"],
        next: Some("<tool_call>"),
        before_arguments: "",
        arguments: ArgumentsForm::Tagged(ParameterTags {
            before_name: "<arg_key>",
            after_name: "</arg_key><arg_value>",
            quote: "",
            after_value: "</arg_value>",
            separator: "",
        }),
        ..GLM
    },
    GLM,
    ToolFormat {
        models: "Apriel 1.5 and 1.6",
        contains: &["tools", "<tool_calls>["],
        open: "<tool_calls>",
        end: "]</tool_calls>",
        ..LIST
    },
    ToolFormat {
        models: "Seed-OSS",
        contains: &["tools", "<seed:tool_call>"],
        open: "<seed:tool_call>",
        next: Some("\n<seed:tool_call>\n<function="),
        arguments: ArgumentsForm::Tagged(ParameterTags {
            before_name: "<parameter=",
            after_name: ">",
            quote: "",
            after_value: "</parameter>\n",
            separator: "",
        }),
        after_arguments: "</function>\n</seed:tool_call>",
        ..QWEN_CODER
    },
    ToolFormat {
        models: "MiniMax-M2",
        contains: &["tools", "<minimax:tool_call>"],
        open: "<minimax:tool_call>",
        first: "\n<invoke name=\"",
        next: Some("<invoke name=\""),
        end: "</minimax:tool_call>",
        before_arguments: "\">\n",
        arguments: ArgumentsForm::Tagged(ParameterTags {
            before_name: "<parameter name=\"",
            after_name: "\">",
            quote: "",
            after_value: "</parameter>\n",
            separator: "",
        }),
        after_arguments: "</invoke>\n",
        ..EMPTY
    },
    FUNCTION_GEMMA,
    ToolFormat {
        models: "Gemma 4",
        contains: &["tools", "<|tool_call>", "<tool_call|>"],
        open: "<|tool_call>",
        next: Some("<|tool_call>call:"),
        arguments: ArgumentsForm::Tagged(ParameterTags {
            quote: "<|\"|>",
            ..GEMMA_PARAMETERS
        }),
        after_arguments: "}<tool_call|>",
        ..FUNCTION_GEMMA
    },
    ToolFormat {
        models: "Command R7B, Command A",
        contains: &["tools", "<|START_ACTION|>", "tool_call_id"],
        open: "<|START_ACTION|>",
        first: "[\n    {\"tool_call_id\": \"",
        next: Some(",\n    {\"tool_call_id\": \""),
        end: "\n]<|END_ACTION|>",
        id: Some(WrittenId::NumberBeforeName("\", \"tool_name\": \"")),
        before_arguments: "\", \"parameters\": ",
        after_arguments: "}",
        ..EMPTY
    },
    // A marker before each call.
    ToolFormat {
        models: "Phi-4-mini, template of llama.cpp",
        contains: &["tools", "<|tool_call|>", "<|/tool_call|>"],
        open: "<|tool_call|>",
        first: "{\"name\": \"",
        next: Some("<|tool_call|>{\"name\": \""),
        before_arguments: "\", \"arguments\": ",
        after_arguments: "}<|/tool_call|>",
        ..EMPTY
    },
    ToolFormat {
        models: "Granite 3",
        contains: &["tools", "<|tool_call|>"],
        open: "<|tool_call|>",
        ..LIST
    },
    ToolFormat {
        models: "Phi-4-mini, template of vLLM",
        contains: &["tools", "functools["],
        open: "functools",
        ..LIST
    },
    // The end of a message with a call ends the answer.
    ToolFormat {
        models: "gpt-oss",
        contains: &["tools", HARMONY.contains[0], HARMONY.contains[1]],
        open: HARMONY.call_headers[0].before_name,
        before_arguments: HARMONY.call_headers[0].after_name[0],
        channels: Some(&HARMONY),
        ..EMPTY
    },
    // An answer that begins with a brace is a call.
    ToolFormat {
        models: "Llama 3.1 to 3.3",
        contains: &["tools", "tool_calls", "\"parameters\": "],
        lacks: &["<tool_call>", "[TOOL_CALLS]"],
        first: "{\"name\": \"",
        before_arguments: "\", \"parameters\": ",
        after_arguments: "}",
        ..EMPTY
    },
    // Each call has an identifier.
    ToolFormat {
        models: "Mistral, tokenizer version 11",
        contains: &["tools", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"],
        id: Some(WrittenId::ShortAfterName("[CALL_ID]")),
        ..MISTRAL_MARKED
    },
    MISTRAL_MARKED,
    ToolFormat {
        models: "Mistral, tokenizer version 3 with SentencePiece",
        contains: &["tools", "[TOOL_CALLS] ["],
        first: " [{\"name\": \"",
        ..MISTRAL_LIST
    },
    MISTRAL_LIST,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The models of a template's format.
    fn models(source: &str) -> Option<&'static str> {
        ToolFormat::of_template(source).map(ToolFormat::models)
    }

    #[test]
    fn templates_have_the_expected_format() {
        let hermes = "{% if tools %}…<tool_call>\n{\"name\": …}{% endif %}";
        let llama = "{% if tools %}{\"name\": n, \"parameters\": p}{{ message.tool_calls }}";
        for (source, expected) in [
            (hermes.to_owned(), Some("Hermes")),
            (llama.to_owned(), Some("Llama")),
            (
                format!("{hermes}<function=name><parameter=a>"),
                Some("Qwen3-Coder"),
            ),
            (format!("{hermes}<function=name>"), None),
            (
                format!("{hermes}<arg_key>k</arg_key>\n<arg_value>"),
                Some("GLM 4.5"),
            ),
            (
                format!("{hermes}<arg_key>k</arg_key><arg_value>"),
                Some("GLM 4.7"),
            ),
            (
                "{{ tools }}<tool_call></tool_call>'<tool_calls>['".to_owned(),
                Some("Apriel"),
            ),
            (
                "{{ tools }}'<seed:tool_call>'<function=a>".to_owned(),
                Some("Seed-OSS"),
            ),
            (
                "{{ tools }}'<minimax:tool_call>'".to_owned(),
                Some("MiniMax"),
            ),
            (
                "{{ tools }}<start_function_call>call:<escape>".to_owned(),
                Some("FunctionGemma"),
            ),
            (
                "{{ tools }}'<|tool_call>call:' '}<tool_call|>'".to_owned(),
                Some("Gemma 4"),
            ),
            (
                "{{ tools }}<|START_ACTION|>[\"tool_call_id\"".to_owned(),
                Some("Command R7B"),
            ),
            (
                "{{ tools }}<|tool_call|>{}<|/tool_call|>".to_owned(),
                Some("Phi-4-mini, template of llama"),
            ),
            (
                "{{ tools }}respond with <|tool_call|> and a list".to_owned(),
                Some("Granite 3"),
            ),
            (
                "{{ tools }}functools[{\"name\": …}]".to_owned(),
                Some("Phi-4-mini, template of vLLM"),
            ),
            (
                "{{ tools }}<|start|>assistant<|channel|>analysis<|message|>".to_owned(),
                Some("gpt-oss"),
            ),
            ("{{ tools }}<|channel|>analysis<|message|>".to_owned(), None),
            ("{{ messages }}".to_owned(), None),
            ("<tool_call> without the variable".to_owned(), None),
            // Tokenizer versions 3 (both kinds), 11 and 13.
            (
                "{{ tools }}[TOOL_CALLS] [".to_owned(),
                Some("Mistral, tokenizer version 3"),
            ),
            (
                "{{ tools }}[TOOL_CALLS][".to_owned(),
                Some("Mistral, byte-level"),
            ),
            (
                "{{ tools }}[TOOL_CALLS]n[CALL_ID]i[ARGS]".to_owned(),
                Some("Mistral, tokenizer version 11"),
            ),
            (
                "{{ tools }}[TOOL_CALLS]n[ARGS]".to_owned(),
                Some("Mistral, tokenizer version 13"),
            ),
        ] {
            let found = models(&source);
            match (found, expected) {
                (Some(found), Some(expected)) => {
                    assert!(found.starts_with(expected), "{source}: {found}");
                }
                (found, expected) => assert_eq!(found, expected, "{source}"),
            }
        }
    }
}

//! The formats in which models write function calls.

/// A format of function calls: `open first CALL`, then any number of `next CALL`, then `end`. A CALL is a
/// function's name, `before_arguments`, the arguments and `after_arguments`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ToolFormat {
    /// The models with this format.
    models: &'static str,
    /// Texts that a chat template of this format contains.
    contains: &'static [&'static str],
    /// Texts that such a template does not contain.
    lacks: &'static [&'static str],
    /// The marker that ends the text before calls. Empty if a call is the whole answer.
    pub open: &'static str,
    /// The text between the marker and the name of the first function.
    pub first: &'static str,
    /// The text between two calls. `None` if there can be only one call.
    pub next: Option<&'static str>,
    /// The text after the last call.
    pub end: &'static str,
    /// The marker before a call id of nine letters and digits, which follows the name. `None` if there is no
    /// id.
    pub id_marker: Option<&'static str>,
    /// The text between a function's name, or the id, and the arguments.
    pub before_arguments: &'static str,
    /// The text after the arguments.
    pub after_arguments: &'static str,
    /// True if templates accept only call ids of nine letters and digits.
    pub short_ids: bool,
}

/// A format with empty fields, to derive others from.
const EMPTY: ToolFormat = ToolFormat {
    models: "",
    contains: &[],
    lacks: &[],
    open: "",
    first: "",
    next: None,
    end: "",
    id_marker: None,
    before_arguments: "",
    after_arguments: "",
    short_ids: false,
};

/// Calls as a JSON list, as in Mistral models up to tokenizer version 7.
const MISTRAL_LIST: ToolFormat = ToolFormat {
    models: "Mistral, byte-level tokenizer versions 3 and 7",
    contains: &["tools", "[TOOL_CALLS]"],
    lacks: &["[ARGS]"],
    open: "[TOOL_CALLS]",
    first: "[{\"name\": \"",
    next: Some(", {\"name\": \""),
    end: "]",
    before_arguments: "\", \"arguments\": ",
    after_arguments: "}",
    short_ids: true,
    ..EMPTY
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

/// All formats. A template has the first one that matches.
pub(crate) const FORMATS: [ToolFormat; 6] = [
    // Qwen3-Coder has the same marker around XML.
    ToolFormat {
        models: "Hermes 2 Pro and 3, Qwen 2.5 and 3, SmolLM3",
        contains: &["tools", "<tool_call>"],
        lacks: &["<function="],
        open: "<tool_call>",
        first: "\n{\"name\": \"",
        next: Some("\n<tool_call>\n{\"name\": \""),
        before_arguments: "\", \"arguments\": ",
        after_arguments: "}\n</tool_call>",
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
        id_marker: Some("[CALL_ID]"),
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

impl ToolFormat {
    /// The format of a chat template. `None` if the template does not support tools, or only in an
    /// unsupported format.
    pub fn of_template(source: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| {
            let contains = |text: &&str| source.contains(text);
            format.contains.iter().all(contains) && !format.lacks.iter().any(contains)
        })
    }

    /// The models with this format.
    pub fn models(&self) -> &'static str {
        self.models
    }

    /// The condition for a chat template, as Markdown.
    pub fn condition(&self) -> String {
        // Every template with calls reads the variable `tools`.
        let marks = self.contains.iter().filter(|text| **text != "tools");
        let contains: Vec<String> = marks.map(|text| format!("`{text}`")).collect();
        let lacks: Vec<String> = self.lacks.iter().map(|text| format!("`{text}`")).collect();
        match lacks.is_empty() {
            true => contains.join(", "),
            false => format!("{}; not {}", contains.join(", "), lacks.join(", ")),
        }
    }

    /// An answer with a call of `f`, or two calls if several are possible.
    pub fn example(&self) -> String {
        let call = |name: &str| {
            let id = self
                .id_marker
                .map(|marker| format!("{marker}{}", "0".repeat(9)));
            let id = id.unwrap_or_default();
            format!(
                "{name}{id}{}{{…}}{}",
                self.before_arguments, self.after_arguments
            )
        };
        let mut example = format!("{}{}{}", self.open, self.first, call("f"));
        if let Some(next) = self.next {
            example += &format!("{next}{}", call("g"));
        }
        example + self.end
    }

    /// Returns true if `token` is a marker of calls, which is part of an answer's text even if it is a special token.
    pub fn is_marker(&self, token: &str) -> bool {
        let markup = [self.open, self.before_arguments, self.after_arguments];
        let markup = markup.into_iter().chain(self.id_marker);
        !token.is_empty() && markup.map(str::trim).any(|text| text.contains(token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_have_the_expected_format() {
        let hermes = "{% if tools %}…<tool_call>\n{\"name\": …}{% endif %}";
        let llama = "{% if tools %}{\"name\": n, \"parameters\": p}{{ message.tool_calls }}";
        let coder = format!("{hermes}<function=name>");
        fn first(source: &str) -> Option<(&'static str, &'static str, Option<&'static str>)> {
            let format = ToolFormat::of_template(source);
            format.map(|format| (format.open, format.first, format.id_marker))
        }
        fn found(source: &str) -> Option<(&'static str, String, Option<&'static str>)> {
            first(source).map(|(open, first, id)| (open, first.to_owned(), id))
        }
        let name = "{\"name\": \"";
        let opened = |open, before: &str| Some((open, format!("{before}{name}"), None));
        assert_eq!(found(hermes), opened("<tool_call>", "\n"));
        assert_eq!(found(llama), opened("", ""));
        assert_eq!(first(&coder), None);
        assert_eq!(first("{{ messages }}"), None);
        assert_eq!(first("<tool_call> without the variable"), None);
        // Mistral's formats, of tokenizer versions 3 (both kinds), 11 and 13.
        let mistral = |written: &str| format!("{{% if tools %}}[AVAILABLE_TOOLS]{written}");
        let list = "[TOOL_CALLS]";
        assert_eq!(found(&mistral("[TOOL_CALLS] [")), opened(list, " ["));
        assert_eq!(found(&mistral("[TOOL_CALLS][")), opened(list, "["));
        assert_eq!(
            first(&mistral("[TOOL_CALLS]{{ name }}[CALL_ID]{{ id }}[ARGS]")),
            Some((list, "", Some("[CALL_ID]")))
        );
        assert_eq!(
            first(&mistral("[TOOL_CALLS]{{ name }}[ARGS]")),
            Some((list, "", None))
        );
    }

    #[test]
    fn markers_are_recognized() {
        let format = ToolFormat::of_template("tools <tool_call>").unwrap();
        for (token, is_marker) in [
            ("<tool_call>", true),
            ("</tool_call>", true),
            ("<s>", false),
        ] {
            assert_eq!(format.is_marker(token), is_marker, "{token}");
        }
        let format = ToolFormat::of_template("tools [TOOL_CALLS] [CALL_ID] [ARGS]").unwrap();
        for token in ["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"] {
            assert!(format.is_marker(token), "{token}");
        }
        assert!(!format.is_marker("[INST]"));
    }
}

//! The formats in which models write calls of functions.

/// How a model writes a call: `open`, `{"name": "…", "<arguments>": {…}}`, `close`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ToolFormat {
    /// Texts that a chat template of this format contains.
    contains: &'static [&'static str],
    /// Texts that it does not contain.
    lacks: &'static [&'static str],
    /// What stands before a call; empty where a call is the whole answer.
    pub open: &'static str,
    /// The name of the field with the arguments.
    pub arguments: &'static str,
    /// What stands after a call.
    pub close: &'static str,
    /// The terminals of an answer without a call (`TEXT`) and, where text may come before a call, of that text with the
    /// opening marker (`HEAD`), in Lark's syntax.
    pub terminals: &'static str,
}

/// All formats. A template is of the first one that fits.
const FORMATS: [ToolFormat; 2] = [
    // Hermes 2 Pro and 3, Qwen 2.5 and 3, SmolLM3. Qwen3-Coder has the same marker around XML.
    ToolFormat {
        contains: &["tools", "<tool_call>"],
        lacks: &["<function="],
        open: "<tool_call>",
        arguments: "arguments",
        close: "\n</tool_call>",
        terminals: "HEAD: /(?s:.*)<tool_call>/ & ~/(?s:.*)<tool_call>(?s:.+)/\n\
                    TEXT: /(?s:.+)/ & ~/(?s:.*)<tool_call>(?s:.*)/\n",
    },
    // Llama 3.1, 3.2 and 3.3: an answer that begins with a brace is a call.
    ToolFormat {
        contains: &["tools", "tool_calls", "\"parameters\": "],
        lacks: &["<tool_call>"],
        open: "",
        arguments: "parameters",
        close: "",
        terminals: "TEXT: /[^{](?s:.*)/\n",
    },
];

impl ToolFormat {
    /// The format of a chat template; `None` for one that writes no tools, or in a format that is not supported.
    pub fn of_template(source: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| {
            let contains = |text: &&str| source.contains(text);
            format.contains.iter().all(contains) && !format.lacks.iter().any(contains)
        })
    }

    /// The text between the opening marker and a function's name.
    pub fn before_name(&self) -> &'static str {
        match self.open {
            "" => "{\"name\": \"",
            _ => "\n{\"name\": \"",
        }
    }

    /// The text between a function's name and its arguments.
    pub fn before_arguments(&self) -> String {
        format!("\", \"{}\": ", self.arguments)
    }

    /// The text after the arguments.
    pub fn after_arguments(&self) -> String {
        format!("}}{}", self.close)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_of_the_format_that_it_contains() {
        let hermes = "{% if tools %}…<tool_call>\n{\"name\": …}{% endif %}";
        let llama = "{% if tools %}{\"name\": n, \"parameters\": p}{{ message.tool_calls }}";
        let coder = format!("{hermes}<function=name>");
        let arguments =
            |source: &str| ToolFormat::of_template(source).map(|format| format.arguments);
        assert_eq!(arguments(hermes), Some("arguments"));
        assert_eq!(arguments(llama), Some("parameters"));
        assert_eq!(arguments(&coder), None);
        assert_eq!(arguments("{{ messages }}"), None);
        assert_eq!(arguments("<tool_call> without the variable"), None);
    }
}

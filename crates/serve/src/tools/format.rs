//! Formats of function calls, as data.

use serde_json::{Map, Value};

use super::formats::FORMATS;
use super::json::written_json;
use crate::channels::ChannelFormat;

/// A format of function calls: `open first CALL`, then any number of `next CALL`, then `end`. A CALL is a
/// function's name, `before_arguments`, the arguments and `after_arguments`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ToolFormat {
    /// The models with this format.
    pub(super) models: &'static str,
    /// Texts that a chat template of this format contains.
    pub(super) contains: &'static [&'static str],
    /// Texts that such a template does not contain.
    pub(super) lacks: &'static [&'static str],
    /// The marker that ends the text before calls. Empty if a call is the whole answer.
    pub open: &'static str,
    /// The text between the marker and the first call.
    pub first: &'static str,
    /// The text between two calls. `None` if there can be only one call.
    pub next: Option<&'static str>,
    /// The text after the last call.
    pub end: &'static str,
    /// The identifier that the model writes with each call.
    pub id: Option<WrittenId>,
    /// The text between a function's name, or the identifier after it, and the arguments.
    pub before_arguments: &'static str,
    /// The form of the arguments.
    pub arguments: ArgumentsForm,
    /// The text after the arguments.
    pub after_arguments: &'static str,
    /// True if templates accept only call ids of nine letters and digits.
    pub short_ids: bool,
    /// The format of answers that consist of messages in channels. Such a message has at most one call, whose preferred header
    /// is `open`, the name and `before_arguments`.
    pub channels: Option<&'static ChannelFormat>,
}

/// An identifier that is part of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenId {
    /// A number before the function's name, and the text between the two.
    NumberBeforeName(&'static str),
    /// Nine letters and digits after the function's name, and the text between the two.
    ShortAfterName(&'static str),
}

/// The form of a call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentsForm {
    /// A JSON object.
    Object,
    /// A list of parameters between tags.
    Tagged(ParameterTags),
}

/// The tags of parameters: `before_name NAME after_name VALUE after_value`, separated by `separator`. A value is JSON,
/// except that a string is its text between two `quote`. With quotes, objects within values have the form of the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParameterTags {
    pub before_name: &'static str,
    pub after_name: &'static str,
    /// The text around strings. If it is empty, the parameter's type decides if a value is a text or JSON.
    pub quote: &'static str,
    pub after_value: &'static str,
    pub separator: &'static str,
}

impl WrittenId {
    /// The text between the identifier and the name.
    pub fn mark(self) -> &'static str {
        match self {
            Self::NumberBeforeName(mark) | Self::ShortAfterName(mark) => mark,
        }
    }
}

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
        let contains: Vec<String> = marks.map(|text| code(text)).collect();
        let lacks: Vec<String> = self.lacks.iter().map(|text| code(text)).collect();
        match lacks.is_empty() {
            true => contains.join(", "),
            false => format!("{}; not {}", contains.join(", "), lacks.join(", ")),
        }
    }

    /// An answer with a call of `f`, or two calls if several are possible.
    pub fn example(&self) -> String {
        let arguments = match &self.arguments {
            ArgumentsForm::Object => "{…}".to_owned(),
            ArgumentsForm::Tagged(tags) => {
                let text = format!("{}text{}", tags.quote, tags.quote);
                let tagged = |(name, value): (&str, &str)| tags.written(name, value);
                let parameters = [("a", &*text), ("b", "5")].map(tagged);
                parameters.join(tags.separator)
            }
        };
        let calls = [("f", &*arguments), ("g", &*arguments)];
        let count = if self.next.is_some() { 2 } else { 1 };
        self.joined(&calls[..count])
    }

    /// The text of calls, as templates of this format write them. The arguments are JSON objects.
    pub fn written(&self, calls: &[(&str, &Map<String, Value>)]) -> String {
        let written = calls.iter().map(|(name, arguments)| {
            let arguments = match &self.arguments {
                ArgumentsForm::Object => written_json(*arguments),
                ArgumentsForm::Tagged(tags) => {
                    let parameters = arguments
                        .iter()
                        .map(|(name, value)| tags.written(name, &tags.value(value)));
                    let parameters: Vec<String> = parameters.collect();
                    parameters.join(tags.separator)
                }
            };
            (*name, arguments)
        });
        let written: Vec<(&str, String)> = written.collect();
        let calls: Vec<(&str, &str)> = written
            .iter()
            .map(|(name, text)| (*name, &**text))
            .collect();
        self.joined(&calls)
    }

    /// The text of calls whose arguments are already text.
    pub(super) fn joined(&self, calls: &[(&str, &str)]) -> String {
        let mut text = self.open.to_owned();
        for (number, (name, arguments)) in calls.iter().enumerate() {
            text += if number == 0 {
                self.first
            } else {
                self.next.unwrap_or_default()
            };
            text += &match self.id {
                Some(WrittenId::NumberBeforeName(mark)) => format!("{number}{mark}{name}"),
                Some(WrittenId::ShortAfterName(mark)) => format!("{name}{mark}{number:09}"),
                None => (*name).to_owned(),
            };
            for part in [self.before_arguments, arguments, self.after_arguments] {
                text += part;
            }
        }
        text + self.end
    }

    /// Returns true if `token` is a marker of calls, which is part of an answer's text even if it is a special token.
    pub fn is_marker(&self, token: &str) -> bool {
        let mut markup = vec![self.open, self.first, self.end];
        markup.extend([self.before_arguments, self.after_arguments]);
        markup.extend(self.next);
        markup.extend(self.id.map(WrittenId::mark));
        if let ArgumentsForm::Tagged(tags) = &self.arguments {
            markup.extend([tags.before_name, tags.after_name, tags.quote]);
            markup.extend([tags.after_value, tags.separator]);
        }
        let mut markup = markup.into_iter();
        !token.trim().is_empty() && markup.any(|text| text.contains(token))
    }
}

impl ParameterTags {
    /// A parameter whose value is written.
    fn written(&self, name: &str, value: &str) -> String {
        let [before, after] = [self.before_name, self.after_name];
        format!("{before}{name}{after}{value}{}", self.after_value)
    }

    /// A value: JSON, except for strings. If those have quotes, lists and objects have them, too, and keys have none.
    fn value(&self, value: &Value) -> String {
        let list = |items: Vec<String>| items.join(self.separator);
        match value {
            Value::String(text) => format!("{}{text}{}", self.quote, self.quote),
            Value::Array(items) if !self.quote.is_empty() => {
                format!(
                    "[{}]",
                    list(items.iter().map(|item| self.value(item)).collect())
                )
            }
            Value::Object(fields) if !self.quote.is_empty() => {
                let fields = fields.iter();
                let fields = fields.map(|(name, value)| self.written(name, &self.value(value)));
                format!("{{{}}}", list(fields.collect()))
            }
            value => written_json(value),
        }
    }

    /// True if a parameter of this name can be written and read back.
    pub fn can_name(&self, name: &str) -> bool {
        let is_plain =
            |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$' | '@' | ' ');
        !name.is_empty() && name.trim() == name && name.chars().all(is_plain)
    }
}

/// A text as code in Markdown.
fn code(text: &str) -> String {
    format!("`{text}`")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn markers_are_recognized() {
        let format = ToolFormat::of_template("tools <tool_call>").unwrap();
        for (token, is_marker) in [
            ("<tool_call>", true),
            ("</tool_call>", true),
            ("<s>", false),
            ("\n", false),
        ] {
            assert_eq!(format.is_marker(token), is_marker, "{token}");
        }
        let format = ToolFormat::of_template("tools [TOOL_CALLS] [CALL_ID] [ARGS]").unwrap();
        for token in ["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"] {
            assert!(format.is_marker(token), "{token}");
        }
        assert!(!format.is_marker("[INST]"));
        let format = ToolFormat::of_template("tools <start_function_call> <escape>").unwrap();
        for token in ["<start_function_call>", "<escape>", "<end_function_call>"] {
            assert!(format.is_marker(token), "{token}");
        }
    }

    #[test]
    fn calls_are_written_with_spaces_as_templates_write_them() {
        let format = ToolFormat::of_template("tools <tool_call>").unwrap();
        let arguments = json!({ "a": [1, { "b": "é" }], "c": "x\"" });
        let arguments = arguments.as_object().unwrap();
        assert_eq!(
            format.written(&[("f", arguments)]),
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": \"é\"}], \"c\": \"x\\\"\"}}\n</tool_call>"
        );
    }
}

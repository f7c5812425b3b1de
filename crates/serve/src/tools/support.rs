//! The ways in which functions, calls and results reach a model that converses.

use super::format::ToolFormat;
use super::formats::BUILT_IN;

/// The way in which functions, calls and results reach a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolSupport {
    /// The chat template writes functions and results, and calls in this format.
    Template(&'static ToolFormat),
    /// The chat template writes functions and results. Calls are written into the text of messages in this format, which
    /// the template does not write.
    TemplateWithoutCalls(&'static ToolFormat),
    /// Functions, calls and results are written into the text of messages.
    BuiltIn,
}

impl ToolSupport {
    /// The support of a chat template.
    pub fn of_template(source: &str) -> Self {
        match ToolFormat::of_template(source) {
            Some(format) if source.contains("tool_calls") => Self::Template(format),
            Some(format) => Self::TemplateWithoutCalls(format),
            None => Self::BuiltIn,
        }
    }

    /// The format of calls in answers.
    pub fn format(self) -> &'static ToolFormat {
        match self {
            Self::Template(format) | Self::TemplateWithoutCalls(format) => format,
            Self::BuiltIn => BUILT_IN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_has_a_format() {
        let granite = "{{ tools }}<|tool_call|>{{ messages }}";
        let support = ToolSupport::of_template(granite);
        assert!(matches!(support, ToolSupport::TemplateWithoutCalls(_)));
        let hermes = "{{ tools }}<tool_call>{{ message.tool_calls }}";
        let support = ToolSupport::of_template(hermes);
        assert!(matches!(support, ToolSupport::Template(_)));
        // `tools` in an unsupported format.
        for source in [
            "{{ messages }}",
            "{{ tools }}<call>{{ message.tool_calls }}",
        ] {
            assert_eq!(ToolSupport::of_template(source), ToolSupport::BuiltIn);
        }
        assert_eq!(ToolSupport::BuiltIn.format(), BUILT_IN);
    }
}

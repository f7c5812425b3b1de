//! Splits an answer into reasoning, text and calls of functions during generation.

use emberlm_tokenizer::Tokenizer;
use emberlm_tokenizer::chat::ChatTemplate;

use crate::answer_delta::AnswerDelta;
use crate::channels::ChannelParser;
use crate::reasoning::{Reasoning, ReasoningParser};
use crate::tools::{CallFormat, ToolCallParser};

/// The parser of one answer during generation.
///
/// ```
/// use emberlm_serve::{AnswerDelta, AnswerParser};
/// use emberlm_tokenizer::chat::{ChatEncoder, ChatMessage, ChatTemplate};
/// use emberlm_tokenizer::{Tokenizer, TokenizerKind};
///
/// // The template has the closing tag of the reasoning, and ends the prompt with the opening one.
/// let source = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}\n{% endfor %}<think>\n";
/// let tokenizer = Tokenizer::builtin(TokenizerKind::Byte)?;
/// let encoder = ChatEncoder::new(ChatTemplate::parse("example", source)?, &tokenizer);
/// let prompt = encoder.prompt(&ChatMessage::record(&[ChatMessage::user("Is 2 + 2 = 4?")]))?;
///
/// let mut parser = AnswerParser::for_prompt(encoder.template(), &tokenizer, &prompt);
/// assert_eq!(parser.push("Sure.\n</th"), [AnswerDelta::Reasoning("Sure.".to_owned())]);
/// assert_eq!(parser.push("ink>\n\nYes."), [AnswerDelta::Text("Yes.".to_owned())]);
/// assert!(parser.finish().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnswerParser {
    parser: Parser,
    before_constraint: &'static [&'static str],
}

#[derive(Clone, Debug)]
enum Parser {
    /// Reasoning and calls between their own markers.
    Marked {
        reasoning: Option<ReasoningParser>,
        tools: Option<ToolCallParser>,
    },
    /// Messages in channels.
    Channels(ChannelParser),
}

impl AnswerParser {
    /// Creates the parser of an answer with `reasoning` and with calls in the format `tools`. Without one of them, such parts
    /// belong to the text; calls in channels belong to the reasoning.
    pub(crate) fn new(reasoning: Option<Reasoning>, tools: Option<CallFormat>) -> Self {
        Self::with_calls(reasoning, tools.is_some(), tools)
    }

    /// Creates the parser of the answer to `prompt`, a conversation without functions that `template` has written. Calls in
    /// channels, which such an answer can have by mistake, are deltas; other calls are text.
    pub fn for_prompt(template: &ChatTemplate, tokenizer: &Tokenizer, prompt: &[u32]) -> Self {
        let bytes = |id| tokenizer.decode_bytes(&[id]).unwrap_or_default();
        let reasoning = Reasoning::of_prompt(template.source(), prompt, bytes);
        Self::with_calls(reasoning, true, None)
    }

    /// Creates the parser of an answer that `may_call` functions in channels, or calls them in the format `tools`.
    fn with_calls(reasoning: Option<Reasoning>, may_call: bool, tools: Option<CallFormat>) -> Self {
        let before = reasoning.map(|reasoning| reasoning.before_constraint(tools.is_some()));
        let channels = reasoning.and_then(|reasoning| {
            let channels = reasoning.format.channels?;
            Some((channels, reasoning.is_begun))
        });
        Self {
            before_constraint: before.unwrap_or_default(),
            parser: match channels {
                Some((channels, is_begun)) => {
                    Parser::Channels(ChannelParser::new(channels, is_begun, may_call))
                }
                None => Parser::Marked {
                    reasoning: reasoning.map(ReasoningParser::new),
                    tools: tools.map(ToolCallParser::new),
                },
            },
        }
    }

    /// The texts after the first of which a constraint of the text begins, for
    /// [`Constraint::after`](emberlm_generate::Constraint::after). Empty if it begins with the first token.
    pub fn before_constraint(&self) -> &'static [&'static str] {
        self.before_constraint
    }

    /// Returns true if the answer is text only.
    pub(crate) fn is_text(&self) -> bool {
        matches!(
            self.parser,
            Parser::Marked {
                reasoning: None,
                tools: None
            }
        )
    }

    /// Parses the next text of the answer. Text that may belong to a marker is held back. Deltas are not empty.
    pub fn push(&mut self, text: &str) -> Vec<AnswerDelta> {
        match &mut self.parser {
            Parser::Channels(parser) => parser.push(text),
            Parser::Marked { reasoning, tools } => {
                let split = match reasoning {
                    None if text.is_empty() => Vec::new(),
                    None => vec![AnswerDelta::Text(text.to_owned())],
                    Some(parser) => parser.push(text),
                };
                split_calls(split, tools.as_mut())
            }
        }
    }

    /// Ends the answer and returns the deltas of the text that was held back.
    pub fn finish(&mut self) -> Vec<AnswerDelta> {
        match &mut self.parser {
            Parser::Channels(parser) => parser.finish(),
            Parser::Marked { reasoning, tools } => {
                let rest = reasoning.as_mut().map(ReasoningParser::finish);
                let mut deltas = split_calls(rest.unwrap_or_default(), tools.as_mut());
                deltas.extend(
                    tools
                        .as_mut()
                        .map(ToolCallParser::finish)
                        .unwrap_or_default(),
                );
                deltas
            }
        }
    }
}

/// Splits the texts among `deltas` into text and calls.
fn split_calls(deltas: Vec<AnswerDelta>, tools: Option<&mut ToolCallParser>) -> Vec<AnswerDelta> {
    let Some(tools) = tools else {
        return deltas;
    };
    let mut split = Vec::new();
    for delta in deltas {
        match delta {
            AnswerDelta::Text(text) => split.extend(tools.push(&text)),
            other => split.push(other),
        }
    }
    split
}

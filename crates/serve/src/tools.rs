//! Function calling: the formats in which models write calls, a grammar for answers with calls, and a parser.
//!
//! | module | contents |
//! |---|---|
//! | `format`, `formats` | [`ToolFormat`]: a format as data, and detection of a template's format; the table [`FORMATS`] |
//! | `support` | [`ToolSupport`]: functions by the model's template, or by the built-in instructions |
//! | `built_in` | [`rewrite`]: conversations with functions, for templates that do not support them |
//! | `single_calls` | [`with_single_calls`]: conversations for templates of channels, whose messages have one call |
//! | `types` | [`CallFormat`]: a format with the types of the parameters of a request's functions |
//! | `closed` | [`closed`]: schemas of arguments that allow declared properties only |
//! | `tool_use` | [`Function`], [`ToolUse`]: the functions that an answer may call |
//! | `grammar` | [`tool_grammar`]: the grammar of an answer |
//! | `channel_grammar` | the grammar of an answer that consists of messages in channels |
//! | `tagged_grammar`, `nested_grammar` | the grammar of parameters between tags, and of lists and objects with their quotes |
//! | `parser` | [`ToolCallParser`]: splits an answer into text and calls during generation |
//! | `tagged_parser`, `quoted_value` | translate parameters between tags, and values with their quotes, to JSON |
//! | `lark` | parts of grammars: literals, expressions and schemas |
//! | `json` | JSON as chat templates write it |

mod built_in;
mod channel_grammar;
mod closed;
mod format;
mod formats;
mod grammar;
mod json;
mod lark;
mod nested_grammar;
mod parser;
mod quoted_value;
mod single_calls;
mod support;
mod tagged_grammar;
mod tagged_parser;
#[cfg(test)]
mod tests;
mod tool_use;
mod types;

pub(crate) use built_in::{InstructionsPlace, rewrite, with_written_calls};
pub(crate) use closed::closed;
pub(crate) use format::ToolFormat;
pub(crate) use formats::FORMATS;
pub(crate) use grammar::tool_grammar;
pub(crate) use parser::ToolCallParser;
pub(crate) use single_calls::with_single_calls;
pub(crate) use support::ToolSupport;
pub(crate) use tagged_grammar::{inexpressible, unenforced};
pub(crate) use tool_use::{Function, ToolUse};
pub(crate) use types::CallFormat;

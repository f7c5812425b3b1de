//! Function calling: the formats in which chat templates write calls, a grammar for answers with calls, and a
//! parser.
//!
//! | module | contents |
//! |---|---|
//! | `format` | [`ToolFormat`]: the supported formats, and detection of a template's format |
//! | `grammar` | [`tool_grammar`]: the grammar of an answer |
//! | `parser` | [`ToolCallParser`]: splits an answer into text and calls during generation |

mod format;
mod grammar;
mod parser;

pub(crate) use format::{FORMATS, ToolFormat};
pub(crate) use grammar::{Function, ToolUse, tool_grammar};
pub(crate) use parser::{ToolCallParser, ToolDelta};

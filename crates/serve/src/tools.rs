//! Function calling: how a model's chat template writes calls, the grammar that answers with calls follow, and answers as they
//! are parsed into text and calls.
//!
//! | file | what it holds |
//! |---|---|
//! | `format` | [`ToolFormat`]: the table of formats, and which one a template uses |
//! | `grammar` | [`tool_grammar`]: the grammar of an answer |
//! | `parser` | [`ToolCallParser`]: an answer, as it is generated, as text and calls |

mod format;
mod grammar;
mod parser;

pub(crate) use format::{FORMATS, ToolFormat};
pub(crate) use grammar::{Function, ToolUse, tool_grammar};
pub(crate) use parser::{ToolCallParser, ToolDelta};

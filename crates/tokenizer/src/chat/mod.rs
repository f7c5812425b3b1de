//! Conversations as token ids, and which of them a model is to learn.
//!
//! | file | what it holds |
//! |---|---|
//! | `template` | [`ChatTemplate`]: a Jinja template as `transformers` runs it |
//! | `builtin`, `files` | where templates come from: ChatML and Llama 3; files |
//! | `generation`, `python` | what such templates know that minijinja does not: `{% generation %}`, Python's own functions |
//! | `example` | [`ChatExample`]: what a JSON record says |
//! | `marks` | characters that show in a rendered text what came from where |
//! | `turns` | which stretches of a rendered text are the assistant's |
//! | `encode` | [`ChatEncoder`]: a record to ids and mask |
//! | `error` | [`ChatError`] |

mod builtin;
mod encode;
mod error;
mod example;
mod files;
mod generation;
mod marks;
mod python;
mod template;
mod turns;

pub use encode::{ChatEncoder, ChatTokens};
pub use error::ChatError;
pub use example::{ChatExample, Conversation, Message};
pub use template::ChatTemplate;

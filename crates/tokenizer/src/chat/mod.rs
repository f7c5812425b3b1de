//! Conversations as token ids, and which of them a model is to learn.
//!
//! | file | what it holds |
//! |---|---|
//! | `template` | [`ChatTemplate`]: a Jinja template as `transformers` runs it |
//! | `renderer` | [`Renderer`]: who parses and runs templates; a program can install its own |
//! | `jinja` | [`InProcess`]: by minijinja, in this process |
//! | `remote` | [`RemoteRenderer`], [`RenderService`]: in another process |
//! | `builtin`, `files` | where templates come from: ChatML and Llama 3; files |
//! | `generation`, `python` | what such templates know that minijinja does not: `{% generation %}`, Python's own functions |
//! | `example` | [`ChatExample`]: what a JSON record says |
//! | `marks` | characters that mark the origin of each part of a rendered text |
//! | `turns` | the spans of a rendered text that are the assistant's |
//! | `encode` | [`ChatEncoder`]: a record to ids and mask |
//! | `prompt` | a record to the ids that prompt for an answer |
//! | `stops` | [`Stops`]: what ends an answer |
//! | `spec` | [`ChatTemplateSpec`]: a template as it is recorded |
//! | `error` | [`ChatError`] |

mod builtin;
mod encode;
mod error;
mod example;
mod files;
mod generation;
mod jinja;
mod marks;
mod prompt;
mod python;
mod remote;
mod renderer;
mod spec;
mod stops;
mod template;
mod turns;

pub use encode::{ChatEncoder, ChatTokens};
pub use error::ChatError;
pub use example::{ChatExample, Conversation, Message};
pub use files::TEMPLATE_FILE;
pub use jinja::InProcess;
pub use remote::{
    RemoteRenderer, RenderReply, RenderRequest, RenderService, SendRequest, SharedText,
};
pub use renderer::{
    OpenTemplate, RenderError, RenderJob, Renderer, TemplateText, Texts, install_renderer,
};
pub use spec::ChatTemplateSpec;
pub use stops::{SpecialToken, Stops};
pub use template::ChatTemplate;

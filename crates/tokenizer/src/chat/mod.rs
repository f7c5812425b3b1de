//! Renders and encodes conversations: token ids, loss masks and prompts.
//!
//! | file | contents |
//! |---|---|
//! | `template` | [`ChatTemplate`]: a Jinja template as `transformers` runs it |
//! | `text_template` | [`TextTemplate`]: a Jinja template over the fields of a record |
//! | `renderer` | [`Renderer`]: the interface that parses and runs templates; programs can install their own |
//! | `jinja` | [`InProcess`]: renders with minijinja in this process |
//! | `remote` | [`RemoteRenderer`], [`RenderService`]: render in another process |
//! | `builtin`, `files` | the built-in templates ChatML and Llama 3; templates from files |
//! | `generation`, `python` | extensions of minijinja: `{% generation %}`, Python's functions and methods |
//! | `example` | [`ChatExample`]: parses a JSON record |
//! | `message` | [`ChatMessage`]: a message, for programs, with its calls |
//! | `decode` | [`decode_record`]: decodes values of a record that are JSON in a text |
//! | `marks` | characters that mark the origin of each part of a rendered text |
//! | `variables` | the names that a template reads |
//! | `turns` | finds the assistant's answers in a rendered text |
//! | `encode` | [`ChatEncoder`]: encodes a record to ids and a loss mask |
//! | `prompt` | encodes a record as a prompt |
//! | `stops` | [`Stops`]: the tokens and strings that end an answer |
//! | `spec` | [`ChatTemplateSpec`]: a template as stored with datasets and models |
//! | `error` | [`ChatError`] |

mod builtin;
mod decode;
mod encode;
mod error;
mod example;
mod files;
mod generation;
mod jinja;
mod marks;
mod message;
mod prompt;
mod python;
mod remote;
mod renderer;
mod spec;
mod stops;
mod template;
mod text_template;
mod turns;
mod variables;

pub use decode::{decode_field, decode_record, read_arguments};
pub use encode::{ChatEncoder, ChatTokens};
pub use error::ChatError;
pub use example::{ChatExample, Conversation, Message};
pub use files::{ADDITIONAL_TEMPLATES, TEMPLATE_FILE, TOOL_USE};
pub use jinja::InProcess;
pub use message::{CalledFunction, ChatCall, ChatMessage};
pub use prompt::PromptEnd;
pub use remote::{
    RemoteRenderer, RenderReply, RenderRequest, RenderService, SendRequest, SharedText,
};
pub use renderer::{
    Dialect, OpenTemplate, RenderError, RenderJob, Renderer, TemplateText, Texts, install_renderer,
};
pub use spec::ChatTemplateSpec;
pub use stops::{SpecialToken, Stops};
pub use template::ChatTemplate;
pub use text_template::TextTemplate;

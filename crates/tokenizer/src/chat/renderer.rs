//! The interface of template renderers, in this process or in a sandboxed one.
//!
//! Templates come with models from untrusted sources. Within this process, instructions, size, nesting and
//! output are bounded (`jinja`), but memory is not: a template can double a string until none is left. Programs
//! that open untrusted templates should therefore install a [`Renderer`] that runs them in another process with
//! limits on memory and time (`remote`).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use minijinja::Value;
use serde::{Deserialize, Serialize};

use super::jinja::InProcess;

/// Opens chat templates.
pub trait Renderer: Debug + Send + Sync {
    /// Parses a template.
    ///
    /// # Errors
    /// [`RenderError::Template`] if it is not valid Jinja, [`RenderError::Limit`] if it exceeds a limit.
    fn open(&self, template: &TemplateText) -> Result<Box<dyn OpenTemplate>, RenderError>;
}

/// A parsed template. Can be shared between threads.
pub trait OpenTemplate: Debug + Send + Sync {
    /// Renders the texts of each of `jobs` in order. A job ends at its first failure.
    ///
    /// # Errors
    /// Nothing could be rendered, for example because the rendering process was killed.
    fn render(&self, jobs: &[RenderJob]) -> Result<Vec<Texts>, RenderError>;
}

/// The texts of one job.
pub type Texts = Vec<Result<String, RenderError>>;

/// The source of a template and the time that it sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateText {
    /// The source text.
    pub source: String,
    /// The time that `strftime_now` writes, in seconds since 1970.
    pub now: i64,
    /// The settings of the environment that runs it.
    pub dialect: Dialect,
}

/// The settings of a template's environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dialect {
    /// Those of `transformers` for chat templates.
    #[default]
    Chat,
    /// Those of lm-evaluation-harness: Jinja's own white space, `keep_trailing_newline`, undefined variables are errors, and
    /// a filter `regex_replace`. The variables are those of the record only.
    Record,
}

/// A conversation and the texts to render from it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RenderJob {
    /// The fields of each message.
    pub(crate) messages: Vec<Value>,
    /// Other variables of the template, by name.
    pub(crate) variables: BTreeMap<String, Value>,
    pub(crate) texts: Vec<TextRequest>,
}

/// A text to render.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TextRequest {
    /// The number of leading messages that the template sees.
    pub messages: usize,
    pub add_generation_prompt: bool,
    /// The characters to put around the assistant's answers.
    pub marks: Option<String>,
}

/// A failure to render a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum RenderError {
    /// The template is not valid Jinja, fails, or rejects the conversation.
    #[error("{reason}")]
    Template {
        /// The 1-based line of the error, if known.
        line: Option<usize>,
        /// The reason.
        reason: String,
    },
    /// The template exceeded a limit.
    #[error("{reason}")]
    Limit {
        /// The exceeded limit and its value.
        reason: String,
    },
    /// Rendering failed for a reason other than the template, such as a renderer process that could not be
    /// started.
    #[error("{reason}")]
    Unavailable {
        /// The reason.
        reason: String,
    },
}

static INSTALLED: OnceLock<Arc<dyn Renderer>> = OnceLock::new();

/// Makes `renderer` open all further templates of this process. Returns false, without effect, if a renderer is
/// already installed. By default, templates are rendered in this process.
pub fn install_renderer(renderer: Arc<dyn Renderer>) -> bool {
    INSTALLED.set(renderer).is_ok()
}

/// Returns the installed renderer, or the in-process one.
pub(crate) fn installed() -> &'static dyn Renderer {
    INSTALLED.get().map_or(&InProcess, |renderer| &**renderer)
}

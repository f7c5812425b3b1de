//! The renderer of a template and a conversation: this process, or one that can be killed.
//!
//! A template comes from whoever made the model. In this process its instructions, size, nesting and output are bounded
//! (`jinja`), but not its memory: a string can be doubled until none is left. A program that opens templates of
//! others therefore installs a [`Renderer`] that runs them in another process with limits on memory and time
//! (`remote`).

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
    /// [`RenderError::Template`] where it is not Jinja, [`RenderError::Limit`] where it exceeds a limit.
    fn open(&self, template: &TemplateText) -> Result<Box<dyn OpenTemplate>, RenderError>;
}

/// A parsed template; shared between threads.
pub trait OpenTemplate: Debug + Send + Sync {
    /// Renders the texts that each of `jobs` asks for, in their order: of each job all, or those up to the first that fails.
    ///
    /// # Errors
    /// Nothing could be rendered, for example because the rendering process was killed.
    fn render(&self, jobs: &[RenderJob]) -> Result<Vec<Texts>, RenderError>;
}

/// The texts of one job.
pub type Texts = Vec<Result<String, RenderError>>;

/// The source of a template and the time it sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateText {
    /// The source, as it was read.
    pub source: String,
    /// The time that `strftime_now` writes, in seconds since 1970.
    pub now: i64,
}

/// A conversation, and the texts to render of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RenderJob {
    /// The messages' fields.
    pub(crate) messages: Vec<Value>,
    /// Further variables of the template, by name.
    pub(crate) variables: BTreeMap<String, Value>,
    pub(crate) texts: Vec<TextRequest>,
}

/// A text to render.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TextRequest {
    /// The number of messages, from the first, that the template sees.
    pub messages: usize,
    pub add_generation_prompt: bool,
    /// The characters to put around what the assistant wrote.
    pub marks: Option<String>,
}

/// A template or a conversation that cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum RenderError {
    /// The template is not Jinja, fails, or refuses the conversation.
    #[error("{reason}")]
    Template {
        /// The line at fault, from 1, where it is known.
        line: Option<usize>,
        /// The reason.
        reason: String,
    },
    /// The template needs more than it may.
    #[error("{reason}")]
    Limit {
        /// The limit, with its value.
        reason: String,
    },
    /// Nobody could render it: the template is not at fault.
    #[error("{reason}")]
    Unavailable {
        /// Why not.
        reason: String,
    },
}

static INSTALLED: OnceLock<Arc<dyn Renderer>> = OnceLock::new();

/// Makes `renderer` open all templates of this process from now on; false, without effect, if one is installed already.
/// Without any, templates are rendered in this process.
pub fn install_renderer(renderer: Arc<dyn Renderer>) -> bool {
    INSTALLED.set(renderer).is_ok()
}

/// The renderer that was installed, or this process.
pub(crate) fn installed() -> &'static dyn Renderer {
    INSTALLED.get().map_or(&InProcess, |renderer| &**renderer)
}

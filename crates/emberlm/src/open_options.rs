//! Options for opening a model.

use std::path::PathBuf;

use emberlm_model::WeightFormat;

/// Options for opening a model.
///
/// ```no_run
/// use emberlm::prelude::*;
///
/// # fn main() -> Result<(), emberlm::Error> {
/// let mut model = OpenOptions::new()
///     .adapter("my-adapter")
///     .chat_template("chatml")
///     .context(2048)
///     .open::<Flex>("my-model")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    pub(crate) adapter: Option<PathBuf>,
    pub(crate) chat_template: Option<String>,
    pub(crate) context: Option<usize>,
    pub(crate) weights: Option<WeightFormat>,
}

impl OpenOptions {
    /// The default options: the model as its files describe it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the adapter at `path`: a directory of PEFT, or a run or checkpoint with an adapter.
    #[must_use]
    pub fn adapter(mut self, path: impl Into<PathBuf>) -> Self {
        self.adapter = Some(path.into());
        self
    }

    /// Sets the chat template: `chatml`, `llama3`, or the path of a template, a `tokenizer_config.json` or a directory with
    /// one. The default is the model's own.
    #[must_use]
    pub fn chat_template(mut self, name_or_path: impl Into<String>) -> Self {
        self.chat_template = Some(name_or_path.into());
        self
    }

    /// Sets the maximum number of tokens of a prompt and its text. The cache for them is allocated when the model is opened.
    /// The default is the model's context, at most 8192; of an encoder–decoder 512.
    #[must_use]
    pub fn context(mut self, tokens: usize) -> Self {
        self.context = Some(tokens);
        self
    }

    /// Sets the format of a decoder's weights in memory. The default is the format in which they are stored.
    #[must_use]
    pub fn weights(mut self, format: WeightFormat) -> Self {
        self.weights = Some(format);
        self
    }
}

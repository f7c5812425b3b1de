//! A text to generate: its settings, and the ways to receive it.

use emberlm_generate::SamplingDefaults;
use emberlm_kernels::Backend;
use emberlm_tokenizer::chat::ChatMessage;

use crate::{Error, TextGeneration, TextModel};

/// Temperature where neither the program nor the model sets one.
pub const TEMPERATURE: f64 = 0.8;
/// Maximum number of tokens of a continuation where neither the program nor the model sets one.
pub const CONTINUATION_TOKENS: usize = 200;
/// Maximum number of tokens of an answer where neither the program nor the model sets one.
pub const ANSWER_TOKENS: usize = 512;

/// The input of a completion.
#[derive(Clone, Debug)]
pub(crate) enum CompletionInput {
    /// A text to continue, or the source of an encoder–decoder.
    Text(String),
    /// A conversation to answer.
    Messages(Vec<ChatMessage>),
}

/// A text that a model is about to generate: [`TextModel::generate`] or [`TextModel::chat`]. Settings that the program does
/// not choose are those of the model's `generation_config.json`, and else those of the commands `emberlm generate` and
/// `emberlm chat`.
#[must_use = "nothing is generated before `text`, `stream` or `parts` is called"]
pub struct Completion<'a, B: Backend> {
    model: &'a mut TextModel<B>,
    input: CompletionInput,
    settings: CompletionSettings,
}

/// The settings of a completion.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompletionSettings {
    pub sampling: SamplingDefaults,
    pub seed: u64,
    pub stops: Vec<String>,
}

impl<'a, B: Backend> Completion<'a, B> {
    pub(crate) fn new(model: &'a mut TextModel<B>, input: CompletionInput) -> Self {
        Self {
            model,
            input,
            settings: CompletionSettings::default(),
        }
    }

    /// Sets the maximum number of generated tokens.
    pub fn max_new_tokens(mut self, tokens: usize) -> Self {
        self.settings.sampling.max_new_tokens = Some(tokens);
        self
    }

    /// Sets the temperature. 0 always selects the most probable token.
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.settings.sampling.temperature = Some(temperature);
        self
    }

    /// Sets all sampling settings that `settings` has.
    pub fn sampling(mut self, settings: SamplingDefaults) -> Self {
        self.settings.sampling = settings.or(self.settings.sampling);
        self
    }

    /// Sets the seed. The same seed gives the same text. The default is 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// Ends the text before `text`. Can be called several times.
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.settings.stops.push(text.into());
        self
    }

    /// Generates the whole text.
    ///
    /// # Errors
    /// Those of [`Completion::parts`], and of every part.
    pub fn text(self) -> Result<String, Error> {
        self.parts()?.collect()
    }

    /// Generates the text, and calls `on_part` with each part of it immediately. Returns the whole text.
    ///
    /// # Errors
    /// Those of [`Completion::parts`], and of every part.
    pub fn stream(self, mut on_part: impl FnMut(&str)) -> Result<String, Error> {
        let mut text = String::new();
        for part in self.parts()? {
            let part = part?;
            on_part(&part);
            text += &part;
        }
        Ok(text)
    }

    /// Encodes the prompt, and returns an iterator that generates the text. A program can stop it at any part.
    ///
    /// # Errors
    /// The model does not support this kind of completion, the text cannot be encoded, it is longer than the context, or a
    /// setting is out of range.
    pub fn parts(self) -> Result<TextGeneration<'a, B>, Error> {
        self.model.start(self.input, self.settings)
    }
}

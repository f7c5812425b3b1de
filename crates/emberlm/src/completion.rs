//! A text to generate: its settings, and the ways to receive it.

use emberlm_generate::SamplingDefaults;
use emberlm_kernels::Backend;
use emberlm_tokenizer::chat::ChatMessage;

use crate::completion_settings::{CompletionInput, CompletionSettings};
use crate::{Error, TextGeneration, TextModel};

/// A text that a model is about to generate: [`TextModel::generate`] or [`TextModel::chat`]. Settings that the program does
/// not choose are those of the model's `generation_config.json`, and else those of the commands `emberlm generate` and
/// `emberlm chat`.
#[must_use = "nothing is generated before `text`, `stream` or `parts` is called"]
pub struct Completion<'a, B: Backend> {
    model: &'a mut TextModel<B>,
    input: CompletionInput,
    settings: CompletionSettings,
}

impl<B: Backend> TextModel<B> {
    /// Continues `text`, or generates the target of this source with an encoder–decoder. An empty text begins a document.
    pub fn generate(&mut self, text: impl Into<String>) -> Completion<'_, B> {
        Completion::new(self, CompletionInput::Text(text.into()))
    }

    /// Answers a conversation, in the format of the model's chat template. The names of special tokens in the messages are
    /// plain text, so that a message cannot end itself or begin another one.
    pub fn chat(&mut self, messages: &[ChatMessage]) -> Completion<'_, B> {
        Completion::new(self, CompletionInput::Messages(messages.to_vec()))
    }
}

impl<'a, B: Backend> Completion<'a, B> {
    fn new(model: &'a mut TextModel<B>, input: CompletionInput) -> Self {
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

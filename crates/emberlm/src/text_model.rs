//! A model with its tokenizer: text in and text out.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use emberlm_checkpoint::{
    CheckpointError, Embedder, EncoderDecoderModel, EncoderModel, Model, ModelError, ModelKind,
    kind_of, unit_vector,
};
use emberlm_generate::{
    Engine, EngineConfig, GenerateError, Overflow, Request, SETTINGS, SamplingDefaults, embed,
};
use emberlm_kernels::Backend;
use emberlm_model::WeightFormat;
use emberlm_tokenizer::chat::{ChatEncoder, ChatMessage, Stops};
use emberlm_tokenizer::{StopStrings, Tokenizer};

use crate::completion_settings::{
    ANSWER_TOKENS, CONTINUATION_TOKENS, CompletionInput, CompletionSettings,
};
use crate::{Error, OpenOptions, TextGeneration};

/// A model with its tokenizer: text in and text out. [`open`](crate::open()) opens one of any kind.
///
/// | kind | [`generate`](Self::generate) | [`chat`](Self::chat) | [`embed`](Self::embed) |
/// |---|---|---|---|
/// | decoder | continues a text | with a chat template | the mean of the final hidden states, of length 1 |
/// | encoder | | | the vector that the model is trained for |
/// | encoder–decoder | the target of a source | with a chat template | |
///
/// One completion is generated at a time. The model keeps the cache of the last one: a conversation that continues reads only
/// its new messages. [`Engine`] generates many at once.
///
/// Chat templates run in this process. A template from an untrusted source should run in a sandbox
/// ([`install_renderer`](emberlm_tokenizer::chat::install_renderer)).
pub struct TextModel<B: Backend> {
    kind: Kind<B>,
    warnings: Vec<String>,
}

enum Kind<B: Backend> {
    Generative(Box<Generative<B>>),
    Encoder(Box<Embedder<B>>),
}

/// A model that generates.
struct Generative<B: Backend> {
    files: ModelFiles,
    tokenizer: Tokenizer,
    engine: Engine<B>,
    recommended: SamplingDefaults,
    chat_template: Option<String>,
    /// The encoder of conversations, after the first one.
    chat: Option<(ChatEncoder, Stops)>,
}

/// The files of a model that generates.
enum ModelFiles {
    Decoder(Box<Model>),
    EncoderDecoder(Box<EncoderDecoderModel>),
}

/// Opens the model at `path` on the default device: a run, a checkpoint, a Hugging Face directory or a GGUF file, of a
/// decoder, an encoder or an encoder–decoder.
///
/// # Errors
/// There is no model, a file is damaged or cannot be read, or the model has no tokenizer.
pub fn open<B: Backend>(path: impl AsRef<Path>) -> Result<TextModel<B>, Error> {
    OpenOptions::new().open(path)
}

impl OpenOptions {
    /// Opens the model at `path` on the default device.
    ///
    /// # Errors
    /// Those of [`open`](crate::open()). An encoder or encoder–decoder does not support an adapter or packed weights.
    pub fn open<B: Backend>(self, path: impl AsRef<Path>) -> Result<TextModel<B>, Error> {
        self.open_on(path, &Device::<B>::default())
    }

    /// Opens the model at `path` on a device.
    ///
    /// # Errors
    /// Those of [`OpenOptions::open`].
    pub fn open_on<B: Backend>(
        self,
        path: impl AsRef<Path>,
        device: &Device<B>,
    ) -> Result<TextModel<B>, Error> {
        TextModel::new(path.as_ref(), self, device)
    }
}

impl<B: Backend> TextModel<B> {
    /// Opens the model at `path`.
    fn new(path: &Path, options: OpenOptions, device: &Device<B>) -> Result<Self, Error> {
        match kind_of(path) {
            ModelKind::Decoder => Self::of_decoder(path, options, device),
            kind => {
                check_options(kind, &options)?;
                match kind {
                    ModelKind::Encoder => Self::of_encoder(path, device),
                    _ => Self::of_encoder_decoder(path, options, device),
                }
            }
        }
    }

    fn of_decoder(path: &Path, options: OpenOptions, device: &Device<B>) -> Result<Self, Error> {
        let mut model = Model::open(path)?;
        if let Some(adapter) = &options.adapter {
            model = model.with_adapter(adapter)?;
        }
        let tokenizer = model.require_tokenizer()?;
        let config = EngineConfig {
            slots: 1,
            capacity: model.context(options.context)?,
            ..EngineConfig::for_model(model.config())
        };
        let format = match options.weights {
            Some(format) => format,
            None if B::keeps_packed_weights() => model.inference_format()?,
            None => model.weight_format(),
        };
        let decoder = model.decoder_in::<B>(format, device)?.with_fused_adapters();
        let engine = Engine::new(Arc::new(decoder), config)?;
        let files = ModelFiles::Decoder(Box::new(model));
        let template = options.chat_template;
        Ok(Self::of_generative(files, tokenizer, engine, template))
    }

    fn of_encoder_decoder(
        path: &Path,
        options: OpenOptions,
        device: &Device<B>,
    ) -> Result<Self, Error> {
        let model = EncoderDecoderModel::open(path)?;
        let tokenizer = model.require_tokenizer()?.clone();
        let default = EngineConfig::for_encoder_decoder();
        let config = EngineConfig {
            slots: 1,
            capacity: options.context.unwrap_or(default.capacity),
            ..default
        };
        let engine = Engine::new(Arc::new(model.load::<B>(device)?), config)?;
        let files = ModelFiles::EncoderDecoder(Box::new(model));
        let template = options.chat_template;
        Ok(Self::of_generative(files, tokenizer, engine, template))
    }

    fn of_generative(
        files: ModelFiles,
        tokenizer: Tokenizer,
        engine: Engine<B>,
        chat_template: Option<String>,
    ) -> Self {
        let (damaged, stored, (recommended, ignored)) = match &files {
            ModelFiles::Decoder(model) => (
                model.passed_over(),
                model.warnings(),
                model.sampling_defaults(),
            ),
            ModelFiles::EncoderDecoder(model) => (
                model.model().passed_over(),
                model.model().warnings(),
                model.sampling_defaults(),
            ),
        };
        Self {
            warnings: warnings(damaged, stored.into_iter().chain(ignored)),
            kind: Kind::Generative(Box::new(Generative {
                files,
                tokenizer,
                engine,
                recommended,
                chat_template,
                chat: None,
            })),
        }
    }

    fn of_encoder(path: &Path, device: &Device<B>) -> Result<Self, Error> {
        let model = EncoderModel::open(path)?;
        let embedder = model.embedder(device)?;
        Ok(Self {
            kind: Kind::Encoder(Box::new(embedder)),
            warnings: warnings(
                model.model().passed_over(),
                model
                    .model()
                    .warnings()
                    .into_iter()
                    .chain(model.warnings().iter().cloned()),
            ),
        })
    }

    /// The kind of the model.
    pub fn kind(&self) -> ModelKind {
        match &self.kind {
            Kind::Generative(generative) => generative.kind(),
            Kind::Encoder(_) => ModelKind::Encoder,
        }
    }

    /// Warnings about newer checkpoints that are damaged, and about settings in the model's files that are ignored.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Embeds texts as vectors. An encoder truncates texts that are too long.
    ///
    /// # Errors
    /// A text cannot be encoded or has no tokens, a decoder's text is longer than its context, or the model is an
    /// encoder–decoder.
    pub fn embed<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Vec<f32>>, Error> {
        let generative = match &self.kind {
            Kind::Encoder(embedder) => return Ok(embedder.embed(texts)?),
            Kind::Generative(generative) => generative,
        };
        let Some(decoder) = generative.engine.model().decoder() else {
            return Err(unsupported(self.kind(), "embed texts"));
        };
        let vector = |text: &T| {
            let ids = generative.tokenizer.encode_prompt(text.as_ref())?;
            Ok(unit_vector(embed(decoder, &ids)?))
        };
        texts.iter().map(vector).collect()
    }

    /// Starts a completion.
    pub(crate) fn start(
        &mut self,
        input: CompletionInput,
        settings: CompletionSettings,
    ) -> Result<TextGeneration<'_, B>, Error> {
        match &mut self.kind {
            Kind::Generative(generative) => generative.start(input, settings),
            Kind::Encoder(_) => Err(unsupported(ModelKind::Encoder, "generate text")),
        }
    }
}

impl<B: Backend> Generative<B> {
    fn kind(&self) -> ModelKind {
        match &self.files {
            ModelFiles::Decoder(_) => ModelKind::Decoder,
            ModelFiles::EncoderDecoder(_) => ModelKind::EncoderDecoder,
        }
    }

    fn start(
        &mut self,
        input: CompletionInput,
        settings: CompletionSettings,
    ) -> Result<TextGeneration<'_, B>, Error> {
        let is_chat = matches!(input, CompletionInput::Messages(_));
        let (prompt, mut stops) = self.prompt(input)?;
        let context = self.engine.config().capacity;
        let mut sampling = settings.sampling.or(self.recommended);
        for setting in &SETTINGS {
            let value = (setting.get)(&sampling).unwrap_or(setting.default);
            (setting.set)(&mut sampling, Some(value));
        }
        let default = if is_chat {
            ANSWER_TOKENS
        } else {
            CONTINUATION_TOKENS
        };
        let mut max_new_tokens = sampling.max_new_tokens.unwrap_or(default);
        let is_decoder = matches!(self.files, ModelFiles::Decoder(_));
        if is_decoder {
            let room = context.saturating_sub(prompt.len());
            if prompt.len() > context || (is_chat && room == 0) {
                return Err(overflow(prompt.len(), max_new_tokens, context));
            }
            if is_chat {
                max_new_tokens = max_new_tokens.min(room);
            }
        }
        stops.strings.extend(settings.stops);
        let request = Request {
            prompt,
            max_new_tokens,
            stop_tokens: stops.tokens,
            chooser: sampling.chooser(settings.seed),
            // A text may outgrow the context, an answer does not.
            overflow: Overflow::Slide,
            ..Request::default()
        };
        let strings = StopStrings::new(&stops.strings)?;
        let (engine, tokenizer) = (&mut self.engine, &self.tokenizer);
        Ok(TextGeneration::start(engine, tokenizer, strings, request)?)
    }

    /// The tokens of an input, and those that end its completion.
    fn prompt(&mut self, input: CompletionInput) -> Result<(Vec<u32>, Stops), Error> {
        let text = match input {
            CompletionInput::Text(text) => text,
            CompletionInput::Messages(messages) => {
                let (encoder, stops) = self.chat()?;
                let prompt = encoder.prompt(&ChatMessage::record(&messages))?;
                return Ok((prompt, stops.clone()));
            }
        };
        let (prompt, tokens) = match &self.files {
            ModelFiles::Decoder(model) => (
                model.prompt(&self.tokenizer, &text)?,
                model.stop_tokens(Some(&self.tokenizer)),
            ),
            ModelFiles::EncoderDecoder(model) => (model.encode(&text)?, model.stop_tokens()),
        };
        let strings = Vec::new();
        Ok((prompt, Stops { tokens, strings }))
    }

    /// The encoder of conversations, and the tokens and strings that end an answer.
    fn chat(&mut self) -> Result<&(ChatEncoder, Stops), Error> {
        let chat = match self.chat.take() {
            Some(chat) => chat,
            None => self.open_chat()?.ok_or(Error::NoChatTemplate)?,
        };
        Ok(self.chat.insert(chat))
    }

    fn open_chat(&self) -> Result<Option<(ChatEncoder, Stops)>, ModelError> {
        let requested = self.chat_template.as_deref();
        let model = match &self.files {
            ModelFiles::Decoder(model) => model,
            ModelFiles::EncoderDecoder(model) => return model.chat(requested),
        };
        let encoder = model.chat(&self.tokenizer, requested)?;
        Ok(encoder.map(|encoder| {
            let stops = model.chat_stops(&self.tokenizer, &encoder);
            (encoder, stops)
        }))
    }
}

/// The checkpoints that were passed over, and the other warnings.
fn warnings(damaged: &[CheckpointError], others: impl IntoIterator<Item = String>) -> Vec<String> {
    let damaged = damaged.iter().map(ToString::to_string);
    damaged.chain(others).collect()
}

/// Checks that models of a kind other than a decoder support the options.
fn check_options(kind: ModelKind, options: &OpenOptions) -> Result<(), Error> {
    let is_packed = options
        .weights
        .is_some_and(|format| format != WeightFormat::F32);
    match (&options.adapter, is_packed) {
        (Some(_), _) => Err(unsupported(kind, "have an adapter")),
        (None, true) => Err(unsupported(kind, "have packed weights")),
        (None, false) => Ok(()),
    }
}

fn unsupported(kind: ModelKind, operation: &'static str) -> Error {
    let kind = kind.name();
    Error::Unsupported { kind, operation }
}

fn overflow(prompt: usize, max_new_tokens: usize, context: usize) -> Error {
    let error = GenerateError::Overflow {
        prompt,
        max_new_tokens,
        context,
    };
    error.into()
}

//! A model with its tokenizer: text in and text out.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use emberlm_checkpoint::{
    CheckpointError, Embedder, EncoderModel, Model, ModelError, ModelKind, unit_vector,
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
    model: Box<Model>,
    tokenizer: Tokenizer,
    engine: Engine<B>,
    recommended: SamplingDefaults,
    chat_template: Option<String>,
    /// The encoder of conversations, after the first one.
    chat: Option<(ChatEncoder, Stops)>,
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
    /// Those of [`open`](crate::open()). An encoder or encoder–decoder does not support packed weights.
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
        let mut model = Model::open(path)?;
        check_options(model.kind(), &options)?;
        if let Some(adapter) = &options.adapter {
            model = model.with_adapter(adapter)?;
        }
        match model.kind() {
            ModelKind::Encoder => Self::of_encoder(model, device),
            ModelKind::Decoder | ModelKind::EncoderDecoder => {
                Self::of_generative(model, options, device)
            }
        }
    }

    fn of_generative(
        model: Model,
        options: OpenOptions,
        device: &Device<B>,
    ) -> Result<Self, Error> {
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
        let weights = model.decoder_in::<B>(format, device)?.with_fused_adapters();
        let engine = Engine::new(Arc::new(weights), config)?;
        let (recommended, ignored) = model.sampling_defaults();
        let ignored = model.warnings().into_iter().chain(ignored);
        Ok(Self {
            warnings: warnings(model.passed_over(), ignored),
            kind: Kind::Generative(Box::new(Generative {
                model: Box::new(model),
                tokenizer,
                engine,
                recommended,
                chat_template: options.chat_template,
                chat: None,
            })),
        })
    }

    fn of_encoder(model: Model, device: &Device<B>) -> Result<Self, Error> {
        let files = EncoderModel::of(model)?;
        let embedder = files.embedder(device)?;
        let model = files.model();
        let ignored = model.warnings().into_iter();
        let ignored = ignored.chain(files.warnings().iter().cloned());
        Ok(Self {
            kind: Kind::Encoder(Box::new(embedder)),
            warnings: warnings(model.passed_over(), ignored),
        })
    }

    /// The kind of the model.
    pub fn kind(&self) -> ModelKind {
        match &self.kind {
            Kind::Generative(generative) => generative.model.kind(),
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
        if self.model.kind() == ModelKind::Decoder {
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
        let prompt = self.model.prompt(&self.tokenizer, &text)?;
        let tokens = self.model.stop_tokens(Some(&self.tokenizer));
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
        let encoder = self.model.chat(&self.tokenizer, requested)?;
        Ok(encoder.map(|encoder| {
            let stops = self.model.chat_stops(&self.tokenizer, &encoder);
            (encoder, stops)
        }))
    }
}

/// The checkpoints that were passed over, and the other warnings.
fn warnings(damaged: &[CheckpointError], others: impl IntoIterator<Item = String>) -> Vec<String> {
    let damaged = damaged.iter().map(ToString::to_string);
    damaged.chain(others).collect()
}

/// Checks that models of a kind support the options.
fn check_options(kind: ModelKind, options: &OpenOptions) -> Result<(), Error> {
    let format = options.weights.unwrap_or(WeightFormat::F32);
    match kind == ModelKind::Decoder || format == WeightFormat::F32 {
        true => Ok(()),
        false => Err(unsupported(kind, "have packed weights")),
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

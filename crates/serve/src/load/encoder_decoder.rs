//! Loads an encoder–decoder for serving.

use std::sync::Arc;

use emberlm_checkpoint::EncoderDecoderModel;
use emberlm_generate::{Engine, EngineConfig, GrammarSandbox};
use emberlm_kernels::Backend;
use emberlm_model::Transformer;

use super::{LoadError, ServeOptions, fitting_slots, modified};
use crate::model::{Card, ChatFormat, ServedKind, ServedModel, Tables};
use crate::on_demand::{OnDemand, Reload};
use crate::worker::Worker;

/// An encoder–decoder and its serving options, checked before the weights are read.
#[derive(Debug)]
pub struct EncoderDecoderPlan<'a> {
    model: &'a EncoderDecoderModel,
    options: ServeOptions,
    chat: Option<ChatFormat>,
    /// The warnings of [`EncoderDecoderModel::sampling_defaults`].
    ignored: Vec<String>,
}

impl<'a> EncoderDecoderPlan<'a> {
    /// Checks everything that does not need the weights: the tokenizer, the chat template and the sampling settings.
    ///
    /// # Errors
    /// The model has no tokenizer, or does not support the options.
    pub fn new(
        model: &'a EncoderDecoderModel,
        mut options: ServeOptions,
    ) -> Result<Self, LoadError> {
        let chat = model.chat(options.chat_template.as_deref())?;
        let chat = chat.map(|(encoder, stops)| ChatFormat { encoder, stops });
        options.sampling.check(model.config().vocab_size())?;
        let (recommended, ignored) = model.sampling_defaults();
        options.sampling = options.sampling.or(recommended);
        Ok(Self {
            model,
            options,
            chat,
            ignored,
        })
    }

    /// The model to serve.
    pub fn model(&self) -> &'a EncoderDecoderModel {
        self.model
    }

    /// Warnings about invalid settings in the model's `generation_config.json`, which are ignored.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// The configuration of the engine. By default, as many slots as fit 1 GiB, at most 64: of the target's keys and
    /// values, which are allocated with the engine, and the source's, which are allocated with a request.
    pub fn engine(&self) -> EngineConfig {
        let default = EngineConfig::for_encoder_decoder();
        let config = self.model.config();
        let capacity = self.options.context.unwrap_or(default.capacity);
        let width = config.heads().saturating_mul(config.head_dim());
        let sizes = [2 * 2 * size_of::<f32>(), config.n_layers(), capacity];
        let bytes = sizes.into_iter().fold(width, usize::saturating_mul);
        EngineConfig {
            slots: self.options.slots.unwrap_or_else(|| fitting_slots(bytes)),
            capacity,
            deterministic: self.options.deterministic,
            ..default
        }
    }

    /// The serving options.
    pub fn options(&self) -> &ServeOptions {
        &self.options
    }

    /// Starts the engine on its own thread. For `sandbox`, see [`LoadPlan::load`](super::LoadPlan::load).
    ///
    /// # Errors
    /// The engine does not support the number of slots, or the operating system cannot start a thread.
    pub fn load<B: Backend>(
        self,
        weights: Transformer<B>,
        sandbox: Option<GrammarSandbox>,
        reload: Option<Reload<Transformer<B>>>,
    ) -> Result<ServedModel, LoadError> {
        let config = self.engine();
        let engine = Engine::new(Arc::new(weights), config)?;
        let limit = engine.config().slots.saturating_add(self.options.queue);
        let again = move |weights| {
            Engine::new(Arc::new(weights), config).map_err(|error| error.to_string())
        };
        let engine = OnDemand::new(engine, reload.map(|reload| reload.map(again)));
        let Self {
            model,
            options,
            chat,
            ignored: _,
        } = self;
        let tokenizer = model.require_tokenizer()?.clone();
        let card = Card {
            family: model.model().model_type().to_owned(),
            parameters: u64::try_from(model.config().parameters()).unwrap_or(u64::MAX),
            tokenizer: tokenizer.kind().to_string(),
            about: model.model().about()?,
            ..Card::default()
        };
        let (worker, _) = Worker::start(engine, limit).map_err(LoadError::Thread)?;
        Ok(ServedModel {
            name: options.name,
            aliases: options.aliases,
            created: modified(model.model().path()),
            tokenizer,
            chat,
            tool_chat: None,
            sampling: options.sampling,
            stop_tokens: model.stop_tokens(),
            kind: ServedKind::EncoderDecoder(model.sources()?),
            card: Box::new(move || card.clone()),
            worker,
            tables: Tables::new(sandbox),
        })
    }
}

//! Loads an encoder–decoder for serving.

use std::sync::Arc;

use emberlm_checkpoint::EncoderDecoderModel;
use emberlm_checkpoint::model::GENERATION_CONFIG_FILE;
use emberlm_generate::{
    Engine, EngineConfig, GrammarSandbox, SamplingDefaults, SettingError, ignored_fields,
};
use emberlm_kernels::Backend;
use emberlm_model::EncoderDecoder;
use emberlm_tokenizer::chat::ChatEncoder;

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
    /// The warnings of [`encoder_decoder_defaults`].
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
        let tokenizer = model.require_tokenizer()?;
        let template = model.chat_template(options.chat_template.as_deref())?;
        let vocab_size = model.config().vocab_size();
        let chat = template.map(|template| {
            let encoder = ChatEncoder::new(template, tokenizer);
            let mut stops = encoder.stops();
            stops.tokens.extend(model.stop_tokens());
            stops.tokens.retain(|&id| (id as usize) < vocab_size);
            ChatFormat { encoder, stops }
        });
        options.sampling.check(vocab_size)?;
        let (recommended, ignored) = encoder_decoder_defaults(model);
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
        weights: EncoderDecoder<B>,
        sandbox: Option<GrammarSandbox>,
        reload: Option<Reload<EncoderDecoder<B>>>,
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
            family: model.hugging_face().model_type().to_owned(),
            parameters: u64::try_from(model.config().parameters()).unwrap_or(u64::MAX),
            tokenizer: tokenizer.kind().to_string(),
            about: model.about(),
            ..Card::default()
        };
        let (worker, _) = Worker::start(engine, limit).map_err(LoadError::Thread)?;
        Ok(ServedModel {
            name: options.name,
            aliases: options.aliases,
            created: modified(model.hugging_face().path()),
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

/// The sampling settings recommended by an encoder–decoder's `generation_config.json`, and a warning about each invalid
/// one, which is ignored. Unless the file has `do_sample`, the most probable token is chosen, as `transformers` does.
pub fn encoder_decoder_defaults(model: &EncoderDecoderModel) -> (SamplingDefaults, Vec<String>) {
    let greedy = |defaults| SamplingDefaults {
        temperature: Some(0.0),
        ..defaults
    };
    let fields = match model.generation_config() {
        Ok(fields) => fields,
        Err(error) => {
            let warning = format!("{error}; the file is ignored");
            return (greedy(SamplingDefaults::default()), vec![warning]);
        }
    };
    let (defaults, invalid) = SamplingDefaults::read(&fields, model.config().vocab_size());
    let path = model.hugging_face().path().join(GENERATION_CONFIG_FILE);
    let mut ignored: Vec<String> = invalid.iter().map(SettingError::to_string).collect();
    ignored.extend(ignored_fields(&fields, None));
    let start = model.config().start_token().unwrap_or(0);
    if let Some(other) = fields.get("decoder_start_token_id")
        && !other.is_null()
        && other.as_u64() != Some(u64::from(start))
    {
        let rule = format!("texts begin with the token {start} of config.json");
        ignored.push(format!("decoder_start_token_id = {other}: {rule}"));
    }
    let warning = |reason| format!("{}: {reason}; it is ignored", path.display());
    let warnings = ignored.into_iter().map(warning).collect();
    let samples = fields.get("do_sample").is_some_and(|value| value == true);
    match samples {
        true => (defaults, warnings),
        false => (greedy(defaults), warnings),
    }
}

//! Loads an encoder for serving.

use emberlm_checkpoint::{Embedder, EncoderModel, ModelError};
use emberlm_generate::SamplingDefaults;
use emberlm_kernels::Backend;
use emberlm_model::encoder::EncoderHeadConfig;
use emberlm_tokenizer::SequenceEncoder;

use super::{LoadError, ServeOptions, modified};
use crate::embedding_engine::{EmbeddingConfig, EmbeddingEngine};
use crate::model::{Card, Classifier, EncoderFormat, ModelSource, ServedKind, ServedModel, Tables};
use crate::on_demand::{OnDemand, Reload};
use crate::worker::Worker;

/// An encoder and its serving options, checked before the weights are read.
#[derive(Debug)]
pub struct EncoderPlan<'a> {
    model: &'a EncoderModel,
    options: ServeOptions,
    config: EmbeddingConfig,
}

impl<'a> EncoderPlan<'a> {
    /// Checks everything that does not need the weights. Slots, chat template and sampling settings have no effect.
    ///
    /// # Errors
    /// The model has no tokenizer, or its longest text is shorter than the requested context.
    pub fn new(model: &'a EncoderModel, options: ServeOptions) -> Result<Self, LoadError> {
        model.require_tokenizer()?;
        let limit = model.longest_text();
        let context = options.context.unwrap_or(limit);
        if context > limit {
            return Err(ModelError::Context { context, limit }.into());
        }
        Ok(Self {
            model,
            config: EmbeddingConfig {
                context,
                deterministic: options.deterministic,
            },
            options,
        })
    }

    /// The model to serve.
    pub fn model(&self) -> &'a EncoderModel {
        self.model
    }

    /// The serving options.
    pub fn options(&self) -> &ServeOptions {
        &self.options
    }

    /// Starts the engine on its own thread.
    ///
    /// # Errors
    /// The operating system cannot start a thread.
    pub fn load<B: Backend>(
        self,
        embedder: Embedder<B>,
        reload: Option<Reload<Embedder<B>>>,
    ) -> Result<ServedModel, LoadError> {
        let Self {
            model,
            options,
            config,
        } = self;
        let tokenizer = model.require_tokenizer()?.clone();
        // Too long texts are refused instead of truncated.
        let sequences = SequenceEncoder::new(&tokenizer, usize::MAX);
        let classifier = match model.config().encoder_head() {
            Some(EncoderHeadConfig::Sequence { labels, .. }) => Some(Classifier {
                labels: labels.clone(),
            }),
            _ => None,
        };
        let card = Card {
            family: model.model().model_type().to_owned(),
            parameters: u64::try_from(model.config().parameters()).unwrap_or(u64::MAX),
            tokenizer: tokenizer.kind().to_string(),
            about: model.model().about()?,
            ..Card::default()
        };
        let engine = EmbeddingEngine::new(embedder, config);
        let again = move |embedder| Ok(EmbeddingEngine::new(embedder, config));
        let engine = OnDemand::new(engine, reload.map(|reload| reload.map(again)));
        let limit = options.queue.saturating_add(1);
        let (worker, _) = Worker::start(engine, limit).map_err(LoadError::Thread)?;
        Ok(ServedModel {
            name: options.name,
            aliases: options.aliases,
            created: modified(model.model().path()),
            tokenizer,
            chat: None,
            tool_chat: None,
            sampling: SamplingDefaults::default(),
            stop_tokens: Vec::new(),
            kind: ServedKind::Encoder(EncoderFormat {
                sequences,
                normalizes: model.normalizes(),
                classifier,
            }),
            card: Box::new(move || card.clone()),
            worker,
            tables: Tables::new(None),
            source: ModelSource::of(model.model()),
        })
    }
}

//! Loads a model directory for serving: one that generates tokens here, one that embeds texts in `encoder`.

mod encoder;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use emberlm_checkpoint::{Model, ModelError};
use emberlm_generate::{
    Drafting, Engine, EngineConfig, GrammarSandbox, SamplingDefaults, SettingError,
};
use emberlm_kernels::Backend;
use emberlm_model::{CacheFormat, CacheFormatError, ModelKind, Transformer, count};
use emberlm_tokenizer::chat::ChatEncoder;
use emberlm_tokenizer::{SequenceEncoder, Tokenizer};

use crate::model::{Card, ChatFormat, ModelSource, ServedKind, ServedModel, Tables};
use crate::on_demand::{OnDemand, Reload};
use crate::prompt_cache::PromptCache;
use crate::worker::{Replacer, Worker};
pub use encoder::EncoderPlan;

/// The memory for all slots' caches in bytes, if the number of slots is automatic.
const CACHE_BYTES: usize = 1 << 30;
/// The most slots, if the number is automatic.
const MAX_SLOTS: usize = 64;

/// Options for serving a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServeOptions {
    /// The name that clients use.
    pub name: String,
    /// Alternative names that clients may use.
    pub aliases: Vec<String>,
    /// The number of sequences to generate concurrently. `None` allows as many as fit 1 GiB of caches, at
    /// most 64.
    pub slots: Option<usize>,
    /// The context for a prompt and its answer in tokens. `None` for the default of [`Model::context`].
    pub context: Option<usize>,
    /// The format of the caches, which only a decoder packs.
    pub cache: CacheFormat,
    /// The number of requests that may be queued while all slots are in use.
    pub queue: usize,
    /// The chat template (chatml, llama3 or a path). `None` for the model's own.
    pub chat_template: Option<String>,
    /// Defaults of the sampling settings. Unset ones are taken from the model's `generation_config.json`.
    pub sampling: SamplingDefaults,
    /// True to run separate forward passes per answer, which makes answers independent of concurrent
    /// requests.
    pub deterministic: bool,
    /// The use of draft tokens.
    pub drafting: Drafting,
}

/// The weights of an engine's models.
#[derive(Debug)]
pub struct Weights<B: Backend> {
    /// The model.
    pub model: Transformer<B>,
    /// A smaller model that drafts tokens.
    pub draft: Option<Transformer<B>>,
}

impl<B: Backend> From<Transformer<B>> for Weights<B> {
    /// A model without a draft model.
    fn from(model: Transformer<B>) -> Self {
        Self { model, draft: None }
    }
}

/// A model with a running engine.
pub struct Loaded<B: Backend> {
    /// The model, for a [`Service`](crate::api::Service).
    pub served: ServedModel,
    /// Replaces the model's weights while it is served.
    pub replacer: Replacer<OnDemand<Engine<B>>>,
    /// The memory of all slots' caches in bytes.
    pub cache_bytes: usize,
}

/// A running engine.
pub struct Started<B: Backend> {
    /// The handle of the engine's thread.
    pub worker: Worker,
    /// Replaces the model's weights while it is served.
    pub replacer: Replacer<OnDemand<Engine<B>>>,
    /// The memory of all slots' caches in bytes.
    pub cache_bytes: usize,
}

/// A model cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The model has no tokenizer, a shorter context, or an unusable chat template.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The model does not support the format of the caches.
    #[error(transparent)]
    Cache(#[from] CacheFormatError),
    /// A sampling setting is out of range, or the engine does not support the number of slots.
    #[error(transparent)]
    Engine(#[from] SettingError),
    /// The operating system cannot start a thread.
    #[error("cannot start the model's thread: {0}")]
    Thread(#[source] io::Error),
}

/// A model and its serving options, checked before the weights are read.
#[derive(Debug)]
pub struct LoadPlan<'a> {
    model: &'a Model,
    options: ServeOptions,
    tokenizer: Tokenizer,
    chat: Option<ChatFormat>,
    tool_chat: Option<ChatFormat>,
    /// The draft model.
    draft: Option<&'a Model>,
    /// The context in tokens.
    context: usize,
    /// The warnings of [`Model::sampling_defaults`].
    ignored: Vec<String>,
}

impl<'a> LoadPlan<'a> {
    /// Checks everything that does not need the weights: the tokenizer, the chat template, the context, the
    /// format of the caches and the sampling settings.
    ///
    /// # Errors
    /// The model has no tokenizer, or does not support the options.
    pub fn new(model: &'a Model, mut options: ServeOptions) -> Result<Self, LoadError> {
        let tokenizer = model.require_tokenizer()?;
        let template = options.chat_template.as_deref();
        let format = |encoder: ChatEncoder| ChatFormat {
            stops: model.chat_stops(&tokenizer, &encoder),
            encoder,
        };
        let chat = model.chat(&tokenizer, template)?.map(format);
        let tool_chat = model.tool_chat(&tokenizer, template)?.map(format);
        options.sampling.check(model.config().vocab_size())?;
        options.cache.check(model.config())?;
        let (recommended, ignored) = model.sampling_defaults();
        options.sampling = options.sampling.or(recommended);
        Ok(Self {
            context: model.context(options.context)?,
            model,
            options,
            tokenizer,
            chat,
            tool_chat,
            draft: None,
            ignored,
        })
    }

    /// Adds a smaller model that drafts tokens.
    ///
    /// # Errors
    /// It cannot draft tokens for the model: [`EngineConfig::check_draft`].
    pub fn with_draft(self, draft: &'a Model) -> Result<Self, LoadError> {
        self.engine()
            .check_draft(self.model.config(), draft.config())?;
        Ok(Self {
            draft: Some(draft),
            ..self
        })
    }

    /// The model that drafts tokens.
    pub fn draft(&self) -> Option<&'a Model> {
        self.draft
    }

    /// The model to serve.
    pub fn model(&self) -> &'a Model {
        self.model
    }

    /// Warnings about settings in the model's `generation_config.json` that are ignored because they are
    /// invalid.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// The serving options.
    pub fn options(&self) -> &ServeOptions {
        &self.options
    }

    /// The configuration of the engine. An encoder–decoder has the keys and values of a source beside those of its target.
    pub fn engine(&self) -> EngineConfig {
        let config = self.model.config();
        let caches = match config.kind() {
            ModelKind::EncoderDecoder => 2,
            ModelKind::Decoder | ModelKind::Encoder => 1,
        };
        let one = caches * count::kv_cache(config, self.context, self.options.cache);
        EngineConfig {
            slots: self.options.slots.unwrap_or_else(|| fitting_slots(one)),
            capacity: self.context,
            deterministic: self.options.deterministic,
            drafting: self.options.drafting,
            ..EngineConfig::for_model(config)
        }
    }

    /// Starts the engine on its own thread, and serves the model by it. Combines [`LoadPlan::start`] and
    /// [`LoadPlan::serve`].
    ///
    /// # Errors
    /// Those of [`LoadPlan::start`].
    pub fn load<B: Backend>(
        self,
        weights: impl Into<Weights<B>>,
        sandbox: Option<GrammarSandbox>,
        reload: Option<Reload<Weights<B>>>,
    ) -> Result<Loaded<B>, LoadError> {
        let Started {
            worker,
            replacer,
            cache_bytes,
        } = self.start(weights, reload, None)?;
        Ok(Loaded {
            served: self.serve(worker, sandbox)?,
            replacer,
            cache_bytes,
        })
    }

    /// Starts the engine on its own thread. With `reload`, the model is unloaded when another one needs its memory, and
    /// loaded again for its next request. Sequences are restored from `prompt_cache`, and saved there by [`Worker::close`].
    ///
    /// # Errors
    /// The backend does not support the format of the caches, the engine does not support the number of slots, or
    /// the operating system cannot start a thread.
    pub fn start<B: Backend>(
        &self,
        weights: impl Into<Weights<B>>,
        reload: Option<Reload<Weights<B>>>,
        prompt_cache: Option<PromptCache>,
    ) -> Result<Started<B>, LoadError> {
        let (config, cache) = (self.engine(), self.options.cache);
        let mut engine = engine_of(weights.into(), config, cache)?;
        if let Some(cache) = &prompt_cache {
            cache.restore(&mut engine);
        }
        let cache_bytes = engine.cache_bytes();
        let limit = engine.config().slots.saturating_add(self.options.queue);
        let again = move |weights: Weights<B>| {
            engine_of(weights, config, cache).map_err(|error| error.to_string())
        };
        let save = prompt_cache.map(|cache| move |engine: &Engine<B>| cache.save(engine));
        let engine = OnDemand::new(engine, reload.map(|reload| reload.map(again))).saved_by(save);
        let (worker, replacer) = Worker::start(engine, limit).map_err(LoadError::Thread)?;
        Ok(Started {
            worker,
            replacer,
            cache_bytes,
        })
    }

    /// Serves the model by a thread that runs already. Models of one thread are a base model and adapters of it, each with
    /// its handle ([`Worker::with_adapter`]). Grammars of clients are first compiled in `sandbox`. Without a sandbox, a
    /// hostile grammar can exhaust the memory and the stack of this process.
    ///
    /// # Errors
    /// The model's tokenizer cannot be read.
    pub fn serve(
        self,
        worker: Worker,
        sandbox: Option<GrammarSandbox>,
    ) -> Result<ServedModel, LoadError> {
        let Self {
            model,
            options,
            tokenizer,
            chat,
            tool_chat,
            draft: _,
            context: _,
            ignored: _,
        } = self;
        let card = Card::of(model)?;
        let kind = match model.kind() {
            ModelKind::EncoderDecoder => {
                ServedKind::EncoderDecoder(SequenceEncoder::new(&tokenizer, usize::MAX))
            }
            ModelKind::Decoder | ModelKind::Encoder => ServedKind::Decoder {
                beginning: model.beginning(&tokenizer),
            },
        };
        Ok(ServedModel {
            name: options.name,
            aliases: options.aliases,
            created: modified(model.path()),
            chat,
            tool_chat,
            sampling: options.sampling,
            stop_tokens: model.stop_tokens(Some(&tokenizer)),
            kind,
            card: Box::new(move || card.clone()),
            tokenizer,
            worker,
            tables: Tables::new(sandbox),
            source: ModelSource::of(model),
        })
    }
}

/// The engine of a model whose caches have a format.
fn engine_of<B: Backend>(
    weights: Weights<B>,
    config: EngineConfig,
    cache: CacheFormat,
) -> Result<Engine<B>, LoadError> {
    let model = weights.model.with_cache_format(cache)?;
    let engine = Engine::new(Arc::new(model), config)?;
    Ok(match weights.draft {
        Some(draft) => engine.with_draft_model(Arc::new(draft.with_cache_format(cache)?))?,
        None => engine,
    })
}

/// The number of slots whose caches of `bytes` each fit the memory for caches.
fn fitting_slots(bytes: usize) -> usize {
    (CACHE_BYTES / bytes.max(1)).clamp(1, MAX_SLOTS)
}

/// Starts the engine of a model whose weights are loaded. Combines [`LoadPlan::new`] and [`LoadPlan::load`].
///
/// # Errors
/// The model has no tokenizer, or does not support the options.
pub fn load<B: Backend>(
    model: &Model,
    decoder: Transformer<B>,
    options: &ServeOptions,
    sandbox: Option<GrammarSandbox>,
) -> Result<Loaded<B>, LoadError> {
    LoadPlan::new(model, options.clone())?.load(decoder, sandbox, None)
}

impl ModelSource {
    /// The paths of a model, without its memory.
    fn of(model: &Model) -> Self {
        Self {
            path: model.path().to_owned(),
            base: model.adapter().map(|adapter| adapter.base.path.clone()),
            follows: false,
            memory: None,
        }
    }
}

impl Card {
    /// The description of a model, without loss curves.
    ///
    /// # Errors
    /// The model's tokenizer cannot be read.
    pub fn of(model: &Model) -> Result<Self, ModelError> {
        let config = model.config();
        let spec = model.tokenizer_spec()?;
        Ok(Self {
            family: config.family().name().to_owned(),
            parameters: count::parameters(config).total as u64,
            tokenizer: spec.map_or_else(String::new, |spec| spec.kind.to_string()),
            about: model.about()?,
            ..Self::default()
        })
    }
}

/// The modification time of a directory in seconds since 1970.
fn modified(path: &Path) -> u64 {
    let time = fs::metadata(path).and_then(|metadata| metadata.modified());
    let since = time
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_secs())
}

//! A model directory as a model that is served.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use emberlm_checkpoint::model::GENERATION_CONFIG_FILE;
use emberlm_checkpoint::{Model, ModelError};
use emberlm_generate::{Engine, EngineConfig, GrammarSandbox, SamplingDefaults, SettingError};
use emberlm_kernels::Backend;
use emberlm_model::{Decoder, count};
use emberlm_tokenizer::Tokenizer;
use emberlm_tokenizer::chat::ChatEncoder;

use crate::model::{Card, ChatFormat, ServedModel, Tables};
use crate::worker::{Replacer, Worker};

/// The memory of all slots' caches, in bytes, where the number of slots is open.
const CACHE_BYTES: usize = 1 << 30;
/// The maximum number of slots where the number is open.
const MAX_SLOTS: usize = 64;

/// The options that a model is served with.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// The name that clients ask for.
    pub name: String,
    /// Other names that clients may ask for.
    pub aliases: Vec<String>,
    /// The number of sequences that are generated at once; `None` for as many as 1 GiB of caches allow, at most 64.
    pub slots: Option<usize>,
    /// The tokens of a prompt and its answer; `None` for [`Model::context`]'s default.
    pub context: Option<usize>,
    /// The number of requests that may wait while all slots are taken.
    pub queue: usize,
    /// The chat template (chatml, llama3 or a path); `None` for the model's own.
    pub chat_template: Option<String>,
    /// The sampling settings of requests that leave them out; where one is `None`, that of the model's `generation_config.json`.
    pub sampling: SamplingDefaults,
    /// True to compute each answer in separate passes, so that it does not depend on other requests.
    pub deterministic: bool,
}

/// A model whose engine runs.
pub struct Loaded<B: Backend> {
    /// The model, to be put into a [`Service`](crate::api::Service).
    pub served: ServedModel,
    /// Replaces the model's decoder while it is served.
    pub replacer: Replacer<B>,
    /// The memory of all slots' caches, in bytes.
    pub cache_bytes: usize,
}

/// A model that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The model has no tokenizer, a shorter context, or a chat template that cannot be used.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A sampling setting is out of its range, or the engine does not take the number of slots.
    #[error(transparent)]
    Engine(#[from] SettingError),
    /// The operating system gives no thread.
    #[error("cannot start the model's thread: {0}")]
    Thread(#[source] io::Error),
}

/// A model and the options that it is served with, checked before its weights are read.
#[derive(Debug)]
pub struct LoadPlan<'a> {
    model: &'a Model,
    options: ServeOptions,
    tokenizer: Tokenizer,
    chat: Option<ChatFormat>,
    tool_chat: Option<ChatFormat>,
    /// The tokens of a prompt and its answer.
    context: usize,
    /// Warnings of [`sampling_defaults`].
    ignored: Vec<String>,
}

impl<'a> LoadPlan<'a> {
    /// Checks what can be checked without weights: the tokenizer, the chat template, the context and the sampling settings.
    ///
    /// # Errors
    /// The model has no tokenizer, or does not fit the options.
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
        let (recommended, ignored) = sampling_defaults(model);
        options.sampling = options.sampling.or(recommended);
        Ok(Self {
            context: model.context(options.context)?,
            model,
            options,
            tokenizer,
            chat,
            tool_chat,
            ignored,
        })
    }

    /// The model.
    pub fn model(&self) -> &'a Model {
        self.model
    }

    /// Warnings about settings of the model's `generation_config.json` that are ignored because they break a rule.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// The options that the model is served with.
    pub fn options(&self) -> &ServeOptions {
        &self.options
    }

    /// The engine that the model is served with.
    pub fn engine(&self) -> EngineConfig {
        let config = self.model.config();
        let one = count::kv_cache(config, self.context);
        let fitting = || (CACHE_BYTES / one.max(1)).clamp(1, MAX_SLOTS);
        EngineConfig {
            slots: self.options.slots.unwrap_or_else(fitting),
            capacity: self.context,
            deterministic: self.options.deterministic,
            ..EngineConfig::for_model(config)
        }
    }

    /// Starts the engine on a dedicated thread. Clients' grammars are compiled in `sandbox` first; without one they are
    /// compiled in this process, where a hostile grammar can exhaust its memory and its stack.
    ///
    /// # Errors
    /// The engine refuses the number of slots, or the operating system gives no thread.
    pub fn load<B: Backend>(
        self,
        decoder: Decoder<B>,
        sandbox: Option<GrammarSandbox>,
    ) -> Result<Loaded<B>, LoadError> {
        let engine = self.engine();
        let Self {
            model,
            options,
            tokenizer,
            chat,
            tool_chat,
            context: _,
            ignored: _,
        } = self;
        let engine = Engine::new(Arc::new(decoder), engine)?;
        let cache_bytes = engine.cache_bytes();
        let limit = engine.config().slots.saturating_add(options.queue);
        let (worker, replacer) = Worker::start(engine, limit).map_err(LoadError::Thread)?;
        let card = Card::of(model)?;
        let served = ServedModel {
            name: options.name,
            aliases: options.aliases,
            created: modified(model.path()),
            chat,
            tool_chat,
            sampling: options.sampling,
            stop_tokens: model.stop_tokens(Some(&tokenizer)),
            beginning: model.beginning(&tokenizer),
            card: Box::new(move || card.clone()),
            tokenizer,
            worker,
            tables: Tables::new(sandbox),
        };
        Ok(Loaded {
            served,
            replacer,
            cache_bytes,
        })
    }
}

/// Starts the engine of a model whose weights have been read: [`LoadPlan::new`] and [`LoadPlan::load`].
///
/// # Errors
/// The model has no tokenizer, or does not fit the options.
pub fn load<B: Backend>(
    model: &Model,
    decoder: Decoder<B>,
    options: &ServeOptions,
    sandbox: Option<GrammarSandbox>,
) -> Result<Loaded<B>, LoadError> {
    LoadPlan::new(model, options.clone())?.load(decoder, sandbox)
}

/// The settings that a model's `generation_config.json` recommends, and a warning about each that is ignored because it
/// breaks a rule.
pub fn sampling_defaults(model: &Model) -> (SamplingDefaults, Vec<String>) {
    let fields = match model.generation_config() {
        Ok(fields) => fields,
        Err(error) => {
            let warning = format!("{error}; the file is ignored");
            return (SamplingDefaults::default(), vec![warning]);
        }
    };
    let (defaults, ignored) = SamplingDefaults::read(&fields, model.config().vocab_size());
    let path = model.path().join(GENERATION_CONFIG_FILE);
    let warning = |error: &SettingError| format!("{}: {error}; it is ignored", path.display());
    (defaults, ignored.iter().map(warning).collect())
}

impl Card {
    /// The description of a model, without losses.
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

/// The time at which a directory was last written, in seconds since 1970.
fn modified(path: &Path) -> u64 {
    let time = fs::metadata(path).and_then(|metadata| metadata.modified());
    let since = time
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_secs())
}

//! `emberlm generate`: continues a text and prints it while it is generated.

mod args;
mod beams;
pub mod choice;
mod encoder_decoder;
pub mod sampling;
pub mod sampling_args;
pub mod speed;
pub mod timing;
mod writer;

pub use args::GenerateArgs;

use std::path::Path;

use burn::tensor::Device;
use emberlm::CONTINUATION_TOKENS;
use emberlm_checkpoint::{Model, ModelKind, kind_of};
use emberlm_generate::{GenerateOptions, Generator, Speculator};
use emberlm_kernels::TrainingBackend;
use emberlm_model::{CacheFormat, WeightFormat};
use emberlm_tokenizer::{StopStrings, Tokenizer};
use emberlm_trainer::fit::InferenceWork;

use crate::backend::{Job, Placement};
use crate::console;
use crate::error::CliError;
use crate::memory_guard::Work;
use crate::model::{self, needed};
use crate::output::print;
use sampling::Sampling;
use speed::Stopwatch;
use writer::Writer;

/// Generates tokens and prints them as text, ids or JSON.
pub fn run(args: GenerateArgs) -> Result<(), CliError> {
    if kind_of(&args.model) == ModelKind::EncoderDecoder {
        return encoder_decoder::run(args);
    }
    let backend = args.backend.choose()?;
    let model = args.adapter.open_decoder(&args.model)?;
    let tokenizer = model.tokenizer()?;
    let prompt = prompt(&args, &model, tokenizer.as_ref())?;
    check_length(&prompt.ids, model.config().seq_len())?;
    if let Some(beams) = args.beams {
        return beams::run(&args, beams, backend, &model, tokenizer.as_ref(), prompt);
    }
    let stops = StopStrings::new(&args.stop)?;
    if !args.stop.is_empty() {
        choice::with_text(tokenizer.as_ref(), &args.model)?;
    }
    let stop_tokens = model.stop_tokens(tokenizer.as_ref());
    let choice = &args.choice;
    let mut chooser = choice.chooser(&model, tokenizer.as_ref(), &args.model, &stop_tokens)?;
    chooser.top_logprobs = args.logprobs;
    let defaults = model::sampling_defaults(&model);
    let sampling = Sampling::resolve(choice, args.max_new_tokens, &defaults, CONTINUATION_TOKENS);
    if args.verbose {
        console::note(&sampling);
    }
    let options = GenerateOptions {
        max_new_tokens: sampling.max_new_tokens.value,
        stop_tokens,
        chooser: sampling.apply(chooser),
        ..GenerateOptions::default()
    };
    let draft = args
        .draft
        .as_deref()
        .map(|path| draft(path, &args, tokenizer.as_ref()));
    let draft = draft.transpose()?;
    let tokens = (prompt.ids.len(), options.max_new_tokens);
    check_memory(&args, backend, &model, draft.as_ref(), tokens)?;
    backend.run(Generate {
        model: &model,
        draft,
        draft_tokens: args.draft_tokens,
        tokenizer: tokenizer.as_ref(),
        prompt,
        options,
        stops,
        weights: args.weights.weights,
        cache: args.cache.cache,
        json: args.json,
        verbose: args.verbose,
    })?
}

/// Checks that the weights, the KV caches and the prompt's forward pass fit into memory.
fn check_memory(
    args: &GenerateArgs,
    backend: Placement,
    model: &Model,
    draft: Option<&Model>,
    (prompt, new): (usize, usize),
) -> Result<(), CliError> {
    let work = |model: &Model| {
        let context = model.config().seq_len();
        let capacity = prompt.saturating_add(new).min(context);
        // When the context is full, the newest half of it is processed again.
        let pass = prompt.clamp(1, context).max(capacity / 2);
        let weights =
            model::inference_weights(model, args.weights.weights, backend.keeps_packed_weights());
        InferenceWork::generation(weights, 1, capacity, pass).with_cache(args.cache.cache)
    };
    let models = [Some(model), draft];
    let works: Vec<Work<'_>> = models
        .iter()
        .flatten()
        .map(|model| (model.config(), work(model)))
        .collect();
    let guard = args.memory.guard(backend);
    guard.check_inference("generating", &works, &[])
}

/// Opens the draft model, which must have the same tokenizer.
fn draft(
    path: &Path,
    args: &GenerateArgs,
    tokenizer: Option<&Tokenizer>,
) -> Result<Model, CliError> {
    let draft = model::open(path)?.of_kind(ModelKind::Decoder)?;
    let other = draft.tokenizer()?;
    match (tokenizer, other) {
        (Some(tokenizer), Some(other)) if !tokenizer.agrees_with(&other) => {
            let (path, model) = (path.display(), args.model.display());
            let message = format!("{path} has a different vocabulary than {model}");
            Err(CliError::new(message).hint("a draft model must have the model's tokenizer"))
        }
        _ => Ok(draft),
    }
}

/// The tokens to continue: the given ids, the encoded text, or the start of a document.
fn prompt(
    args: &GenerateArgs,
    model: &Model,
    tokenizer: Option<&Tokenizer>,
) -> Result<Prompt, CliError> {
    let silent = |ids| Prompt {
        ids,
        echo: String::new(),
    };
    if let Some(tokens) = &args.tokens {
        return Ok(silent(tokens.clone()));
    }
    let tokenizer = needed(tokenizer, &args.model)?;
    let text = args.prompt.as_deref().unwrap_or_default();
    let ids = model.prompt(tokenizer, text)?;
    let echo = match text {
        "" if model.beginning(tokenizer).is_some() => "",
        "" => "\n",
        text => text,
    };
    let echo = echo.to_owned();
    Ok(Prompt { ids, echo })
}

/// Refuses a prompt that the context cannot hold, as `chat` and `serve` do. A longer text is continued only from its end.
fn check_length(prompt: &[u32], context: usize) -> Result<(), CliError> {
    let tokens = prompt.len();
    if tokens <= context {
        return Ok(());
    }
    let message =
        format!("the prompt has {tokens} tokens, more than the model's context of {context}");
    Err(CliError::new(message).hint(format!(
        "shorten it: only its last {context} tokens could affect the text"
    )))
}

struct Prompt {
    ids: Vec<u32>,
    /// Text to print before the generated text.
    echo: String,
}

struct Generate<'a> {
    model: &'a Model,
    draft: Option<Model>,
    draft_tokens: usize,
    tokenizer: Option<&'a Tokenizer>,
    prompt: Prompt,
    options: GenerateOptions,
    stops: StopStrings,
    weights: Option<WeightFormat>,
    cache: CacheFormat,
    json: bool,
    /// True to print timings to stderr.
    verbose: bool,
}

impl Job for Generate<'_> {
    type Output = Result<(), CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let held = |model: &Model| {
            model::decoder_in::<B::InnerBackend>(model, self.weights, self.cache, &device)
        };
        let decoder = held(self.model)?;
        let draft = self.draft.as_ref().map(held).transpose()?;
        let (ids, options) = (&self.prompt.ids, &self.options);
        let logprobs = options.chooser.top_logprobs.is_some();
        let mut writer = Writer::new(self.tokenizer, ids, self.stops, self.json, logprobs);
        if !self.json {
            print(&self.prompt.echo)?;
        }
        let mut watch = Stopwatch::start();
        if let Some(draft) = &draft {
            let mut generator = Speculator::new(&decoder, draft, self.draft_tokens, ids, options)?;
            while !writer.is_stopped() && generator.next().transpose()?.is_some() {
                watch.token();
                writer.write(generator.chosen())?;
            }
            writer.finish(generator.finish(), Some(generator.guesses()))?;
        } else {
            let mut generator = Generator::new(&decoder, ids, options)?;
            while !writer.is_stopped() && generator.next().transpose()?.is_some() {
                watch.token();
                writer.write(generator.chosen())?;
            }
            writer.finish(generator.finish(), None)?;
        }
        if self.verbose {
            let speed = watch.speed(ids.len());
            console::note(format_args!("prompt: {}", speed.of_prompt()));
            console::note(format_args!("generated: {}", speed.of_tokens()));
        }
        Ok(())
    }
}

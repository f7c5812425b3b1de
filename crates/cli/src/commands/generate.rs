//! `emberlm generate`: continues a text and prints it while it is generated.

mod args;
pub mod choice;
mod encoder_decoder;
mod method;
pub mod sampling;
pub mod sampling_args;
pub mod speed;
pub mod timing;
mod writer;

pub use args::GenerateArgs;

use burn::tensor::Device;
use emberlm_checkpoint::{Model, ModelKind, kind_of};
use emberlm_generate::{GenerateOptions, Generator, PROMPT_CHUNK, beam_search};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::Transformer;
use emberlm_tokenizer::{StopStrings, Tokenizer};
use emberlm_trainer::fit::InferenceWork;

use crate::backend::{Job, Placement};
use crate::console;
use crate::draft_model;
use crate::error::CliError;
use crate::memory_guard::Work;
use crate::model::{self, needed};
use crate::output::{print, print_json};
use method::{Method, ModelDefaults};
use speed::{Speed, Stopwatch};
use writer::{GenerationOutput, Writer};

/// The line between two samples of `--num-samples`, as nanoGPT prints it.
const SEPARATOR: &str = "---------------\n";

/// Generates tokens and prints them as text, ids or JSON.
pub fn run(args: GenerateArgs) -> Result<(), CliError> {
    method::check(&args)?;
    if kind_of(&args.model) == ModelKind::EncoderDecoder {
        return encoder_decoder::run(&args);
    }
    let backend = args.backend.choose()?;
    let model = args.adapter.open_decoder(&args.model)?;
    let tokenizer = model.tokenizer()?;
    let tokenizer = tokenizer.as_ref();
    let prompt = prompt(&args, &model, tokenizer)?;
    let context = model.config().seq_len();
    check_length(&prompt.ids, context)?;
    let defaults = ModelDefaults {
        tokenizer,
        vocab_size: model.config().vocab_size(),
        stop_tokens: model.stop_tokens(tokenizer),
        sampling: model::sampling_defaults(&model),
        // A prompt that fills the context is an error of the search.
        room: context.saturating_sub(prompt.ids.len()).max(1),
    };
    let method = Method::new(&args, defaults)?;
    let draft = args.draft.as_deref();
    let draft = draft.map(|path| draft_model::open(path, &args.model, tokenizer));
    let draft = draft.transpose()?;
    check_memory(
        &args,
        backend,
        &model,
        draft.as_ref(),
        prompt.ids.len(),
        &method,
    )?;
    backend.run(Generate {
        args: &args,
        model: &model,
        draft: draft.as_ref(),
        tokenizer,
        prompt,
        method,
    })?
}

/// Checks that the weights, the KV caches and the prompt's forward pass fit into memory.
fn check_memory(
    args: &GenerateArgs,
    backend: Placement,
    model: &Model,
    draft: Option<&Model>,
    prompt: usize,
    method: &Method,
) -> Result<(), CliError> {
    let (sequences, new) = method.size();
    let work = |model: &Model| {
        let context = model.config().seq_len();
        let capacity = prompt.saturating_add(new).min(context);
        let pass = capacity.clamp(1, PROMPT_CHUNK);
        let weights =
            model::inference_weights(model, args.weights.weights, backend.keeps_packed_weights());
        InferenceWork::generation(weights, sequences, capacity, pass).with_cache(args.cache.cache)
    };
    let models = [Some(model), draft];
    let works: Vec<Work<'_>> = models
        .iter()
        .flatten()
        .map(|model| (model.config(), work(model)))
        .collect();
    let doing = match method {
        Method::Tokens(_) => "generating",
        Method::Beams(_) => "searching",
    };
    let guard = args.memory.guard(backend);
    guard.check_inference(doing, &works, &[])
}

/// The tokens to continue: the given ids, the encoded text, or the start of a document.
fn prompt(
    args: &GenerateArgs,
    model: &Model,
    tokenizer: Option<&Tokenizer>,
) -> Result<Prompt, CliError> {
    if let Some(tokens) = &args.tokens {
        return Ok(Prompt::silent(tokens.clone()));
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

impl Prompt {
    fn silent(ids: Vec<u32>) -> Self {
        Self {
            ids,
            echo: String::new(),
        }
    }
}

struct Generate<'a> {
    args: &'a GenerateArgs,
    model: &'a Model,
    /// Proposes tokens, which `model` checks.
    draft: Option<&'a Model>,
    tokenizer: Option<&'a Tokenizer>,
    prompt: Prompt,
    method: Method,
}

impl Job for Generate<'_> {
    type Output = Result<(), CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let Self { args, prompt, .. } = &self;
        let decoder = |model: &Model| {
            let formats = args.weights.with_cache(args.cache.cache);
            model::decoder_in::<B::InnerBackend>(model, formats, &device)
        };
        let model = decoder(self.model)?;
        let draft = self.draft.map(decoder).transpose()?;
        let options = match &self.method {
            Method::Tokens(options) => options,
            Method::Beams(options) => {
                let found = beam_search(&model, &prompt.ids, options)?;
                self.echo()?;
                let output = self.writer()?.show_best(&found, args.verbose)?;
                return output.iter().try_for_each(print_json);
            }
        };
        let mut outputs = Vec::new();
        let mut speed = Speed::default();
        for sample in 0..args.num_samples.unwrap_or(1) {
            if sample > 0 && !args.json {
                print(SEPARATOR)?;
            }
            let options = GenerateOptions {
                sample,
                ..options.clone()
            };
            let (output, of_sample) = self.sample(&model, draft.as_ref(), &options)?;
            outputs.extend(output);
            speed.add(&of_sample);
        }
        match args.num_samples {
            Some(_) if args.json => print_json(&outputs)?,
            _ => outputs.iter().try_for_each(print_json)?,
        }
        if args.verbose {
            let input = match self.model.kind() {
                ModelKind::EncoderDecoder => "source",
                ModelKind::Decoder | ModelKind::Encoder => "prompt",
            };
            console::note(format_args!("{input}: {}", speed.of_prompt()));
            console::note(format_args!("generated: {}", speed.of_tokens()));
        }
        Ok(())
    }
}

impl Generate<'_> {
    /// Generates and prints one sample. With `--json` it is returned, instead.
    fn sample<B: Backend>(
        &self,
        model: &Transformer<B>,
        draft: Option<&Transformer<B>>,
        options: &GenerateOptions,
    ) -> Result<(Option<GenerationOutput>, Speed), CliError> {
        let ids = &self.prompt.ids;
        let mut writer = self.writer()?;
        self.echo()?;
        let mut watch = Stopwatch::start();
        let ahead = self.args.draft_tokens;
        let mut generator = match draft {
            Some(draft) => Generator::with_draft(model, draft, ahead, ids, options)?,
            None => Generator::new(model, ids, options)?,
        };
        while !writer.is_stopped() && generator.next().transpose()?.is_some() {
            watch.token();
            writer.write(generator.chosen())?;
        }
        let speed = watch.speed(ids.len());
        let output = writer.finish(generator.finish(), generator.acceptance())?;
        Ok((output, speed))
    }

    /// A writer of the text after the prompt.
    fn writer(&self) -> Result<Writer, CliError> {
        // A target's text does not continue its source.
        let before = match self.model.kind() {
            ModelKind::EncoderDecoder => &[][..],
            ModelKind::Decoder | ModelKind::Encoder => &self.prompt.ids[..],
        };
        let stops = StopStrings::new(&self.args.stop)?;
        let logprobs = self.args.logprobs.is_some();
        let (tokenizer, json) = (self.tokenizer, self.args.json);
        Ok(Writer::new(tokenizer, before, stops, json, logprobs))
    }

    /// Prints the prompt, unless the output is JSON.
    fn echo(&self) -> Result<(), CliError> {
        match self.args.json {
            true => Ok(()),
            false => print(&self.prompt.echo),
        }
    }
}

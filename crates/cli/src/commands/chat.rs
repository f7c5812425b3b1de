//! `emberlm chat`: a conversation with a model, in a terminal or line by line.
//!
//! | module | contents |
//! |---|---|
//! | `input` | reads messages from a terminal or stdin |
//! | `command` | commands that start with `/` |
//! | `settings` | settings that `/set` changes |
//! | `conversation` | the conversation |
//! | `generator` | generates answers |
//! | `answer_content` | the reasoning, text and calls of an answer, as messages of the conversation |
//! | `answer_display` | shows reasoning, text and calls while they are generated |
//! | `interrupt` | Ctrl-C |
//! | `session` | the main loop |

mod answer_content;
mod answer_display;
mod command;
mod conversation;
mod generator;
mod input;
mod interrupt;
mod session;
mod settings;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use clap::Args;
use emberlm::ANSWER_TOKENS;
use emberlm_checkpoint::Model;
use emberlm_generate::{Engine, EngineConfig};
use emberlm_kernels::TrainingBackend;
use emberlm_tokenizer::chat::{ChatEncoder, Stops};
use emberlm_tokenizer::{StopStrings, Tokenizer};
use emberlm_trainer::fit::InferenceWork;

use crate::adapter_arg::AdapterArg;
use crate::backend::{BackendArg, Job};
use crate::cache_arg::CacheArg;
use crate::commands::generate::choice::ChoiceArgs;
use crate::commands::generate::sampling::Sampling;
use crate::console;
use crate::error::{CliError, warn};
use crate::examples;
use crate::memory_guard::MemoryArg;
use crate::model;
use crate::shell::shell_path;
use crate::values;
use crate::weights_arg::{Formats, WeightsArg};
use conversation::Conversation;
use generator::AnswerGenerator;
use input::Input;
use session::Session;
use settings::Settings;

/// Arguments of `chat`.
#[derive(Debug, Args)]
#[command(after_help = examples::CHAT)]
pub struct ChatArgs {
    /// A run, checkpoint or Hugging Face directory
    pub model: PathBuf,
    /// The system message before the conversation
    #[arg(long, value_name = "TEXT", help_heading = "Conversation")]
    pub system: Option<String>,
    /// The chat template: chatml, llama3, or the path of a template, of a tokenizer_config.json or of a folder with
    /// one [default: the model's own]
    #[arg(long, value_name = "NAME|PATH", help_heading = "Conversation")]
    pub chat_template: Option<String>,
    /// Maximum number of tokens of an answer [default: the model's, or 512]
    #[arg(long, value_name = "N", value_parser = values::at_least_one, help_heading = "Conversation")]
    pub max_new_tokens: Option<usize>,
    /// Maximum number of tokens of the conversation that the model attends to [default: the model's context, at most 8192]
    #[arg(long, value_name = "N", value_parser = values::at_least_one, help_heading = "Conversation")]
    pub context: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub choice: ChoiceArgs,
    /// Also end an answer before TEXT; can be repeated
    #[arg(long, value_name = "TEXT", value_parser = values::stop, help_heading = "Conversation")]
    pub stop: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub weights: WeightsArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub cache: CacheArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapter: AdapterArg,
    /// Print the speed, the used context and the memory after every answer, on stderr; /stats prints them once
    #[arg(long, help_heading = "Conversation")]
    pub stats: bool,
    /// Do not read or write the input history
    #[arg(long, help_heading = "Conversation")]
    pub no_history: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub memory: MemoryArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Runs the conversation until the input ends.
///
/// # Errors
/// Returns an error if the model cannot be opened or has no tokenizer or chat template, if an option is out
/// of range, or if stdin or stdout fails.
pub fn run(args: ChatArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let model = args.adapter.open_decoder(&args.model)?;
    let tokenizer = model.require_tokenizer()?;
    let encoder = model
        .chat(&tokenizer, args.chat_template.as_deref())?
        .ok_or_else(|| no_template(&args.model))?;
    let mut stops = model.chat_stops(&tokenizer, &encoder);
    stops.strings.extend(args.stop.iter().cloned());
    let strings = StopStrings::new(&stops.strings)?;
    let vocab_size = model.config().vocab_size();
    let chooser = args
        .choice
        .answer_chooser(&encoder, &tokenizer, vocab_size, &stops.tokens)?;
    let defaults = model::sampling_defaults(&model);
    let tokens = args.max_new_tokens;
    let sampling = Sampling::resolve(&args.choice, tokens, &defaults, ANSWER_TOKENS);
    let context = model.context(args.context)?;
    if args.chat_template.is_some() && !encoder.missing().is_empty() {
        let missing = encoder.missing();
        let mut names = missing[..missing.len().min(12)].join(", ");
        if missing.len() > 12 {
            names += &format!(" and {} more", missing.len() - 12);
        }
        warn(&format!(
            "the model's tokenizer has no {names}: they are written as plain text"
        ));
    }
    let pass = EngineConfig::for_model(model.config()).prefill_tokens;
    let weights =
        model::inference_weights(&model, args.weights.weights, backend.keeps_packed_weights());
    let cache = args.cache.cache;
    let work = InferenceWork::generation(weights, 1, context, pass).with_cache(cache);
    let short = |work: InferenceWork| work.with_one_slot(SHORT_CONTEXT);
    let option = format!("--context {}", SHORT_CONTEXT.min(context));
    let guard = args.memory.guard(backend);
    let works = [(model.config(), work)];
    guard.check_inference("chatting", &works, &[(&option, &short)])?;
    let input = Input::new(!args.no_history)?;
    if input.is_terminal() {
        let (about, template) = (model.about()?, encoder.template());
        console::note(format_args!(
            "{about}, {context} tokens of context, template {template}"
        ));
        console::note("/help lists the commands, Ctrl-C ends an answer, Ctrl-D the conversation");
    }
    backend.run(Chat {
        model: &model,
        tokenizer: &tokenizer,
        encoder: &encoder,
        stops,
        strings,
        formats: args.weights.with_cache(cache),
        context,
        conversation: Conversation::new(args.system),
        stats: args.stats,
        settings: Settings::new(chooser, sampling),
        input,
    })?
}

/// Context length that the hint suggests if the model's full context does not fit into memory.
const SHORT_CONTEXT: usize = 1024;

fn no_template(path: &Path) -> CliError {
    let (shown, path) = (path.display(), shell_path(path));
    CliError::new(format!(
        "{shown} has no chat template, which defines how conversations are formatted"
    ))
    .hint("choose one: --chat-template chatml, llama3, or the path of a template")
    .hint(format!(
        "a model that was not trained on conversations continues texts: emberlm generate {path}"
    ))
}

struct Chat<'a> {
    model: &'a Model,
    tokenizer: &'a Tokenizer,
    encoder: &'a ChatEncoder,
    stops: Stops,
    strings: StopStrings,
    formats: Formats,
    context: usize,
    conversation: Conversation,
    stats: bool,
    settings: Settings,
    input: Input,
}

impl Job for Chat<'_> {
    type Output = Result<(), CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let decoder = model::decoder_in::<B::InnerBackend>(self.model, self.formats, &device)?;
        let config = EngineConfig {
            slots: 1,
            capacity: self.context,
            ..EngineConfig::for_model(self.model.config())
        };
        let generator = AnswerGenerator {
            engine: Engine::new(Arc::new(decoder), config)?,
            tokenizer: self.tokenizer,
            stop_tokens: self.stops.tokens,
            strings: self.strings,
        };
        Session::new(
            generator,
            self.encoder,
            self.conversation,
            self.settings,
            self.input,
        )?
        .with_stats(self.stats)
        .run()
    }
}

//! `emberlm serve`: serves models over an OpenAI-compatible HTTP API, with a playground page.

mod bases;
mod card;
mod file;
mod fleet;
mod follow;
mod generators;
mod groups;
mod load;
mod log;
mod manager;
mod memory;
mod models;
mod prompt_cache;
mod roots;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use burn::tensor::Device;
use bytesize::ByteSize;
use clap::Args;
use emberlm_kernels::memory::{return_freed, return_freed_soon};
use emberlm_kernels::{Precision, TrainingBackend};
use emberlm_model::{CacheFormat, WeightFormat};
use emberlm_serve::api::{self, Service};
use emberlm_serve::{Admin, Hosts, Limits, LoadRequest, ServedModels, Server};
use emberlm_system::read::read_argument;
use tokio::sync::oneshot;

use crate::backend::{BackendArg, Job};
use crate::commands::watch::{AllowedHosts, cannot_listen};
use crate::console;
use crate::ending;
use crate::error::{CliError, warn};
use crate::examples;
use crate::memory_guard::{MemoryArg, MemoryGuard};
use crate::output::print;
use crate::{signals, values};
use fleet::Fleet;
use log::{Log, LogContent, LogFormat};
use manager::{Manager, WatchedFile};
use models::ModelSpec;
use roots::Roots;

/// The models that may wait to be loaded.
const WAITING_LOADS: usize = 8;
/// The port of Ollama's server.
const OLLAMA_PORT: u16 = 11434;

/// Arguments of `serve`.
#[derive(Debug, Args)]
#[command(after_help = examples::SERVE)]
pub struct ServeArgs {
    /// Runs, checkpoints or Hugging Face directories; NAME=PATH for a name other than the directory's
    #[arg(value_name = "[NAME=]MODEL", required_unless_present_any = ["follow", "config", "admin_key_file"])]
    pub models: Vec<PathBuf>,
    /// A run whose newest checkpoint is served; newer ones replace it as they appear
    #[arg(long, value_name = "[NAME=]RUN", help_heading = "Models")]
    pub follow: Vec<PathBuf>,
    /// Another name of a model, such as gpt-3.5-turbo; with one model, ALIAS is enough
    #[arg(long, value_name = "ALIAS=NAME", help_heading = "Models")]
    pub alias: Vec<String>,
    /// A TOML file with a table [[model]] for each model: its path, name, aliases and settings; its changes are applied while the server runs
    #[arg(long, value_name = "FILE", help_heading = "Models")]
    pub config: Option<PathBuf>,
    /// The port to listen on; 0 for any free port
    #[arg(long, default_value_t = 8080, help_heading = "Network")]
    pub port: u16,
    /// Listen on port 11434, at which Ollama's clients look for a server
    #[arg(long, conflicts_with = "port", help_heading = "Network")]
    pub ollama: bool,
    /// The address to listen on: by default only this machine can connect
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), help_heading = "Network")]
    pub host: IpAddr,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub allowed: AllowedHosts,
    /// A file with the API key that clients must send
    #[arg(long, value_name = "FILE", help_heading = "Network")]
    pub api_key_file: Option<PathBuf>,
    /// A file with the key of an administrator, who loads and removes models through /admin/models
    #[arg(long, value_name = "FILE", help_heading = "Administration")]
    pub admin_key_file: Option<PathBuf>,
    /// A folder below which an administrator may load models, or names on the Hub: hf:ORG, hf:ORG/NAME or hf:* [default: only models that the server was started with]
    #[arg(
        long,
        value_name = "DIR|HF",
        requires = "admin_key_file",
        help_heading = "Administration"
    )]
    pub model_root: Vec<PathBuf>,
    /// The chat template: chatml, llama3, or a template's path [default: the model's own]
    #[arg(long, value_name = "NAME|PATH", help_heading = "Models")]
    pub chat_template: Option<String>,
    /// Answers generated at the same time per model, or per base model with its adapters, each with its own cache [default: as many as 1 GiB of caches holds, at most 64]
    #[arg(long, value_name = "N", value_parser = values::at_least_one, help_heading = "Capacity")]
    pub slots: Option<usize>,
    /// Maximum number of tokens of a prompt and its answer [default: the model's context, at most 8192]
    #[arg(long, value_name = "N", value_parser = values::at_least_one, help_heading = "Capacity")]
    pub context: Option<usize>,
    /// Maximum number of tokens of an answer
    #[arg(long = "max-new-tokens", alias = "max-tokens", value_name = "N", default_value_t = 4096, value_parser = values::at_least_one, help_heading = "Capacity")]
    pub max_tokens: usize,
    /// Requests that may wait for slots per model, and answers of one request beyond the slots; further ones get 429
    #[arg(
        long,
        value_name = "N",
        default_value_t = 256,
        help_heading = "Capacity"
    )]
    pub max_queue: usize,
    /// Maximum size of a request's body; larger ones get 413
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "16MiB",
        help_heading = "Capacity"
    )]
    pub max_body: ByteSize,
    /// Memory that one request may hold until it is answered, for its prompts and, unless it streams, its answers; above it,
    /// it gets 400
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "256MiB",
        help_heading = "Capacity"
    )]
    pub max_request_memory: ByteSize,
    /// Memory that all requests together may hold; further ones get 429
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1GiB",
        help_heading = "Capacity"
    )]
    pub max_memory: ByteSize,
    /// Memory for the models: to make room for one, the one that was used least recently is unloaded until its next request
    /// [default: all stay loaded]
    #[arg(long = "memory", value_name = "SIZE", help_heading = "Capacity")]
    pub models_memory: Option<ByteSize>,
    /// Compute each answer in separate passes, so that its tokens do not depend on concurrent requests; slower under load
    #[arg(long, help_heading = "Capacity")]
    pub deterministic: bool,
    /// A smaller model with the same tokens, which drafts the answers of all models: the same text in fewer passes
    #[arg(long, value_name = "MODEL", help_heading = "Models")]
    pub draft: Option<PathBuf>,
    /// Maximum number of draft tokens per answer and pass; they repeat earlier text unless there is --draft, and only where
    /// that is measured to be faster; 0 for none
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = values::draft_tokens, help_heading = "Capacity")]
    pub draft_tokens: usize,
    /// Seconds from a request's head to the end of its answer, then it gets 504; also the time for running requests after a
    /// stop signal
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = values::at_least_one, help_heading = "Time limits")]
    pub timeout: usize,
    /// Seconds that a client may read nothing while data is waiting; then its connection is closed
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = values::at_least_one, help_heading = "Time limits")]
    pub write_timeout: usize,
    /// Detail of the request log on stderr
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = LogContent::Requests, help_heading = "Log")]
    pub log: LogContent,
    /// Format of the request log
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text, help_heading = "Log")]
    pub log_format: LogFormat,
    /// Log the fields of each request that were accepted without effect
    #[arg(long, short, help_heading = "Log")]
    pub verbose: bool,
    /// Format of the weights of linear layers and the head: f32, int8 for less memory and more speed, or a type of GGUF files
    /// for still less memory (`emberlm eval` measures the loss in quality) [default: as they are stored]
    #[arg(long, value_name = "TYPE", value_parser = values::weights_parser(), help_heading = "Models")]
    pub weights: Option<WeightFormat>,
    /// Precision of the inputs of matrix products with f32, f16 and bf16 weights: bf16 reads prompts about twice as fast on a
    /// CPU with its instructions (`emberlm devices`)
    #[arg(long, value_name = "TYPE", value_parser = values::precision_parser(), default_value = Precision::F32.name(), help_heading = "Models")]
    pub precision: Precision,
    /// Format of the key-value caches: f32, f16 for half of their memory, or q8 for about a quarter (`emberlm eval` measures the
    /// loss in quality)
    #[arg(long, value_name = "TYPE", value_parser = values::cache_parser(), default_value = CacheFormat::F32.name(), help_heading = "Models")]
    pub cache: CacheFormat,
    /// A directory that the prompt caches are saved in when the server stops, and restored from at its next start
    #[arg(long, value_name = "DIR", help_heading = "Capacity")]
    pub cache_dir: Option<PathBuf>,
    /// Maximum size of the files in --cache-dir; those that were used least recently are deleted first
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "4GiB",
        requires = "cache_dir",
        help_heading = "Capacity"
    )]
    pub cache_size: ByteSize,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub memory: MemoryArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Serves until the program is stopped.
pub fn run(args: ServeArgs) -> Result<(), CliError> {
    // Before it is read, so that no change is missed.
    let file = args.config.as_deref().and_then(WatchedFile::new);
    let specs = models::specs(&args)?;
    let backend = args.backend.choose()?;
    let read_key = |path: &Option<PathBuf>| path.as_deref().map(key).transpose();
    let (client_key, admin_key) = (
        read_key(&args.api_key_file)?,
        read_key(&args.admin_key_file)?,
    );
    let roots = Roots::new(&args.model_root)?;
    // Bind before loading the models, so that an occupied port is reported immediately.
    let port = match args.ollama {
        true => OLLAMA_PORT,
        false => args.port,
    };
    let server = Server::bind(args.host, port).map_err(|error| cannot_listen(&error))?;
    if !args.host.is_loopback() && client_key.is_none() {
        warn(
            "anybody who can reach this address may use the models: --api-key-file asks for a key",
        );
    }
    let guard = args.memory.guard(backend);
    let serve = Serve {
        args,
        specs,
        file,
        roots,
        server,
        client_key,
        admin_key,
        guard,
    };
    backend.run(serve)?
}

struct Serve {
    args: ServeArgs,
    specs: Vec<ModelSpec>,
    file: Option<WatchedFile>,
    roots: Roots,
    server: Server,
    client_key: Option<String>,
    admin_key: Option<String>,
    guard: MemoryGuard,
}

impl Job for Serve {
    type Output = Result<(), CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let Self {
            args,
            specs,
            file,
            roots,
            server,
            client_key,
            admin_key,
            guard,
        } = self;
        let (log, log_thread) = Log::start(args.log_format)?;
        return_freed();
        let mut fleet =
            Fleet::<B::InnerBackend>::new(device, args.models_memory, guard, log.clone());
        let models = fleet.load(&specs, &[], |_| Ok(()));
        let served = Arc::new(ServedModels::new(models.map_err(CliError::from)?));
        return_freed_soon();
        let (admin, loads) = admin_key.map(administrator).unzip();
        let hosts = Hosts::new(args.host, &args.allowed.names);
        let bytes = |size: ByteSize| usize::try_from(size.as_u64()).unwrap_or(usize::MAX);
        let drain = Duration::from_secs(args.timeout as u64);
        let request_log = log.requests(args.log, args.verbose).map(Arc::new);
        let mut server = server.with_write_time(Duration::from_secs(args.write_timeout as u64));
        if let Some(log) = &request_log {
            server = server.with_log(Arc::clone(log));
        }
        let is_saved = args.cache_dir.is_some();
        let service = Service {
            models: Arc::clone(&served),
            log: request_log,
            limits: Limits {
                body: bytes(args.max_body),
                tokens: args.max_tokens,
                time: drain,
                request_memory: bytes(args.max_request_memory),
                memory: bytes(args.max_memory),
                ..Limits::default()
            },
            key: client_key,
            admin,
        };
        Manager {
            fleet,
            served: Arc::clone(&served),
            args,
            roots,
            specs,
            file,
            log,
            loads,
        }
        .start()?;
        let stop = stopped()?;
        print(&format!("http://{}\n", server.address()))?;
        console::note("press Ctrl-C to stop the server");
        let ended = server.run(api::router(service), hosts, stop, drain);
        if is_saved {
            let models = served.models();
            models.iter().for_each(|model| model.worker.close());
        }
        log_thread.finish();
        ended.map_err(|error| CliError::new(error.to_string()))
    }
}

/// The access of an administrator with a key, and the models that it loads.
fn administrator(key: String) -> (Admin, mpsc::Receiver<LoadRequest>) {
    let (loads, requested) = mpsc::sync_channel(WAITING_LOADS);
    (Admin { key, loads }, requested)
}

/// Returns a channel that receives a message on the first stop signal. The second signal ends the process
/// immediately.
fn stopped() -> Result<oneshot::Receiver<()>, CliError> {
    let (sender, stop) = oneshot::channel::<()>();
    let mut sender = Some(sender);
    signals::listen(move || match sender.take() {
        Some(sender) => {
            // The server may have ended already.
            let _ = sender.send(());
            // Printed last, so that a blocked stderr does not delay the shutdown.
            console::note("finishing running requests; press Ctrl-C again to stop immediately");
        }
        None => ending::at_once(130),
    })?;
    Ok(stop)
}

/// Reads the API key from a file.
fn key(path: &Path) -> Result<String, CliError> {
    let text = read_argument(path).map_err(CliError::io("read", path))?;
    let key = text.trim();
    if key.is_empty() || key.contains(char::is_whitespace) {
        let message = format!("{} must contain one key without spaces", path.display());
        return Err(CliError::new(message).hint("create one: openssl rand -hex 32 > key"));
    }
    Ok(key.to_owned())
}

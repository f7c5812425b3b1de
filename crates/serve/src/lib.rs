//! The HTTP server: an OpenAI-compatible API with a playground page, and a live page of training runs.
//!
//! | type | purpose |
//! |---|---|
//! | [`load()`], [`LoadPlan`], [`ServeOptions`] | starts the engine of a decoder or an encoder–decoder |
//! | [`EncoderPlan`] | the same for encoders |
//! | [`ServedModel`], [`Worker`] | a served model, and the thread of its engine |
//! | [`api::Service`], [`api::router`] | serves models over HTTP |
//! | [`ServedModels`], [`Admin`], [`ModelEntry`] | changes the models while the server runs |
//! | [`Limits`] | the limits of a request |
//! | [`AnswerParser`], [`AnswerDelta`] | splits answers into reasoning, text and calls of functions |
//! | [`RequestLog`], [`RequestRecord`] | logs requests |
//! | [`Server`], [`Hosts`] | listens on an address and checks the `Host` of requests |
//! | [`watch`] | the live page of training runs |
//!
//! ```
//! use std::net::{IpAddr, Ipv4Addr};
//!
//! use burn::backend::Flex;
//! use emberlm_checkpoint::{Description, Model, write_untrained};
//! use emberlm_model::{TransformerConfig, families};
//! use emberlm_serve::api::{self, Service};
//! use emberlm_serve::{Hosts, Limits, ServedModels, ServeOptions, Server, load};
//! use emberlm_tokenizer::{Tokenizer, TokenizerKind};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A byte-level model with random weights.
//! let tokenizer = Tokenizer::builtin(TokenizerKind::Byte)?;
//! let mut config = families::preset("pocket-tales").ok_or("no such preset")?.config;
//! (config.vocab_size, config.n_layers) = (Some(tokenizer.vocab_size()), 1);
//! let config = TransformerConfig::try_from(config)?;
//! let device = Default::default();
//! let folder = tempfile::tempdir()?;
//! let description = Description {
//!     tokenizer: Some(tokenizer.spec()),
//!     ..Description::of_model(&config)
//! };
//! write_untrained(folder.path(), &config.init::<Flex>(1, &device), &description, None)?;
//!
//! let model = Model::open(folder.path())?;
//! let decoder = model.decoder::<Flex>(&device)?;
//! let options = ServeOptions { name: "tiny".to_owned(), ..ServeOptions::default() };
//! let loaded = load(&model, decoder, &options, None)?;
//! let models = ServedModels::new(vec![loaded.served]).into();
//! let service = Service { models, limits: Limits::default(), key: None, admin: None, log: None };
//! let router = api::router(service);
//! let server = Server::bind(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)?;
//! let hosts = Hosts::new(server.address().ip(), &[]);
//! // `server.run(router, hosts, stop, drain)` answers requests until it is stopped through `stop`.
//! # let (stop, stopped) = tokio::sync::oneshot::channel();
//! # drop(stop);
//! # server.run(router, hosts, stopped, std::time::Duration::ZERO)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | `server` | [`Server`]: an HTTP server on one address |
//! | [`hosts`] | checks of the `Host` and `Origin` headers |
//! | `connection` | write timeouts, and which connection to close when there are too many |
//! | `jobs` | the blocking work of requests, on few threads |
//! | `held_body` | a response body that keeps a value alive until it is sent |
//! | [`api`] | the HTTP API: OpenAI-compatible endpoints, and the page's requests |
//! | `served_models`, `model_entry`, `admin` | the models, which change while the server runs |
//! | [`model`], [`worker`] | a served model, and the thread that runs its engine |
//! | [`worker_engine`] | the interface of the engines |
//! | [`prompt_cache`] | saves an engine's cached sequences, and restores them at the next start |
//! | [`residency`], `on_demand` | which models are in memory; an engine that is loaded when it is needed |
//! | `embedding_engine` | embeds and classifies the texts of concurrent requests with an encoder |
//! | [`mod@load`] | loads a model directory for serving |
//! | [`grammars`] | grammars for constrained output: vetted, compiled and cached |
//! | [`limits`] | the limits of a request |
//! | `tools` | function calls: formats, grammars and parsing |
//! | `answer_parser`, `answer_delta` | splits answers into deltas of reasoning, text and calls |
//! | `reasoning` | the tags around a model's reasoning, and their parsing |
//! | `markers` | markers in texts that arrive in parts |
//! | `channels` | answers of messages in channels, and their parsing |
//! | `metrics` | counters and histograms for Prometheus |
//! | [`request_log`] | request logging |
//! | `playground` | the page at `/` |
//! | [`mod@reference`] | the definitions of the API for the generated documentation |
//! | `asset` | embedded files of the pages, with their content security policy |
//! | [`watch`] | the live page of training runs |
//! | [`tail`] | reads lines appended to a file |
//! | `machine` | CPU and memory usage of this machine |

mod admin;
mod answer_delta;
mod answer_parser;
pub mod api;
mod asset;
mod channels;
mod connection;
mod embedding_engine;
pub mod grammars;
mod held_body;
pub mod hosts;
mod jobs;
pub mod limits;
pub mod load;
mod machine;
mod markers;
mod memory;
mod metrics;
pub mod model;
mod model_entry;
mod on_demand;
mod playground;
pub mod prompt_cache;
mod reasoning;
pub mod reference;
pub mod request_log;
pub mod residency;
mod served_models;
mod server;
pub mod tail;
mod tools;
pub mod watch;
pub mod worker;
pub mod worker_engine;

pub use admin::{Admin, LoadRequest, RefusedLoad};
pub use answer_delta::AnswerDelta;
pub use answer_parser::AnswerParser;
pub use embedding_engine::{EmbeddingConfig, EmbeddingEngine};
pub use emberlm_generate::{Drafting, SamplingDefaults};
pub use hosts::Hosts;
pub use limits::Limits;
pub use load::{EncoderPlan, LoadError, LoadPlan, Loaded, ServeOptions, Started, Weights, load};
pub use model::{Card, Classifier, EncoderFormat, ModelSource, ServedKind, ServedModel};
pub use model_entry::ModelEntry;
pub use on_demand::{OnDemand, Reload};
pub use prompt_cache::PromptCache;
pub use request_log::{RequestLog, RequestRecord};
pub use residency::{Place, Residency};
pub use served_models::ServedModels;
pub use server::{Server, ServerError};
pub use worker::{Replacer, Worker, WorkerWatch};
pub use worker_engine::{Replacement, SubmitError, WorkerEngine};

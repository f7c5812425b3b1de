//! The HTTP server: models in the shape of OpenAI's API with a playground, and a live page of training runs.
//!
//! | type | purpose |
//! |---|---|
//! | [`load()`], [`LoadPlan`], [`ServeOptions`] | starts the engine of a model |
//! | [`ServedModel`], [`Worker`] | a model with its engine's thread |
//! | [`api::Service`], [`api::router`] | models as an HTTP service |
//! | [`Limits`] | the limits of a request |
//! | [`RequestLog`], [`RequestRecord`] | a record of each request |
//! | [`Server`], [`Hosts`] | listens on an address, for the hosts that are its own |
//! | [`watch`] | the live page of runs |
//!
//! ```
//! use std::net::{IpAddr, Ipv4Addr};
//!
//! use burn::backend::Flex;
//! use emberlm_checkpoint::{Description, Model, write_untrained};
//! use emberlm_model::{DecoderConfig, families};
//! use emberlm_serve::api::{self, Service};
//! use emberlm_serve::{Hosts, Limits, ServeOptions, Server, load};
//! use emberlm_tokenizer::{Tokenizer, TokenizerKind};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A model of bytes with random weights.
//! let tokenizer = Tokenizer::builtin(TokenizerKind::Byte)?;
//! let mut config = families::preset("pocket-tales").ok_or("no such preset")?.config;
//! (config.vocab_size, config.n_layers) = (Some(tokenizer.vocab_size()), 1);
//! let config = DecoderConfig::try_from(config)?;
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
//! let service = Service { models: vec![loaded.served], limits: Limits::default(), key: None, log: None };
//! let router = api::router(service);
//! let server = Server::bind(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)?;
//! let hosts = Hosts::new(server.address().ip(), &[]);
//! // `server.run(router, hosts, stop, drain)` answers until `stop` is sent to or dropped.
//! # let (stop, stopped) = tokio::sync::oneshot::channel();
//! # drop(stop);
//! # server.run(router, hosts, stopped, std::time::Duration::ZERO)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Files
//!
//! | file | content |
//! |---|---|
//! | `server` | [`Server`]: an HTTP server on one address |
//! | [`hosts`] | the hosts that a server answers for, and the pages that may ask it |
//! | `connection` | how long a client may read nothing, and which connection gives way to a new one |
//! | `held_body` | an answer's body that keeps something until it is sent |
//! | [`api`] | the HTTP API: OpenAI's, and the page's requests |
//! | [`model`], [`worker`] | a model that is served, and the thread that runs it |
//! | [`mod@load`] | a model directory as a model that is served |
//! | [`grammars`] | the grammars that texts are constrained to: vetted, compiled and cached |
//! | [`limits`] | the limits of a request |
//! | `tools` | calls of functions: their formats, grammars and parsing |
//! | `metrics` | counters and histograms for Prometheus |
//! | [`request_log`] | the records of requests for a log |
//! | `playground` | the page at `/` |
//! | [`reference`] | the definitions of the API for the generated documentation |
//! | `asset` | the pages' files, inside of the program, and what a browser may do with them |
//! | [`watch`] | a live page of runs |
//! | [`tail`] | lines added to a file since it was last read |
//! | `machine` | the load of this machine |

pub mod api;
mod asset;
mod connection;
pub mod grammars;
mod held_body;
pub mod hosts;
pub mod limits;
pub mod load;
mod machine;
mod metrics;
pub mod model;
mod playground;
pub mod reference;
pub mod request_log;
mod server;
pub mod tail;
mod tools;
pub mod watch;
pub mod worker;

pub use emberlm_generate::SamplingDefaults;
pub use hosts::Hosts;
pub use limits::Limits;
pub use load::{LoadError, LoadPlan, Loaded, ServeOptions, load};
pub use model::{Card, ServedModel};
pub use request_log::{RequestLog, RequestRecord};
pub use server::{Server, ServerError};
pub use worker::{Replacer, Worker};

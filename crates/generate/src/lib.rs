//! From a prompt's token ids to new ones.
//!
//! Map: [`sampler`] chooses one token from logits on the host; [`plain`] runs the decoder over a key-value cache and
//! asks the sampler for each next token; [`engine`] does so for many requests at once, which share each pass over the
//! weights; [`error`] is what can be wrong. Token ids in, token ids out: text is the
//! caller's.
//!
//! ```no_run
//! # fn example<B: emberlm_kernels::Backend>(decoder: &emberlm_model::Decoder<B>) -> Result<(), emberlm_generate::GenerateError> {
//! use std::ops::ControlFlow;
//!
//! use emberlm_generate::{GenerateOptions, generate};
//!
//! let options = GenerateOptions { max_new_tokens: 20, ..GenerateOptions::default() };
//! let made = generate(decoder, &[1, 2, 3], &options, |id| {
//!     println!("{id}");
//!     ControlFlow::Continue(())
//! })?;
//! assert!(made.tokens.len() <= 20);
//! # Ok(())
//! # }
//! ```

#![recursion_limit = "256"]

mod check;
pub mod engine;
pub mod error;
mod logits;
pub mod plain;
pub mod sampler;

pub use engine::{
    Counts, Ended, Engine, EngineConfig, Event, EventKind, Overflow, Request, RequestId,
    seed_of_sample,
};
pub use error::{GenerateError, LogitsError, SettingError};
pub use plain::{Finish, GenerateOptions, Generation, Generator, generate};
pub use sampler::{Sampler, SamplerConfig};

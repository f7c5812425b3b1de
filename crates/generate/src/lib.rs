//! From a prompt's token ids to new ones.
//!
//! Map: [`sampler`] chooses one token from logits on the host; [`engine`] runs the decoder over its key-value cache and
//! asks the sampler for each next token; [`error`] is what can be wrong. Token ids in, token ids out: text is the
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

pub mod engine;
pub mod error;
pub mod sampler;

pub use engine::{Finish, GenerateOptions, Generation, Generator, generate};
pub use error::{GenerateError, LogitsError, SettingError};
pub use sampler::{Sampler, SamplerConfig};

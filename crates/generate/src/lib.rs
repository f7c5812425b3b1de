//! From a prompt's token ids to new ones.
//!
//! Map: [`sampler`] draws one token from logits on the host; [`chooser`] is all that is asked of a sequence's choices, with
//! [`penalties`], `logit_bias`, [`logprobs`] and [`constraint`]; [`plain`] runs the decoder over a key-value cache and asks the
//! chooser for each next token; [`speculative`] lets a smaller model guess ahead; [`engine`] does so for many requests at once, which share each pass over the weights;
//! [`stop_strings`] ends a text that the caller decodes; [`embedding`] is a text as a vector; [`vet`] compiles grammars of others in a sandbox first; [`error`] is what can be wrong. Token ids in, token ids out: text is the
//! caller's, and what ids stand for it says.
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
pub mod chooser;
pub mod constraint;
mod distribution;
pub mod embedding;
pub mod engine;
pub mod error;
mod grammar;
mod lexer_memory;
mod logit_bias;
mod logits;
pub mod logprobs;
pub mod penalties;
pub mod plain;
pub mod sampler;
pub mod speculative;
pub mod stop_strings;
pub mod vet;

pub use chooser::{Chooser, ChooserConfig, Chosen};
pub use constraint::{Constraint, Vocabulary};
pub use embedding::embed;
pub use engine::{
    Counts, Ended, Engine, EngineConfig, Event, EventKind, Overflow, Request, RequestId,
};
pub use error::{GenerateError, LogitsError, SettingError};
pub use grammar::Grammar;
pub use logprobs::LogProbs;
pub use penalties::Penalties;
pub use plain::{Finish, GenerateOptions, Generation, Generator, generate};
pub use sampler::{Sampler, SamplerConfig};
pub use speculative::{Guesses, Speculator};
pub use stop_strings::{Passed, StopStrings};
pub use vet::{GrammarSandbox, VetError, VettedGrammar};

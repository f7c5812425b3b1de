//! From a prompt's token ids to new ones.
//!
//! Map: [`sampler`] draws one token from logits on the host; [`chooser`] makes a sequence's choices, with
//! [`penalties`], `logit_bias`, [`logprobs`] and [`constraint`]; [`plain`] runs the decoder over a key-value cache and asks the
//! chooser for each next token; [`speculative`] lets a smaller model draft tokens; [`engine`] does so for many requests at once, which share each pass over the weights;
//! [`embedding`] is a text as a vector; [`vet`] compiles grammars of others in a sandbox first; [`error`] is what can be wrong. Token ids in, token ids out: text is the
//! caller's, and what ids stand for it says.
//!
//! | type | purpose |
//! |---|---|
//! | [`generate()`], [`Generator`], [`GenerateOptions`] | one sequence from one prompt |
//! | [`Engine`], [`EngineConfig`], [`Request`] | many requests at once over one decoder |
//! | [`SamplerConfig`], [`ChooserConfig`] | how a token is chosen: temperature, truncation, penalties, bias, constraint |
//! | [`SamplingDefaults`] | what a model's `generation_config.json` recommends |
//! | [`Grammar`], [`Constraint`], [`GrammarSandbox`] | text that follows a JSON schema, an expression or a grammar |
//! | [`Speculator`] | speculative decoding with a draft model |
//! | [`embed`] | a text as a vector |
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use burn::backend::Flex;
//! use emberlm_generate::{GenerateOptions, generate};
//! use emberlm_model::{DecoderConfig, families};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = families::preset("pocket-tales").ok_or("no such preset")?.config;
//! (config.vocab_size, config.n_layers) = (Some(16), 1);
//! let decoder = DecoderConfig::try_from(config)?.init::<Flex>(1, &Default::default());
//! let options = GenerateOptions { max_new_tokens: 5, ..GenerateOptions::default() };
//! let mut streamed = Vec::new();
//! let generation = generate(&decoder, &[1, 2, 3], &options, |id| {
//!     streamed.push(id);
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!(generation.tokens, streamed);
//! assert_eq!(streamed.len(), 5);
//! # Ok(())
//! # }
//! ```

#![recursion_limit = "256"]

mod check;
pub mod chooser;
pub mod constraint;
pub mod defaults;
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
pub mod ranges;
pub mod sampler;
pub mod speculative;
pub mod vet;

pub use chooser::{Chooser, ChooserConfig, Chosen};
pub use constraint::{Constraint, Vocabulary};
pub use defaults::SamplingDefaults;
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
pub use speculative::{DraftAcceptance, Speculator};
pub use vet::{GrammarSandbox, VetError, VettedGrammar};

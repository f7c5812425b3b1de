//! Text generation: token ids in, token ids out.
//!
//! Map: [`sampler`] draws one token from logits on the host; [`chooser`] chooses the tokens of a sequence, with
//! [`penalties`], `logit_bias`, [`logprobs`] and [`constraint`]; [`settings`] lists the sampling settings; `sequence` reads
//! tokens into a key-value cache, for all ways to generate: [`generator`] generates one sequence with the chooser, with or
//! without a draft model; [`beam`] searches for the most probable sequence; [`engine`] runs many requests concurrently with
//! shared passes over the weights. [`embedding`] computes text embeddings; [`vet`] compiles
//! untrusted grammars in a sandbox first; [`error`] has the errors. The caller converts between text and ids.
//!
//! | type | purpose |
//! |---|---|
//! | [`generate()`], [`Generator`], [`GenerateOptions`] | one sequence from one prompt, or the target of a source |
//! | [`Generator::with_draft`] | speculative decoding with a draft model |
//! | [`beam_search`], [`BeamOptions`] | the most probable of the sequences that a beam search finds |
//! | [`Engine`], [`EngineConfig`], [`Request`] | many requests at once over one decoder or encoder–decoder |
//! | [`SamplerConfig`], [`ChooserConfig`] | how a token is chosen: temperature, truncation, penalties, bias, constraint |
//! | [`SETTINGS`], [`SamplingSetting`] | the sampling settings with their ranges, names and texts, a row each |
//! | [`SamplingDefaults`] | the settings of a model's `generation_config.json` |
//! | [`Grammar`], [`Constraint`], [`GrammarSandbox`] | text that follows a JSON schema, an expression or a grammar |
//! | [`embed`] | the embedding of a text |
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use burn::backend::Flex;
//! use emberlm_generate::{GenerateOptions, generate};
//! use emberlm_model::{TransformerConfig, families};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = families::preset("pocket-tales").ok_or("no such preset")?.config;
//! (config.vocab_size, config.n_layers) = (Some(16), 1);
//! let decoder = TransformerConfig::try_from(config)?.init::<Flex>(1, &Default::default());
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

pub mod beam;
mod check;
pub mod chooser;
pub mod constraint;
mod defaults;
mod distribution;
pub mod embedding;
pub mod engine;
pub mod error;
mod expression;
mod generation_fields;
pub mod generator;
mod grammar;
pub mod grammar_limits;
pub mod json_schema;
mod lexer_memory;
mod logit_bias;
mod logits;
pub mod logprobs;
pub mod penalties;
pub mod ranges;
pub mod sampler;
mod sequence;
pub mod settings;
pub mod vet;

pub use beam::{Beam, BeamModel, BeamOptions, beam_search};
pub use chooser::{Chooser, ChooserConfig, Chosen};
pub use constraint::{Constraint, Vocabulary};
pub use embedding::embed;
pub use engine::{
    Counts, Drafting, EmbeddingRequest, Ended, Engine, EngineConfig, EngineModel, Event, EventKind,
    ModelSizes, Overflow, Request, RequestId,
};
pub use error::{GenerateError, LogitsError, SettingError};
pub use generation_fields::ignored_fields;
pub use generator::{DraftAcceptance, Finish, GenerateOptions, Generation, Generator, generate};
pub use grammar::Grammar;
pub use logprobs::LogProbs;
pub use penalties::Penalties;
pub use sampler::{Sampler, SamplerConfig};
pub use sequence::PROMPT_CHUNK;
pub use settings::{SETTINGS, SamplingDefaults, SamplingSetting, Slider};
pub use vet::{GrammarSandbox, VetError, VettedGrammar};

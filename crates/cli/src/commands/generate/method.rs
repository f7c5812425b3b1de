//! The way to generate: one token after the other, or by beam search.

use emberlm::CONTINUATION_TOKENS;
use emberlm_generate::{BeamOptions, GenerateOptions, SamplingDefaults};
use emberlm_tokenizer::Tokenizer;

use super::sampling::Sampling;
use super::{GenerateArgs, choice};
use crate::console;
use crate::error::CliError;

/// The options of a generation.
pub enum Method {
    /// One token after the other.
    Tokens(GenerateOptions),
    /// The most probable text that a beam search finds.
    Beams(BeamOptions),
}

/// The properties of a model that the options depend on.
pub struct ModelDefaults<'a> {
    pub tokenizer: Option<&'a Tokenizer>,
    pub vocab_size: usize,
    pub stop_tokens: Vec<u32>,
    pub sampling: SamplingDefaults,
    /// The number of new tokens that the context holds after the prompt. A beam search does not slide the context.
    pub room: usize,
}

/// Checks options that exclude each other for a reason.
///
/// # Errors
/// A beam search is to draw samples.
pub fn check(args: &GenerateArgs) -> Result<(), CliError> {
    if args.beams.is_some() && args.num_samples.is_some() {
        let message = "--num-samples cannot be used with --beams: a beam search draws no samples, it finds the most probable text";
        return Err(CliError::usage(message).hint("omit --beams, or omit --num-samples"));
    }
    Ok(())
}

/// Checks that several samples can differ.
fn check_samples(samples: Option<usize>, temperature: f64) -> Result<(), CliError> {
    let samples = samples.unwrap_or(1);
    if samples == 1 || temperature > 0.0 {
        return Ok(());
    }
    let message = format!(
        "--num-samples {samples} needs a temperature above 0: at 0 all samples are the same text"
    );
    Err(CliError::usage(message).hint("raise --temperature, or omit --num-samples"))
}

impl Method {
    /// The method that the arguments select.
    pub fn new(args: &GenerateArgs, model: ModelDefaults<'_>) -> Result<Self, CliError> {
        let ModelDefaults {
            tokenizer,
            vocab_size,
            stop_tokens,
            sampling: defaults,
            room,
        } = model;
        if let Some(beams) = args.beams {
            let default = defaults.max_new_tokens.unwrap_or(CONTINUATION_TOKENS);
            let options = BeamOptions {
                beams,
                length_penalty: args.length_penalty,
                max_new_tokens: args.max_new_tokens.unwrap_or(default.min(room)),
                stop_tokens,
            };
            options.check(vocab_size)?;
            return Ok(Self::Beams(options));
        }
        let choice = &args.choice;
        if !args.stop.is_empty() {
            choice::with_text(tokenizer, &args.model)?;
        }
        let mut chooser = choice.chooser(vocab_size, tokenizer, &args.model, &stop_tokens)?;
        chooser.top_logprobs = args.logprobs;
        let sampling =
            Sampling::resolve(choice, args.max_new_tokens, &defaults, CONTINUATION_TOKENS);
        if args.verbose {
            console::note(&sampling);
        }
        let chooser = sampling.apply(chooser);
        check_samples(args.num_samples, chooser.sampler.temperature)?;
        Ok(Self::Tokens(GenerateOptions {
            max_new_tokens: sampling.max_new_tokens.value,
            stop_tokens,
            chooser,
            ..GenerateOptions::default()
        }))
    }

    /// The number of sequences that are continued at once, and the maximum number of new tokens of each.
    pub fn size(&self) -> (usize, usize) {
        match self {
            Self::Tokens(options) => (1, options.max_new_tokens),
            Self::Beams(options) => (options.beams, options.max_new_tokens),
        }
    }
}

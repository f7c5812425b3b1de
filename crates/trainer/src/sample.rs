//! Samples from the current model.

use emberlm_data::Tokenizer;
use emberlm_generate::{GenerateOptions, SamplerConfig, generate};
use emberlm_kernels::Backend;
use emberlm_model::Decoder;

use crate::error::TrainError;

/// Generates `tokens` tokens from the start of a text. The result depends only on the model and `seed`.
/// `begins_with` is the special token that the run's conversations start with, if any.
pub fn sample<B: Backend>(
    decoder: &Decoder<B>,
    tokenizer: &Tokenizer,
    begins_with: Option<u32>,
    tokens: usize,
    seed: u64,
) -> Result<String, TrainError> {
    let prompt = match begins_with {
        Some(id) => vec![id],
        None => start_of_text(tokenizer),
    };
    let options = GenerateOptions {
        max_new_tokens: tokens,
        stop_tokens: tokenizer.end_of_text().into_iter().collect(),
        chooser: SamplerConfig {
            temperature: 0.8,
            seed,
            ..SamplerConfig::default()
        }
        .into(),
        ..GenerateOptions::default()
    };
    let made = generate(decoder, &prompt, &options, |_| {
        std::ops::ControlFlow::Continue(())
    })?;
    Ok(tokenizer.decode(&made.tokens).unwrap_or_default())
}

/// The token that precedes a text: end-of-text, or a line break if the vocabulary has no such token.
fn start_of_text(tokenizer: &Tokenizer) -> Vec<u32> {
    match tokenizer.end_of_text() {
        Some(end) => vec![end],
        None => {
            let line_break = tokenizer.encode("\n").ok();
            // Some tokenizers encode a line break as no tokens.
            let line_break = line_break.filter(|ids| !ids.is_empty());
            line_break.unwrap_or_else(|| vec![0])
        }
    }
}

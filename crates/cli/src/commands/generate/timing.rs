//! Timed generations of given tokens, for benchmarks.

use std::sync::Arc;

use emberlm_generate::{
    Drafting, Engine, EngineConfig, EventKind, GenerateError, GenerateOptions, Generator, Overflow,
    Request, SamplerConfig,
};
use emberlm_kernels::Backend;
use emberlm_model::Transformer;

use super::speed::{Speed, Stopwatch};

/// Times one sequence: its prompt, and `tokens` tokens after it, of which the prompt's pass gives the first.
///
/// # Errors
/// The prompt is empty, or has ids outside of the vocabulary.
pub fn time_one<B: Backend>(
    decoder: &Transformer<B>,
    prompt: &[u32],
    tokens: usize,
) -> Result<Speed, GenerateError> {
    let options = GenerateOptions {
        max_new_tokens: tokens,
        chooser: SamplerConfig::greedy().into(),
        ..GenerateOptions::default()
    };
    let mut watch = Stopwatch::start();
    for token in Generator::new(decoder, prompt, &options)? {
        token?;
        watch.token();
    }
    Ok(watch.speed(prompt.len()))
}

/// Times concurrent sequences with prompts of one length, as [`time_one`] does. A pass over all prompts comes first;
/// each later pass decodes a token of every sequence. The result counts the tokens of one sequence.
///
/// # Errors
/// There are no prompts, one is empty or has ids outside of the vocabulary, or they exceed the context.
pub fn time_batch<B: Backend>(
    decoder: &Arc<Transformer<B>>,
    prompts: Vec<Vec<u32>>,
    tokens: usize,
) -> Result<Speed, GenerateError> {
    let len = prompts.iter().map(Vec::len).max().unwrap_or(0);
    let config = EngineConfig {
        slots: prompts.len(),
        capacity: len.saturating_add(tokens).min(decoder.config().seq_len()),
        prefill_tokens: prompts.len().saturating_mul(len).max(1),
        deterministic: false,
        drafting: Drafting::Never,
    };
    let mut engine = Engine::new(Arc::clone(decoder), config)?;
    for prompt in prompts {
        engine.submit(Request {
            prompt,
            max_new_tokens: tokens,
            chooser: SamplerConfig::greedy().into(),
            // The last token is chosen and not processed, so the context is never exceeded.
            overflow: Overflow::Slide,
            ..Request::default()
        })?;
    }
    let mut failed = None;
    let mut watch = Stopwatch::start();
    while engine.step(&mut |event| {
        if let EventKind::Failed(error) = event.kind {
            failed = Some(error);
        }
    }) {
        watch.token();
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(watch.speed(len)),
    }
}

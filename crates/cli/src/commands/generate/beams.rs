//! `emberlm generate --beams`: the most probable text that a beam search finds.

use burn::tensor::Device;
use emberlm::CONTINUATION_TOKENS;
use emberlm_checkpoint::Model;
use emberlm_generate::{Beam, BeamOptions, Chosen, DecoderBeams, beam_search};
use emberlm_kernels::TrainingBackend;
use emberlm_model::{CacheFormat, WeightFormat};
use emberlm_tokenizer::{StopStrings, Tokenizer};
use emberlm_trainer::fit::InferenceWork;

use super::writer::Writer;
use super::{GenerateArgs, Prompt};
use crate::backend::{Job, Placement};
use crate::console;
use crate::error::CliError;
use crate::model;
use crate::output::print;

/// The options of a search by `beams`; `recommended` tokens at most, unless the user set another number.
pub fn options(
    args: &GenerateArgs,
    beams: usize,
    recommended: Option<usize>,
    stop_tokens: Vec<u32>,
) -> BeamOptions {
    BeamOptions {
        beams,
        length_penalty: args.length_penalty,
        max_new_tokens: args
            .max_new_tokens
            .or(recommended)
            .unwrap_or(CONTINUATION_TOKENS),
        stop_tokens,
    }
}

/// Shows the best sequence.
pub fn show(
    found: &[Beam],
    tokenizer: Option<&Tokenizer>,
    prompt: &[u32],
    args: &GenerateArgs,
) -> Result<(), CliError> {
    let Some(best) = found.first() else {
        return Ok(());
    };
    let stops = StopStrings::new(&args.stop)?;
    let mut writer = Writer::new(tokenizer, prompt, stops, args.json, false);
    for &id in &best.tokens {
        writer.write(&Chosen {
            id,
            ..Chosen::default()
        })?;
    }
    writer.finish(Some(best.finish), None)?;
    if args.verbose {
        console::note(format_args!("score: {:.4}", best.score));
    }
    Ok(())
}

/// Searches with a decoder.
pub fn run(
    args: &GenerateArgs,
    beams: usize,
    backend: Placement,
    model: &Model,
    tokenizer: Option<&Tokenizer>,
    prompt: Prompt,
) -> Result<(), CliError> {
    let recommended = model::sampling_defaults(model).max_new_tokens;
    let mut options = options(args, beams, recommended, model.stop_tokens(tokenizer));
    let context = model.config().seq_len();
    if args.max_new_tokens.is_none() {
        // The context does not slide. A prompt that fills it is an error.
        let room = context.saturating_sub(prompt.ids.len()).max(1);
        options.max_new_tokens = options.max_new_tokens.min(room);
    }
    options.check(model.config().vocab_size())?;
    let length = prompt.ids.len();
    let capacity = length.saturating_add(options.max_new_tokens).min(context);
    let weights =
        model::inference_weights(model, args.weights.weights, backend.keeps_packed_weights());
    let work = InferenceWork::generation(weights, beams, capacity, length.clamp(1, context))
        .with_cache(args.cache.cache);
    let guard = args.memory.guard(backend);
    guard.check_inference("searching", &[(model.config(), work)], &[])?;
    let found = backend.run(Search {
        model,
        prompt: &prompt.ids,
        options: &options,
        weights: args.weights.weights,
        cache: args.cache.cache,
    })??;
    if !args.json {
        print(&prompt.echo)?;
    }
    show(&found, tokenizer, &prompt.ids, args)
}

struct Search<'a> {
    model: &'a Model,
    prompt: &'a [u32],
    options: &'a BeamOptions,
    weights: Option<WeightFormat>,
    cache: CacheFormat,
}

impl Job for Search<'_> {
    type Output = Result<Vec<Beam>, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let decoder =
            model::decoder_in::<B::InnerBackend>(self.model, self.weights, self.cache, &device)?;
        let mut beams = DecoderBeams::new(&decoder, self.prompt, self.options.max_new_tokens)?;
        Ok(beam_search(&mut beams, self.options)?)
    }
}

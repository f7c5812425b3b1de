//! Completions of prompts, sampled by the engine from a model's current weights.

use std::sync::Arc;

use emberlm_generate::{
    Drafting, Engine, EngineConfig, Event, EventKind, Finish, GenerateError, Overflow, Request,
    SamplerConfig,
};
use emberlm_kernels::Backend;
use emberlm_model::Transformer;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::stop::StopSignal;

/// Tokens of prompts that are read at once.
const PREFILL_TOKENS: usize = 256;

/// A prompt to complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleRequest<'a> {
    pub(super) prompt: &'a [u32],
    /// The number of completions.
    pub(super) samples: usize,
    /// The seed of their random streams, one for each completion.
    pub(super) seed: u64,
}

/// The settings of sampled completions.
#[derive(Clone, Debug)]
pub(super) struct SampleSettings<'a> {
    pub(super) sampler: SamplerConfig,
    pub(super) max_new_tokens: usize,
    pub(super) stop_tokens: &'a [u32],
    /// Completions that are sampled at the same time.
    pub(super) slots: usize,
}

/// A sampled completion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sampled {
    /// At least one token, with the stop token.
    pub(super) ids: Vec<u32>,
    /// True if the maximum number of tokens ended it.
    pub(super) reached_limit: bool,
}

/// Samples the completions of all requests, in their order. A function of the weights, the requests and the settings.
/// `None` if a stop is requested.
///
/// The samples share passes over the weights, whose products round by the number of rows. Their rows depend only on the
/// requests.
///
/// # Errors
/// A prompt with its completion exceeds the context, or a logit is not finite.
pub(super) fn sample<B: Backend>(
    decoder: Arc<Transformer<B>>,
    requests: &[SampleRequest<'_>],
    settings: &SampleSettings<'_>,
    stop: &StopSignal,
) -> Result<Option<Vec<Sampled>>, TrainError> {
    let longest = requests.iter().map(|request| request.prompt.len()).max();
    let samples: usize = requests.iter().map(|request| request.samples).sum();
    let config = EngineConfig {
        slots: settings
            .slots
            .min(samples)
            .clamp(1, EngineConfig::MOST_SLOTS),
        capacity: longest.unwrap_or(0) + settings.max_new_tokens,
        prefill_tokens: PREFILL_TOKENS,
        deterministic: false,
        drafting: Drafting::Never,
    };
    let mut engine = Engine::new(decoder, config).map_err(GenerateError::from)?;
    let mut ids = Vec::with_capacity(requests.len());
    let mut sampled = Vec::with_capacity(requests.len());
    for request in requests {
        ids.push(
            engine.submit(Request {
                prompt: request.prompt.to_vec(),
                samples: request.samples,
                max_new_tokens: settings.max_new_tokens,
                stop_tokens: settings.stop_tokens.to_vec(),
                chooser: SamplerConfig {
                    seed: request.seed,
                    ..settings.sampler
                }
                .into(),
                overflow: Overflow::Refuse,
                adapter: None,
                prompt_logprobs: None,
            })?,
        );
        sampled.push(vec![Sampled::default(); request.samples]);
    }
    let mut failed = None;
    let mut on_event = |event: Event| {
        // Ids ascend in the order of the requests.
        let Ok(place) = ids.binary_search(&event.request) else {
            return;
        };
        let of_request: &mut Vec<Sampled> = &mut sampled[place];
        let Some(sample) = of_request.get_mut(event.sample) else {
            return;
        };
        match event.kind {
            EventKind::Token(chosen) => sample.ids.push(chosen.id),
            EventKind::Finished(ended) => match ended.finish {
                Finish::Stop(id) => sample.ids.push(id),
                Finish::Length => sample.reached_limit = true,
                Finish::Complete | Finish::Caller => {}
            },
            EventKind::Failed(error) => failed = Some(error),
            EventKind::Started | EventKind::Prompt(_) | EventKind::Embedded(_) => {}
        }
    };
    while engine.step(&mut on_event) {
        if stop.is_requested() {
            return Ok(None);
        }
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(Some(sampled.concat())),
    }
}

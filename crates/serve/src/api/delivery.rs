//! The model, the number of answers, and the form in which they are sent.

use std::time::{SystemTime, UNIX_EPOCH};

use rand::RngExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::body::{FieldGroup, Object};
use super::error::ApiError;
use crate::model::ServedModel;

/// The fields that every request for text may have beside [`super::settings::Settings`].
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Delivery {
    /// The name or an alias of the model.
    pub model: String,
    /// Number of answers to each prompt, at most the slots and `--max-queue` together. Answers beyond the slots wait for
    /// one.
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = 1))]
    n: Option<u32>,
    /// True to send the answer while it is generated, as server-sent events.
    #[schemars(extend("default" = false))]
    stream: Option<bool>,
    /// Additions to a stream. They have no effect on other answers.
    stream_options: Option<Object<StreamOptions>>,
    /// At most `n`: all answers are returned, and none is chosen from more. Has no effect.
    #[schemars(range(min = 0, max = u32::MAX))]
    best_of: Option<u32>,
}

impl FieldGroup for Delivery {}

/// Additions to a stream.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StreamOptions {
    /// True to send the token counts in the last chunk.
    include_usage: Option<bool>,
}

impl Delivery {
    pub fn streams(&self) -> bool {
        self.stream == Some(true)
    }

    /// Returns true if a stream should end with the token counts.
    pub fn reports_usage(&self) -> bool {
        self.stream_options
            .as_ref()
            .is_some_and(|options| options.0.include_usage == Some(true))
    }

    /// The number of answers per prompt.
    ///
    /// # Errors
    /// The number is 0 or exceeds the number of sequences that can run and wait at the same time, or the best of more
    /// answers is requested.
    pub fn samples(&self, model: &ServedModel) -> Result<usize, ApiError> {
        let (samples, most) = (self.n.unwrap_or(1) as usize, model.worker.limit());
        if self.best_of.is_some_and(|count| count as usize > samples) {
            let rule = "must be at most n: no answer is chosen from several; request n answers with log-probabilities and choose";
            return Err(ApiError::field("best_of", rule));
        }
        match (1..=most).contains(&samples) {
            true => Ok(samples),
            false => {
                let rule = format!(
                    "must be between 1 and {most}, the number of answers that can run and wait"
                );
                Err(ApiError::field("n", rule))
            }
        }
    }
}

/// Numbers of tokens.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Usage {
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
    pub total_tokens: usize,
    pub prompt_tokens_details: PromptTokens,
}

#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct PromptTokens {
    /// Tokens that a cache held, which were not computed again.
    pub cached_tokens: usize,
}

impl Usage {
    /// Adds the counts of one prompt and its answers.
    pub fn add(&mut self, prompt: usize, completion: usize, cached: usize) {
        self.prompt_tokens += prompt;
        self.completion_tokens += completion;
        self.total_tokens += prompt + completion;
        self.prompt_tokens_details.cached_tokens += cached;
    }
}

/// A random id for an answer, such as `cmpl-…`.
pub(crate) fn name(kind: &str) -> String {
    format!("{kind}-{:032x}", rand::rng().random::<u128>())
}

/// A random seed, for a request without one.
pub(crate) fn seed() -> u64 {
    rand::rng().random()
}

/// The current Unix time in seconds.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

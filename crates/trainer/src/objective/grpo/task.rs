//! Sampled and rewarded completions of a run that learns from rewards, and their evaluation.

use std::sync::Arc;

use emberlm_data::Tokenizer;
use emberlm_generate::SamplerConfig;
use emberlm_kernels::Backend;
use emberlm_model::Transformer;
use emberlm_system::random::split_mix;
use serde::{Deserialize, Serialize};

use super::prompts::{Prompt, PromptSet};
use super::rewards::{Answer, Rewards};
use super::sampling::{SampleRequest, SampleSettings, Sampled, sample};
use crate::config::GrpoConfig;
use crate::data::divided::exchange_values;
use crate::error::TrainError;
use crate::objective::completions::mean::Mean;
use crate::peers::Peers;
use crate::report::metrics::MetricValues;
use crate::stop::StopSignal;

/// The settings, the rewards and the tokenizer of a run.
pub(crate) struct RewardTask {
    pub(crate) config: GrpoConfig,
    pub(crate) rewards: Rewards,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) stop_tokens: Vec<u32>,
}

/// A sampled completion with its reward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Completion {
    pub(super) sampled: Sampled,
    pub(super) reward: Option<f64>,
}

/// Sampled completions.
#[derive(Default)]
pub(super) struct Completions {
    /// Those of each prompt, one after another.
    pub(super) completions: Vec<Completion>,
    /// The reasons why rewards could not be computed.
    pub(super) failures: Vec<Failure>,
}

/// A reward that could not be computed.
pub(super) struct Failure {
    /// The rank that tried.
    pub(super) rank: usize,
    pub(super) reason: String,
}

/// The completions of prompts that are sampled together.
#[derive(Default, Serialize, Deserialize)]
struct Part {
    completions: Vec<Completion>,
    failures: Vec<String>,
}

/// The prompts of an evaluation.
#[derive(Clone)]
pub(crate) struct RewardValidation {
    pub(crate) task: Arc<RewardTask>,
    pub(crate) prompts: PromptSet,
}

/// The outcome of an evaluation.
pub(crate) struct RewardOutcome {
    /// The mean reward.
    pub(crate) reward: f64,
    /// The number of prompts.
    pub(crate) prompts: usize,
    pub(crate) metrics: MetricValues,
    /// A prompt with its completion and reward.
    pub(crate) sample: String,
}

impl RewardTask {
    /// Samples `samples` completions of each of `prompts`, and rewards them. `None` if a stop is requested on any rank.
    ///
    /// Prompts are completed in parts that fill the slots, and ranks take the parts in turn. Every rank receives all
    /// completions. A part's products have the same rows on any number of ranks, and so the same bits.
    ///
    /// # Errors
    /// A completion cannot be sampled, at least half of them have no reward, or a peer cannot be reached.
    pub(super) fn completions<B: Backend>(
        &self,
        decoder: Transformer<B>,
        prompts: &[(&Prompt, u64)],
        samples: usize,
        temperature: f64,
        stop: &StopSignal,
        peers: &dyn Peers<B>,
    ) -> Result<Option<Completions>, TrainError> {
        // Adapters are joined once for all passes.
        let decoder = Arc::new(decoder.with_fused_adapters());
        let rank = peers.rank();
        let parts = prompts.chunks((self.config.slots / samples.max(1)).max(1));
        let parts: Vec<_> = parts.collect();
        let mut found = Completions::default();
        for round in parts.chunks(rank.world_size()) {
            let own = match round.get(rank.index()) {
                Some(prompts) => {
                    self.part(Arc::clone(&decoder), prompts, samples, temperature, stop)?
                }
                None => Some(Part::default()),
            };
            // Nothing from a rank that was asked to stop.
            let all: Option<Vec<Part>> = exchange_values(peers, own)?.into_iter().collect();
            let Some(all) = all else {
                return Ok(None);
            };
            for (rank, part) in all.into_iter().enumerate() {
                found.completions.extend(part.completions);
                let failures = part.failures.into_iter();
                found
                    .failures
                    .extend(failures.map(|reason| Failure { rank, reason }));
            }
        }
        let (failed, completions) = (found.failures.len(), found.completions.len());
        match found.failures.first() {
            Some(Failure { rank, reason }) if 2 * failed >= completions => {
                Err(TrainError::Rewards {
                    failed,
                    completions,
                    rank: *rank,
                    reason: reason.clone(),
                })
            }
            _ => Ok(Some(found)),
        }
    }

    /// Samples and rewards the completions of a part. `None` if a stop is requested.
    fn part<B: Backend>(
        &self,
        decoder: Arc<Transformer<B>>,
        prompts: &[(&Prompt, u64)],
        samples: usize,
        temperature: f64,
        stop: &StopSignal,
    ) -> Result<Option<Part>, TrainError> {
        let config = &self.config;
        let settings = SampleSettings {
            sampler: SamplerConfig {
                temperature,
                top_k: config.top_k,
                top_p: config.top_p,
                ..SamplerConfig::default()
            },
            max_new_tokens: config.max_new_tokens,
            stop_tokens: &self.stop_tokens,
            slots: config.slots,
        };
        let requests = prompts.iter().map(|(prompt, seed)| SampleRequest {
            prompt: &prompt.ids,
            samples,
            seed: *seed,
        });
        let requests: Vec<_> = requests.collect();
        let Some(sampled) = sample(decoder, &requests, &settings, stop)? else {
            return Ok(None);
        };
        let texts: Vec<String> = sampled.iter().map(|of| self.text(of)).collect();
        let records = prompts
            .iter()
            .flat_map(|(prompt, _)| std::iter::repeat_n(&prompt.record, samples));
        let answers = records
            .zip(&texts)
            .map(|(record, completion)| Answer { record, completion });
        let rewarded = self.rewards.of(&answers.collect::<Vec<_>>());
        let failures = rewarded.iter().filter_map(|of| of.failure.clone());
        let failures = failures.collect();
        let completions = sampled.into_iter().zip(rewarded);
        let completions = completions.map(|(sampled, rewarded)| Completion {
            sampled,
            reward: rewarded.reward,
        });
        Ok(Some(Part {
            completions: completions.collect(),
            failures,
        }))
    }

    /// The text of a completion, without the token that ended it.
    fn text(&self, sampled: &Sampled) -> String {
        let ids = match sampled.ids.split_last() {
            Some((last, before)) if !sampled.reached_limit && self.stop_tokens.contains(last) => {
                before
            }
            _ => &sampled.ids,
        };
        self.tokenizer.decode(ids).unwrap_or_default()
    }
}

/// The seed of the random streams of a prompt's completions, for the completions number `generation` of a run.
pub(super) fn sample_seed(seed: u64, generation: u64, place: usize) -> u64 {
    split_mix(split_mix(split_mix(seed) ^ generation) ^ place as u64)
}

impl RewardValidation {
    /// Rewards the most probable completion of each prompt; of the first prompts, if the prompts have more than
    /// `max_tokens`. `None` if a stop is requested on any rank. The ranks divide the prompts and have the same outcome.
    ///
    /// # Errors
    /// A completion cannot be sampled, too many have no reward, or a peer cannot be reached.
    pub(crate) fn evaluate<B: Backend>(
        &self,
        decoder: &Transformer<B>,
        max_tokens: Option<u64>,
        stop: &StopSignal,
        peers: &dyn Peers<B>,
    ) -> Result<Option<RewardOutcome>, TrainError> {
        let mut left = max_tokens.unwrap_or(u64::MAX);
        let within = |prompt: &&Prompt| {
            let before = left;
            left = left.saturating_sub(prompt.ids.len() as u64);
            before > 0
        };
        let prompts = self.prompts.prompts().iter().take_while(within);
        let prompts: Vec<(&Prompt, u64)> = prompts.map(|prompt| (prompt, 0)).collect();
        let found = self
            .task
            .completions(decoder.clone(), &prompts, 1, 0.0, stop, peers)?;
        let Some(Completions { completions, .. }) = found else {
            return Ok(None);
        };
        let (mut reward, mut tokens, mut limit) =
            (Mean::default(), Mean::default(), Mean::default());
        for completion in &completions {
            completion
                .reward
                .into_iter()
                .for_each(|value| reward.add(value));
            tokens.add(completion.sampled.ids.len() as f64);
            limit.add_share(completion.sampled.reached_limit);
        }
        let mut metrics = MetricValues::default();
        for (name, mean) in [
            ("reward", reward),
            ("completion_tokens", tokens),
            ("limit_share", limit),
        ] {
            if let Some(value) = mean.value() {
                metrics.insert(name, value);
            }
        }
        let first = prompts.first().zip(completions.first());
        Ok(Some(RewardOutcome {
            reward: reward.value().unwrap_or(f64::NAN),
            prompts: prompts.len(),
            metrics,
            sample: first.map_or_else(String::new, |((prompt, _), completion)| {
                self.shown(prompt, completion)
            }),
        }))
    }

    /// A prompt with a completion and its reward, to read.
    fn shown(&self, of: &Prompt, completion: &Completion) -> String {
        let prompt = of.record.prompt();
        let in_template = || {
            let text = self.task.tokenizer.decode(&of.ids);
            text.unwrap_or_else(|_| prompt.to_string())
        };
        let prompt = prompt.as_str().map_or_else(in_template, str::to_owned);
        let text = self.task.text(&completion.sampled);
        let reward = completion
            .reward
            .map_or_else(|| "none".to_owned(), |reward| reward.to_string());
        format!("{prompt}{text}\n[reward: {reward}]")
    }
}

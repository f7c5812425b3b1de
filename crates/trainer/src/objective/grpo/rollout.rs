//! The micro-batches of a step: completions are sampled from the current weights and rewarded, and their log-probabilities
//! under the sampling and the reference model are computed by the same passes as the loss.
//!
//! Ranks take micro-batches in turn. All have the completions of all, since a group of completions may lie in the
//! micro-batches of several ranks.
//!
//! Everything is a function of the weights, the configuration and the step. Only steps that train again on the same
//! completions need what an earlier step has sampled, from weights that are gone: a checkpoint keeps it.

use std::sync::Arc;

use burn::module::AutodiffModule;
use emberlm_kernels::{Backend, TrainingBackend};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::advantage::{advantages, deviation};
use super::batch::{PolicyBatch, PolicySequence};
use super::loss::PolicyLoss;
use super::prompts::{Prompt, PromptSet};
use super::task::{Completions, Failure, RewardTask, sample_seed};
use crate::config::TrainConfig;
use crate::error::TrainError;
use crate::objective::model::{TokenBatch, TrainingModel};
use crate::objective::{CompletionBatch, HostBatch};
use crate::peers::{Peers, Rank};
use crate::stop::StopSignal;

/// The sampled completions of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollout {
    /// The number of earlier rollouts of the run.
    number: u64,
    /// The completions, those of a prompt one after another.
    sequences: Vec<RolloutSequence>,
}

/// A sampled completion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RolloutSequence {
    /// The place of the prompt among the prompts to train on.
    prompt: usize,
    /// The completion's tokens.
    completion: Vec<u32>,
    /// True if the maximum number of tokens ended it.
    reached_limit: bool,
    /// The reward, if there is one.
    reward: Option<f64>,
    /// The log-probability of each token when it was sampled, if several steps train on it.
    old: Vec<f64>,
    /// The log-probability of each token under the reference model, if there is one.
    reference: Vec<f64>,
}

/// Samples the completions of a run's steps.
pub(crate) struct Rollouts<B: Backend> {
    task: Arc<RewardTask>,
    prompts: PromptSet,
    reference: Option<ReferenceModel<B>>,
    seed: u64,
    micro_batch: usize,
    accumulation: usize,
    /// The id of padding tokens.
    padding: u32,
    stop: StopSignal,
    current: Option<Rollout>,
}

/// This rank's micro-batches of a step.
pub(crate) struct SampledStep<B: Backend> {
    pub(crate) batches: Vec<TokenBatch<B>>,
    /// A note on completions without a reward.
    pub(crate) note: Option<String>,
}

/// The model that the KL divergence is measured from.
pub(crate) enum ReferenceModel<B: Backend> {
    /// The trained model without its adapter.
    WithoutAdapter,
    /// Other weights.
    Weights(Box<TrainingModel<B>>),
}

impl<B: Backend> Rollouts<B> {
    /// Rollouts of `prompts`. `current` is that of a checkpoint.
    pub(crate) fn new(
        task: Arc<RewardTask>,
        prompts: PromptSet,
        reference: Option<ReferenceModel<B>>,
        train: &TrainConfig,
        stop: StopSignal,
        current: Option<Rollout>,
    ) -> Self {
        Self {
            seed: train.seed,
            micro_batch: train.micro_batch,
            accumulation: train.accumulation,
            padding: task.tokenizer.end_of_text().unwrap_or(0),
            task,
            prompts,
            reference,
            stop,
            current,
        }
    }

    /// This rank's micro-batches of a step after `step` others. `None` if a stop is requested on any rank.
    ///
    /// # Errors
    /// A completion cannot be sampled, too many have no reward, or a peer cannot be reached.
    pub(crate) fn batches<T>(
        &mut self,
        model: &TrainingModel<T>,
        step: usize,
        peers: &dyn Peers<B>,
    ) -> Result<Option<SampledStep<T>>, TrainError>
    where
        T: TrainingBackend<InnerBackend = B>,
    {
        let iterations = self.task.config.iterations;
        let number = (step / iterations) as u64;
        let mut note = None;
        let known = self
            .current
            .take()
            .filter(|rollout| rollout.number == number);
        let rollout = match known {
            Some(rollout) => rollout,
            // Handles of the weights, which are dropped before the update.
            None => match self.sampled(&model.valid(), number, peers)? {
                Some((rollout, failures)) => {
                    let count = failures.len();
                    note = failures.first().map(|Failure { rank, reason }| {
                        let all = rollout.sequences.len();
                        let rank = match peers.rank().world_size() {
                            1 => String::new(),
                            _ => format!("rank {rank}: "),
                        };
                        format!(
                            "warning: step {}: {count} of {all} completions lack a reward: {rank}{reason}",
                            step + 1
                        )
                    });
                    rollout
                }
                None => return Ok(None),
            },
        };
        // The model that samples is the one that the first step trains.
        let is_first = step.is_multiple_of(iterations);
        let device = model.device();
        let batches = self.host_batches(&rollout, is_first);
        let batches = of_rank(batches, peers.rank())
            .map(|batch| batch.to_tensors(&device))
            .collect();
        self.current = Some(rollout);
        Ok(Some(SampledStep { batches, note }))
    }

    /// The rollout that a run needs to continue after `step` steps.
    pub(crate) fn kept(&self, step: usize) -> Option<Rollout> {
        match step.is_multiple_of(self.task.config.iterations) {
            true => None,
            false => self.current.clone(),
        }
    }

    /// Samples the completions number `number`. `None` if a stop is requested on any rank.
    fn sampled(
        &self,
        model: &TrainingModel<B>,
        number: u64,
        peers: &dyn Peers<B>,
    ) -> Result<Option<(Rollout, Vec<Failure>)>, TrainError> {
        let Some(decoder) = model.decoder() else {
            return Err(TrainError::NoResult);
        };
        let config = &self.task.config;
        let count = self.micro_batch * self.accumulation / config.group;
        let first = number.wrapping_mul(count as u64);
        let places = self.prompts.places(first, count);
        let prompts: Vec<(&Prompt, u64)> = places
            .iter()
            .map(|&place| {
                let seed = sample_seed(self.seed, number, place);
                (&self.prompts.prompts()[place], seed)
            })
            .collect();
        let (group, temperature) = (config.group, config.temperature);
        let found = self.task.completions(
            decoder.clone(),
            &prompts,
            group,
            temperature,
            &self.stop,
            peers,
        )?;
        let Some(Completions {
            completions,
            failures,
        }) = found
        else {
            return Ok(None);
        };
        let places = places
            .into_iter()
            .flat_map(|place| std::iter::repeat_n(place, group));
        let sequences = places
            .zip(completions)
            .map(|(prompt, completion)| RolloutSequence {
                prompt,
                completion: completion.sampled.ids,
                reached_limit: completion.sampled.reached_limit,
                reward: completion.reward,
                old: Vec::new(),
                reference: Vec::new(),
            });
        let mut rollout = Rollout {
            number,
            sequences: sequences.collect(),
        };
        if config.iterations > 1 {
            let found = self.log_probabilities(model, &rollout, peers)?;
            for (sequence, old) in rollout.sequences.iter_mut().zip(found) {
                sequence.old = old;
            }
        }
        let reference = match &self.reference {
            None => return Ok(Some((rollout, failures))),
            Some(ReferenceModel::Weights(model)) => {
                self.log_probabilities(model, &rollout, peers)?
            }
            Some(ReferenceModel::WithoutAdapter) => {
                let model = TrainingModel::from(decoder.clone().without_adapter());
                self.log_probabilities(&model, &rollout, peers)?
            }
        };
        for (sequence, reference) in rollout.sequences.iter_mut().zip(reference) {
            sequence.reference = reference;
        }
        Ok(Some((rollout, failures)))
    }

    /// The log-probabilities of each completion's tokens, computed in the micro-batches of the loss.
    fn log_probabilities(
        &self,
        model: &TrainingModel<B>,
        rollout: &Rollout,
        peers: &dyn Peers<B>,
    ) -> Result<Vec<Vec<f64>>, TrainError> {
        let device = model.device();
        let mut own = Vec::new();
        for batch in of_rank(self.host_batches(rollout, true), peers.rank()) {
            let batch = batch.to_tensors::<B>(&device);
            let found = B::run(|| model.completion_log_probabilities(&batch));
            own.extend(found.into_iter().flatten());
        }
        let all = peers.gather_numbers(&own)?;
        let mut of_ranks: Vec<_> = all.into_iter().map(Vec::into_iter).collect();
        let mut found = Vec::with_capacity(rollout.sequences.len());
        for (number, rows) in rollout.sequences.chunks(self.micro_batch).enumerate() {
            let rank = number % of_ranks.len();
            for row in rows {
                let of_row = of_ranks[rank].by_ref().take(row.completion.len());
                found.push(of_row.collect::<Vec<_>>());
            }
        }
        match found.iter().flatten().all(|x| x.is_finite()) {
            true => Ok(found),
            false => Err(TrainError::NonFiniteReference),
        }
    }

    /// The micro-batches of a rollout. In the first step that trains on it, the model is the one that sampled it.
    fn host_batches(&self, rollout: &Rollout, is_first: bool) -> Vec<HostBatch> {
        let config = &self.task.config;
        let rewards: Vec<Option<f64>> = rollout.sequences.iter().map(|of| of.reward).collect();
        let advantages = advantages(&rewards, config.group, config.scale_rewards);
        let per_token = |sequences: &[RolloutSequence]| {
            let lengths = sequences.iter().map(|of| of.completion.len());
            sequences.len() as f64 / lengths.sum::<usize>().max(1) as f64
        };
        let of_step = per_token(&rollout.sequences);
        let micro_batch = |(number, rows): (usize, &[RolloutSequence])| {
            let first = number * self.micro_batch;
            let of_batch = per_token(rows);
            let sequence = |(row, sequence): (usize, &RolloutSequence)| {
                let length = sequence.completion.len();
                let start = self.prompts.prompts()[sequence.prompt].ids.len() - 1;
                let group = (first + row) / config.group * config.group;
                PolicySequence {
                    completion: start..start + length,
                    advantage: advantages[first + row],
                    scale: config.loss.token_scale(
                        length,
                        [of_batch, of_step],
                        config.max_new_tokens,
                    ),
                    old: match is_first {
                        true => Vec::new(),
                        false => sequence.old.clone(),
                    },
                    reference: sequence.reference.clone(),
                    reward: sequence.reward,
                    deviation: deviation(&rewards[group..group + config.group]),
                    reached_limit: sequence.reached_limit,
                }
            };
            let sequences = rows.iter().enumerate().map(sequence);
            self.padded(rows, sequences.collect())
        };
        let micro_batches = rollout.sequences.chunks(self.micro_batch).enumerate();
        micro_batches.map(micro_batch).collect()
    }

    /// The batch of `rows`, padded to the longest.
    fn padded(&self, rows: &[RolloutSequence], sequences: Vec<PolicySequence>) -> HostBatch {
        let prompt = |row: &RolloutSequence| &self.prompts.prompts()[row.prompt].ids;
        let lengths: Vec<usize> = rows
            .iter()
            .map(|row| prompt(row).len() + row.completion.len())
            .collect();
        let seq = lengths.iter().copied().max().unwrap_or(0);
        let mut inputs = Vec::with_capacity(rows.len() * seq);
        let mut targets = Vec::with_capacity(rows.len() * seq);
        for (number, row) in (1..).zip(rows) {
            inputs.extend(prompt(row).iter().chain(&row.completion));
            inputs.resize(number * seq, self.padding);
            targets.resize(
                (number - 1) * seq + prompt(row).len() - 1,
                emberlm_data::IGNORED,
            );
            targets.extend(&row.completion);
            targets.resize(number * seq, emberlm_data::IGNORED);
        }
        let config = &self.task.config;
        HostBatch {
            inputs,
            documents: None,
            segments: None,
            batch: rows.len(),
            lengths: Some(lengths),
            targets,
            seq,
            target_seq: seq,
            completions: Some(CompletionBatch::Policy(PolicyBatch {
                loss: PolicyLoss {
                    epsilon_low: config.epsilon_low,
                    epsilon_high: config.epsilon_high,
                    beta: config.beta,
                },
                sequences: sequences.into(),
            })),
        }
    }
}

/// The micro-batches that a rank computes, which are every `world_size`-th one.
fn of_rank(batches: Vec<HostBatch>, rank: Rank) -> impl Iterator<Item = HostBatch> {
    let batches = batches.into_iter().skip(rank.index());
    batches.step_by(rank.world_size())
}

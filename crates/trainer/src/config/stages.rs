//! The `[[train.stages]]` tables: settings that change during a run.
//!
//! The step after `n` completed steps belongs to the last stage whose `step` is at most `n`. Before the first stage, the settings
//! of `[train]` hold. All of them are pure functions of the step, so resuming needs no state.

use emberlm_data::Packing;
use emberlm_model::ModelConfig;
use emberlm_model::config::AttentionKind;

use super::check::{check_step_sequences, require};
use super::settings::settings;
use super::{ObjectiveKind, TrainConfig};
use crate::error::TrainError;
use crate::peers::Rank;

mod weights;

settings! {
    /// A stage of a run, from a step to the next stage. A setting that a stage leaves out is that of `[train]`. The learning
    /// rate still follows the steps.
    pub struct Stage in "train.stages" {
        /// Completed steps at the beginning of the stage.
        pub step: usize = 0;
        /// Micro-batches per step, over all ranks (batch-size schedule).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub accumulation: Option<usize> = None;
        /// Tokens per sequence: each sequence of the data is cut into ones of this length, so a step has the same tokens (sequence-length schedule).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub seq_len: Option<usize> = None;
        /// Tokens of the attention's window, in a decoder whose `model.attention.window` is at least as long: that one holds for evaluation and in the trained model (window schedule).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub window: Option<usize> = None;
        /// Weights of the datasets, in the order of `data.mix`: at least 0, not all 0 (curriculum). Evaluations use the weights of `data.mix`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub weights: Option<Vec<f64>> = None;
        /// Steps at the beginning of the stage in which the shares of the datasets go linearly from those before it to those of
        /// its `weights`. With 0, the default, they change at once.
        #[serde(skip_serializing_if = "is_zero")]
        pub transition: usize = 0;
    }
}

/// The table of errors.
const TABLE: &str = "train.stages";

fn is_zero(steps: &usize) -> bool {
    *steps == 0
}

impl TrainConfig {
    /// The stage of the step after `done` completed ones, if there is one.
    fn stage_at(&self, done: usize) -> Option<&Stage> {
        self.stages.iter().rfind(|stage| stage.step <= done)
    }

    /// Micro-batches of the step after `done` completed ones, over all ranks.
    pub fn accumulation_at(&self, done: usize) -> usize {
        let stage = self.stage_at(done).and_then(|stage| stage.accumulation);
        stage.unwrap_or(self.accumulation)
    }

    /// Tokens per sequence of the step after `done` completed ones; `None` for those of the data's windows.
    pub fn cut_at(&self, done: usize) -> Option<usize> {
        self.stage_at(done)?.seq_len
    }

    /// Tokens of the attention's window in the step after `done` completed ones; `None` for those of the model.
    pub fn window_at(&self, done: usize) -> Option<usize> {
        self.stage_at(done)?.window
    }

    /// Sequences of the first `steps` steps, over all ranks. Those of the data's windows: a stage's `seq_len` does not matter.
    pub fn sequences_before(&self, steps: usize) -> u64 {
        let ends = self.stages.iter().map(|stage| stage.step.min(steps));
        let mut begin = 0;
        let mut micro_batches = 0_u64;
        for end in ends.chain([steps]) {
            let accumulation = self.accumulation_at(begin) as u64;
            let steps = end.saturating_sub(begin) as u64;
            micro_batches = micro_batches.saturating_add(steps.saturating_mul(accumulation));
            begin = end;
        }
        micro_batches.saturating_mul(self.micro_batch as u64)
    }

    /// Returns true if each of the first `steps` steps has as many sequences as with the settings `other`.
    pub(crate) fn has_same_sequences(&self, other: &Self, steps: usize) -> bool {
        let stages = self.stages.iter().chain(&other.stages);
        let ends = stages.map(|stage| stage.step.min(steps)).chain([steps]);
        ends.into_iter()
            .all(|end| self.sequences_before(end) == other.sequences_before(end))
    }

    /// The least steps that have `sequences` sequences, at least 1.
    pub fn steps_of(&self, sequences: u64) -> usize {
        let mut begin = 0;
        for stage in &self.stages {
            if self.sequences_before(stage.step) >= sequences {
                break;
            }
            begin = stage.step;
        }
        let left = sequences.saturating_sub(self.sequences_before(begin));
        let of_step = self.micro_batch.saturating_mul(self.accumulation_at(begin));
        let steps = left.div_ceil(of_step.max(1) as u64) as usize;
        begin.saturating_add(steps).max(1)
    }

    /// The numbers of micro-batches of the run's steps, over all ranks.
    pub(crate) fn accumulations(&self) -> impl Iterator<Item = usize> {
        let begins = self.stages.iter().map(|stage| stage.step);
        let begins = std::iter::once(0).chain(begins.filter(|&step| step < self.steps));
        begins.map(|begin| self.accumulation_at(begin))
    }

    /// The most micro-batches of a step that each rank computes.
    ///
    /// # Errors
    /// The ranks cannot share the micro-batches of every step evenly.
    pub fn rank_micro_batches(&self, rank: Rank) -> Result<usize, TrainError> {
        let ranks = rank.world_size();
        let uneven = self
            .accumulations()
            .find(|count| !count.is_multiple_of(ranks));
        match uneven {
            None => Ok(self.accumulations().max().unwrap_or(1) / ranks),
            Some(accumulation) => Err(TrainError::UnevenRanks {
                accumulation,
                ranks,
            }),
        }
    }

    /// Checks the stages.
    ///
    /// # Errors
    /// They are out of order, or a setting is outside of its range or not one of the objective.
    pub(super) fn check_stages(&self) -> Result<(), TrainError> {
        let mut before = None;
        self.check_transitions()?;
        for stage in &self.stages {
            let (step, rule) = (stage.step, "must be above that of the stage before");
            require(
                TABLE,
                "step",
                step,
                before.is_none_or(|before| step > before),
                rule,
            )?;
            before = Some(step);
            if let Some(accumulation) = stage.accumulation {
                let rule = "must be at least 1";
                require(TABLE, "accumulation", accumulation, accumulation > 0, rule)?;
                check_step_sequences(TABLE, self.micro_batch, accumulation)?;
                let holds = !self.overfit_batch && !self.objective.samples();
                let rule = "must be absent with train.overfit_batch and with objectives that sample their sequences";
                require(TABLE, "accumulation", accumulation, holds, rule)?;
            }
            if let Some(seq_len) = stage.seq_len {
                let rule = "must be at least 1";
                require(TABLE, "seq_len", seq_len, seq_len > 0, rule)?;
                let holds = self.objective.kind() == ObjectiveKind::NextToken
                    && self.documents == Packing::Stream;
                let rule = "must be absent unless train.objective is next_token and train.documents is stream";
                require(TABLE, "seq_len", seq_len, holds, rule)?;
            }
        }
        Ok(())
    }

    /// Checks the windows of the stages.
    ///
    /// # Errors
    /// One of them is longer than that of the model, or the model has none.
    pub(super) fn check_windows(&self, model: &ModelConfig) -> Result<(), TrainError> {
        let own = match (&model.attention, model.architecture.is_decoder()) {
            (AttentionKind::Softmax { window, .. }, true) => window.as_ref(),
            _ => None,
        };
        for window in self.stages.iter().filter_map(|stage| stage.window) {
            let rule = match own {
                Some(own) => format!(
                    "must be between 1 and model.attention.window.tokens = {}",
                    own.tokens
                ),
                None => "must be absent without model.attention.window in a decoder".to_owned(),
            };
            let holds = own.is_some_and(|own| (1..=own.tokens).contains(&window));
            require(TABLE, "window", window, holds, &rule)?;
        }
        Ok(())
    }

    /// The sequence lengths of the stages.
    fn cuts(&self) -> impl Iterator<Item = usize> {
        self.stages.iter().filter_map(|stage| stage.seq_len)
    }

    /// Checks the sequence lengths of the stages for windows of `tokens` tokens.
    ///
    /// # Errors
    /// One of them does not divide the windows.
    pub(super) fn check_cuts(&self, tokens: usize) -> Result<(), TrainError> {
        let rule = format!("must divide the sequences of {tokens} tokens");
        match self.cuts().find(|&seq_len| !tokens.is_multiple_of(seq_len)) {
            Some(seq_len) => require(TABLE, "seq_len", seq_len, false, &rule),
            None => Ok(()),
        }
    }

    /// Checks that no stage cuts sequences.
    ///
    /// # Errors
    /// One of them does.
    pub(crate) fn check_not_cut(&self) -> Result<(), TrainError> {
        let rule = "must be absent for a file of records, each of which is a separate sequence";
        match self.cuts().next() {
            Some(seq_len) => require(TABLE, "seq_len", seq_len, false, rule),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;

//! The actions that are due after a step.

use crate::config::TrainConfig;

/// The actions that are due after a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct DueActions {
    /// The step is the run's last.
    pub(super) last: bool,
    pub(super) log: bool,
    pub(super) evaluate: bool,
    pub(super) save: bool,
}

impl DueActions {
    /// The actions after step `step`, counted from 1.
    pub(super) fn after(step: usize, config: &TrainConfig) -> Self {
        let last = step == config.steps;
        Self {
            last,
            log: last || step == 1 || step.is_multiple_of(config.log_interval),
            evaluate: last || step.is_multiple_of(config.evaluation.interval),
            save: step.is_multiple_of(config.checkpoints.interval),
        }
    }

    /// Returns true if anything is due.
    pub(super) fn any(self) -> bool {
        self.last || self.log || self.evaluate || self.save
    }
}

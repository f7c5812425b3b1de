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
    /// Record the norms by layer.
    pub(super) norms: bool,
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
            norms: config.norms_are_due(step),
        }
    }

    /// Returns true if anything is due.
    pub(super) fn any(self) -> bool {
        self.norms || self.may_save()
    }

    /// Returns true if a checkpoint may be written, which all ranks take part in.
    pub(super) fn may_save(self) -> bool {
        self.last || self.log || self.evaluate || self.save
    }
}

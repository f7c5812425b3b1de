//! Records the command line and the machine in a run.

use emberlm_trainer::hooks::{Hook, HookError, RunBegin};

use crate::backend::Placement;
use crate::error::warn;
use crate::run_sessions::{RunSessions, Session};

/// Adds this process to the run's sessions when the run starts.
struct SessionRecord(Placement);

impl Hook for SessionRecord {
    fn on_start(&mut self, start: &RunBegin<'_>) -> Result<(), HookError> {
        let session = Session::of_this_process(self.0, start.step);
        // A run does not depend on the record.
        if let Err(error) = RunSessions::add(start.run, session) {
            warn(error.message());
        }
        Ok(())
    }
}

/// Returns a hook that records the session.
pub(super) fn hook(placement: Placement) -> Box<dyn Hook> {
    Box::new(SessionRecord(placement))
}

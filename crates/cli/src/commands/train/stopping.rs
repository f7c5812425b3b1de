//! The steps that a run loses if it is stopped without a checkpoint.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use emberlm_checkpoint::checkpoint::newest_step;
use emberlm_trainer::hooks::{Hook, HookContext, HookError, RunBegin, StepEnd};

/// The directory and the newest step of a run, shared with the handler of signals.
#[derive(Clone, Debug, Default)]
pub struct StopReport {
    run: Arc<OnceLock<PathBuf>>,
    step: Arc<AtomicUsize>,
}

impl StopReport {
    /// The hook that follows the run.
    pub fn hook(&self) -> Box<dyn Hook> {
        Box::new(self.clone())
    }

    /// The run's directory, once it has started.
    pub fn run(&self) -> Option<&Path> {
        self.run.get().map(PathBuf::as_path)
    }

    /// A clause that states the steps since the newest checkpoint, such as "loses the 37 steps after step 500". `None`
    /// before the run has started.
    pub fn loss(&self) -> Option<String> {
        let saved = newest_step(self.run()?).ok().flatten();
        Some(loss(self.step.load(Ordering::SeqCst), saved))
    }
}

fn loss(step: usize, saved: Option<usize>) -> String {
    match saved {
        Some(saved) if saved >= step => format!("loses the steps after step {saved}"),
        Some(saved) => format!("loses the {} steps after step {saved}", step - saved),
        None if step == 0 => "loses no complete step".to_owned(),
        None => format!("loses all {step} steps: there is no checkpoint yet"),
    }
}

impl Hook for StopReport {
    fn on_start(&mut self, start: &RunBegin<'_>) -> Result<(), HookError> {
        self.step.store(start.step, Ordering::SeqCst);
        let _ = self.run.set(start.run.to_owned());
        Ok(())
    }

    fn on_step(&mut self, step: &StepEnd<'_>, _: &mut HookContext<'_>) -> Result<(), HookError> {
        self.step.store(step.step, Ordering::SeqCst);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_steps_since_the_checkpoint_are_lost() {
        for (step, saved, expected) in [
            (537, Some(500), "loses the 37 steps after step 500"),
            (500, Some(500), "loses the steps after step 500"),
            (37, None, "loses all 37 steps: there is no checkpoint yet"),
            (0, None, "loses no complete step"),
        ] {
            assert_eq!(super::loss(step, saved), expected);
        }
    }
}

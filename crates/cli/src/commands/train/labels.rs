//! `train --tag` and `--note`.

use emberlm_trainer::hooks::{Hook, HookError, RunBegin};

use super::TrainArgs;
use crate::run_labels::RunLabels;

/// Writes the command line's tags and note into the run when it starts.
struct Labelling {
    tags: Vec<String>,
    note: Option<String>,
}

impl Hook for Labelling {
    fn on_start(&mut self, start: &RunBegin<'_>) -> Result<(), HookError> {
        let report = |error: crate::error::CliError| error.message().to_owned();
        // A resumed run may have labels already.
        let mut labels = RunLabels::read(start.run).map_err(report)?;
        labels.tags.extend(self.tags.drain(..));
        if let Some(note) = self.note.take() {
            labels.note = note;
        }
        Ok(labels.write(start.run).map_err(report)?)
    }
}

/// Returns a hook that labels the run if the command line has a tag or a note.
pub(super) fn hooks(args: &TrainArgs) -> Vec<Box<dyn Hook>> {
    if args.tags.is_empty() && args.note.is_none() {
        return Vec::new();
    }
    vec![Box::new(Labelling {
        tags: args.tags.clone(),
        note: args.note.clone(),
    })]
}

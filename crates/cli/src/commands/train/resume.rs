//! Opens a stopped run to resume it.

use std::path::Path;

use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_trainer::checkpoint::Checkpoint;
use emberlm_trainer::events::{self, Event};
use emberlm_trainer::{Rank, RunConfig, RunFolder, RunStart, folder, resume, run_config};

use super::TrainArgs;
use crate::console;
use crate::error::{CliError, warn};
use crate::output::shell_path;

/// Locks the run on rank 0, and returns its configuration with new settings applied and the newest usable checkpoint.
pub fn open(run: &Path, args: &TrainArgs, rank: Rank) -> Result<(RunConfig, RunStart), CliError> {
    let held = match rank.is_zero() {
        true => Some(RunFolder::open(run)?),
        false => None,
    };
    let file = run.join(folder::CONFIG_FILE);
    let text = read_text(&file, DESCRIPTION_LIMIT).map_err(CliError::io("read", &file))?;
    let then = run_config::from_toml(&text).map_err(|error| {
        let reason = run_config::toml_reason(&error, &text);
        CliError::new(format!("{}: {reason}", file.display()))
    })?;
    let now = super::layered(then.clone(), args)?;
    resume::check_changes(run, &then, &now)?;
    let checkpoint = Checkpoint::newest_to_resume(run, |damaged| {
        warn(&format!("{damaged}; resuming from the previous checkpoint"));
    })?;
    if checkpoint.is_none() && !args.restart {
        check_nothing_is_lost(run)?;
    }
    match checkpoint.as_ref().and_then(|found| found.state.as_ref()) {
        Some(state) if state.step >= now.train.steps => console::note(format_args!(
            "{} has finished all of its {} steps; raise the number with --steps",
            run.display(),
            now.train.steps
        )),
        Some(state) => console::note(format_args!(
            "Resuming {} after step {}",
            run.display(),
            state.step
        )),
        None => console::note(format_args!(
            "{} has no checkpoint yet: beginning again",
            run.display()
        )),
    }
    let checkpoint = checkpoint.map(Box::new);
    let start = match held {
        Some(held) => RunStart::Resumed(held, checkpoint),
        None => RunStart::Joined(run.to_owned(), checkpoint),
    };
    Ok((now, start))
}

/// Returns an error if a run without a checkpoint has logged steps, since restarting would discard its log.
fn check_nothing_is_lost(run: &Path) -> Result<(), CliError> {
    let events = events::read(run).unwrap_or_default().events;
    let steps = events.iter().filter_map(|event| match event {
        Event::Step { step, .. } => Some(*step),
        _ => None,
    });
    let Some(step) = steps.max() else {
        return Ok(());
    };
    let (shown, path) = (run.display(), shell_path(run));
    Err(CliError::new(format!(
        "{shown} has no checkpoint yet: to resume it is to begin again, and its log of {step} steps would be dropped"
    ))
    .hint(format!("restart the run: emberlm train --resume {path} --restart"))
    .hint("or keep it, and start a new run with another --out"))
}

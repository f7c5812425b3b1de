//! Opens a stopped run to resume it, or a checkpoint to fork it.

use std::path::Path;

use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_trainer::ancestry::Ancestry;
use emberlm_trainer::checkpoint::Checkpoint;
use emberlm_trainer::events::{self, Event};
use emberlm_trainer::resume::{self, SettingChange};
use emberlm_trainer::{Fork, Rank, RunConfig, RunFolder, RunStart, TrainError, folder, run_config};

use super::TrainArgs;
use super::target::ResumeTarget;
use crate::console;
use crate::error::{CliError, warn};
use crate::shell::{shell_path, shell_word};

/// Opens the run or checkpoint `path`. With `--out`, the run is a new one that starts from it.
pub fn open(path: &Path, args: &TrainArgs, rank: Rank) -> Result<(RunConfig, RunStart), CliError> {
    let target = ResumeTarget::find(path)?;
    match &args.out {
        Some(out) => fork(&target, out, args),
        None => resume(&target, args, rank),
    }
}

/// Locks the run on rank 0, and returns its configuration with new settings applied and the newest usable checkpoint.
fn resume(
    target: &ResumeTarget,
    args: &TrainArgs,
    rank: Rank,
) -> Result<(RunConfig, RunStart), CliError> {
    let run = target.run()?;
    let held = match rank.is_zero() {
        true => Some(RunFolder::open(run)?),
        false => None,
    };
    let written = read_config(&run.join(folder::CONFIG_FILE))?;
    let now = super::layered(written.clone(), args)?;
    let checkpoint = newest(run)?;
    target.check_is_newest(checkpoint.as_ref())?;
    let then = checkpoint.as_ref().map(settings).transpose()?.flatten();
    check_changes(run, then.as_ref().unwrap_or(&written), &written, &now)?;
    if let Some(checkpoint) = &checkpoint {
        check_steps(run, checkpoint, &now)?;
    } else {
        check_is_complete(run)?;
        if !args.restart {
            check_nothing_is_lost(run)?;
        }
    }
    match step_of(checkpoint.as_ref()) {
        Some(step) if step >= now.train.steps => console::note(format_args!(
            "{} has finished all of its {} steps; raise the number with --steps",
            run.display(),
            now.train.steps
        )),
        Some(step) => {
            console::note(format_args!("Resuming {} after step {step}", run.display()));
            note_early_stop(run, checkpoint.as_ref(), &now);
        }
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

/// Returns the configuration of a new run in `out` with new settings applied, and the checkpoint that it starts from.
fn fork(
    target: &ResumeTarget,
    out: &Path,
    args: &TrainArgs,
) -> Result<(RunConfig, RunStart), CliError> {
    if out.join(folder::CONFIG_FILE).exists() {
        let path = out.to_owned();
        return Err(TrainError::RunExists { path }.into());
    }
    let shown = target.shown().display();
    let checkpoint = match target.checkpoint() {
        Some(path) => Some(Checkpoint::open_to_resume(path)?),
        None => newest(target.run()?)?,
    };
    let Some(checkpoint) = checkpoint else {
        return Err(CliError::new(format!(
            "{shown} has no checkpoint yet, and a fork starts from one"
        ))
        .hint("train the run until its first checkpoint"));
    };
    let Some(step) = step_of(Some(&checkpoint)) else {
        return Err(
            CliError::new(format!("{shown} has not been trained")).hint(format!(
                "start a new run from its weights: emberlm train --from {}",
                shell_path(target.shown())
            )),
        );
    };
    let then = match settings(&checkpoint)? {
        Some(settings) => settings,
        // Checkpoints of earlier versions.
        None => read_config(&target.run()?.join(folder::CONFIG_FILE))?,
    };
    let now = super::layered(then.clone(), args)?;
    let changes = resume::setting_changes(&then, &now);
    check_fork(target.shown(), &changes)?;
    check_steps(target.shown(), &checkpoint, &now)?;
    let changed: Vec<String> = changes.iter().map(SettingChange::to_string).collect();
    let changed = match changed.is_empty() {
        true => String::new(),
        false => format!(": {}", changed.join("; ")),
    };
    console::note(format_args!(
        "Forking {shown} after step {step} into {}{changed}",
        out.display()
    ));
    if step == now.train.steps {
        console::note(format_args!(
            "{shown} has finished all of its {step} steps; raise the number with --steps"
        ));
    }
    if changes.iter().all(SettingChange::may_be_resumed) {
        note_early_stop(target.shown(), Some(&checkpoint), &now);
    }
    let parent = target.run().unwrap_or(target.shown()).to_owned();
    let fork = Fork::new(out.to_owned(), parent, checkpoint, then);
    Ok((now, RunStart::Forked(fork)))
}

/// The newest usable checkpoint of a run.
fn newest(run: &Path) -> Result<Option<Checkpoint>, CliError> {
    Ok(Checkpoint::newest_to_resume(run, |damaged| {
        warn(&format!("{damaged}; resuming from the previous checkpoint"));
    })?)
}

fn step_of(checkpoint: Option<&Checkpoint>) -> Option<usize> {
    Some(checkpoint?.state.as_ref()?.step)
}

/// Prints a note if the run ends at once, since its validation loss has not improved for too many evaluations.
fn note_early_stop(shown: &Path, checkpoint: Option<&Checkpoint>, now: &RunConfig) {
    let Some(state) = checkpoint.and_then(|checkpoint| checkpoint.state.as_ref()) else {
        return;
    };
    let evaluations = state.evaluations_since_best;
    if now.train.evaluation.ends_early(evaluations) && state.step < now.train.steps {
        console::note(format_args!(
            "{} has stopped early, after {evaluations} evaluations without a lower validation loss; raise the number with --early-stop, or continue to the last step with --set train.evaluation.early_stop=0",
            shown.display()
        ));
    }
}

/// The settings that a checkpoint was trained with. `None` for checkpoints of earlier versions.
fn settings(checkpoint: &Checkpoint) -> Result<Option<RunConfig>, CliError> {
    let Some(text) = checkpoint.settings()? else {
        return Ok(None);
    };
    config_of(&text, &checkpoint.path).map(Some)
}

fn read_config(file: &Path) -> Result<RunConfig, CliError> {
    let text = read_text(file, DESCRIPTION_LIMIT).map_err(CliError::io("read", file))?;
    config_of(&text, file)
}

/// Parses the configuration `text` of `file`.
fn config_of(text: &str, file: &Path) -> Result<RunConfig, CliError> {
    run_config::from_toml(text).map_err(|error| {
        let reason = run_config::toml_reason(&error, text);
        CliError::new(format!("{}: {reason}", file.display()))
    })
}

/// Returns an error if a setting that a resumed run must keep differs from that of the checkpoint, `then`, because the
/// configuration was edited (`written`) or because of an option.
fn check_changes(
    run: &Path,
    then: &RunConfig,
    written: &RunConfig,
    now: &RunConfig,
) -> Result<(), CliError> {
    let mut changes = resume::setting_changes(then, now);
    changes.retain(|change| !change.may_be_resumed());
    if changes.is_empty() {
        return Ok(());
    }
    let shown = shell_path(run);
    let edited = resume::setting_changes(then, written);
    let mut is_edited = false;
    let listed = changes.iter().map(|change| {
        let edited = edited.contains(change);
        is_edited |= edited;
        let source = if edited { " in config.toml" } else { "" };
        format!("{change}{source}")
    });
    let listed = resume::listed(listed.collect());
    let error = CliError::new(format!("{} cannot be resumed: {listed}", run.display()));
    let restore = match is_edited {
        true => Some("restore the values of the checkpoint in config.toml"),
        false => None,
    };
    let error = restore.into_iter().fold(error, CliError::hint);
    Err(match changes.iter().all(SettingChange::may_be_forked) {
        true => error.hint(format!(
            "fork the run to continue with other settings: emberlm train --resume {shown} --out NEW{}",
            options(&changes)
        )),
        false => error.hint(
            "a fork (--out NEW) may change all settings but those of the weights; for another model, start a new run: omit --resume",
        ),
    })
}

/// Returns an error if a fork changes a setting of the weights.
fn check_fork(shown: &Path, changes: &[SettingChange]) -> Result<(), CliError> {
    let kept: Vec<String> = changes
        .iter()
        .filter(|change| !change.may_be_forked())
        .map(SettingChange::to_string)
        .collect();
    if kept.is_empty() {
        return Ok(());
    }
    Err(CliError::new(format!(
        "{} cannot be forked: {}; a fork keeps the model, its adapter and its objective",
        shown.display(),
        resume::listed(kept)
    ))
    .hint(format!(
        "start a new run with its weights, without the optimizer's state: emberlm train --from {}, or a new model without --from",
        shell_path(shown)
    )))
}

/// The options that set the changed settings to their new values.
fn options(changes: &[SettingChange]) -> String {
    let option = |change: &SettingChange| {
        let value = change.now.as_ref()?;
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let setting = format!("{}={value}", change.key);
        Some(format!(" --set {}", shell_word(&setting)))
    };
    let options: Option<String> = changes.iter().map(option).collect();
    // A setting may be one of a kind that is no longer chosen.
    let options = options.filter(|_| changes.len() <= 4);
    options.unwrap_or_else(|| " --set KEY=VALUE".to_owned())
}

/// Returns an error if the run has made more steps than it is to make.
fn check_steps(shown: &Path, checkpoint: &Checkpoint, now: &RunConfig) -> Result<(), CliError> {
    let made = step_of(Some(checkpoint)).unwrap_or(0);
    let steps = now.train.steps;
    if made <= steps {
        return Ok(());
    }
    let path = shown.to_owned();
    let error = CliError::from(TrainError::StepsMade { path, made, steps });
    let run = shell_path(shown);
    Err(error.hint(format!(
        "or fork an earlier checkpoint: emberlm train --resume {run}/checkpoints/STEP --out NEW --steps {steps}"
    )))
}

/// Returns an error if the creation of a fork was interrupted before its first checkpoint: to begin again would be to
/// begin with new weights.
fn check_is_complete(run: &Path) -> Result<(), CliError> {
    let ancestry = Ancestry::read(run)?;
    let Some(parent) = ancestry.parent() else {
        return Ok(());
    };
    let (shown, path) = (run.display(), shell_path(run));
    Err(CliError::new(format!(
        "{shown} is a fork without a checkpoint: its creation was interrupted"
    ))
    .hint(format!(
        "delete the folder {path} and fork again: emberlm train --resume {} --out {path}",
        shell_path(&parent.run)
    )))
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

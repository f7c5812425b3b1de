//! `emberlm runs rm`: removes runs.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;
use emberlm_trainer::RunFolder;
use emberlm_trainer::events::EVENTS_FILE;
use emberlm_trainer::folder::CONFIG_FILE;

use crate::console;
use crate::error::CliError;
use crate::output::{print, size};
use crate::run_folders;

/// Arguments of `runs rm`.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// The runs
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Remove without asking
    #[arg(long)]
    pub yes: bool,
}

/// The folder of a run's checkpoints.
const CHECKPOINTS: &str = "checkpoints";

/// Checks all runs, asks, and removes them.
pub fn run(args: RemoveArgs) -> Result<(), CliError> {
    let mut runs: Vec<PathBuf> = Vec::new();
    for run in &args.runs {
        // Without a slash at its end, the path of a link is that of the link, not of its target.
        let run: PathBuf = run.components().collect();
        check(&run)?;
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    let shown = |run: &PathBuf| format!("{} ({})", run.display(), size(bytes(run)));
    let listed = runs.iter().map(shown).collect::<Vec<_>>().join(", ");
    if !args.yes && !confirmed(&listed)? {
        console::note("nothing was removed");
        return Ok(());
    }
    for run in &runs {
        // The question may have been open for a while.
        check(run)?;
        let line = format!("removed {}\n", shown(run));
        remove(run)?;
        print(&line)?;
    }
    Ok(())
}

/// Checks that a folder is a run that nothing uses.
fn check(run: &Path) -> Result<(), CliError> {
    let shown = run.display();
    let error = |message: String| CliError::new(message);
    if run.is_symlink() {
        return Err(error(format!("{shown} is a symbolic link"))
            .hint("name the folder that it points to, or remove the link yourself"));
    }
    if !run.exists() {
        return Err(run_folders::missing(run));
    }
    // A configuration is not enough: other programs have files of this name.
    let is_file = |name: &str| {
        run.join(name)
            .symlink_metadata()
            .is_ok_and(|it| it.is_file())
    };
    let is_begun = is_file(CONFIG_FILE) && run.join(CHECKPOINTS).is_dir();
    if !is_file(EVENTS_FILE) && !is_begun {
        return Err(
            error(format!("{shown} is not a run: it has no {EVENTS_FILE}")).hint(
                "a run is a folder that `emberlm train` created; `emberlm runs DIR` lists runs",
            ),
        );
    }
    if RunFolder::is_held(run) {
        return Err(
            error(format!("{shown} is being trained")).hint("wait until it ends, or stop it first")
        );
    }
    let here = std::env::current_dir().and_then(fs::canonicalize);
    let whole = run.canonicalize();
    if let (Ok(here), Ok(whole)) = (here, whole)
        && here.starts_with(whole)
    {
        return Err(error(format!("{shown} contains the working directory"))
            .hint("change to another directory first"));
    }
    Ok(())
}

/// Asks on the terminal.
fn confirmed(listed: &str) -> Result<bool, CliError> {
    if !(io::stdin().is_terminal() && console::stderr_is_terminal()) {
        return Err(
            CliError::usage(format!("removing {listed} needs a confirmation"))
                .hint("confirm with --yes"),
        );
    }
    console::note(format_args!("Remove {listed}? Type y to remove:"));
    let mut answer = String::new();
    io::stdin()
        .read_line(&mut answer)
        .map_err(|error| CliError::new(format!("cannot read the answer: {error}")))?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

/// Removes a run. It is renamed first, so that no other program finds a part of it.
fn remove(run: &Path) -> Result<(), CliError> {
    let aside = run.with_file_name(format!(".emberlm-removed-{}", std::process::id()));
    fs::rename(run, &aside).map_err(CliError::io("remove", run))?;
    // Links within the folder are removed, not what they point to.
    fs::remove_dir_all(&aside).map_err(CliError::io("remove", &aside))
}

/// The size of all files in a folder. Links count as they are.
fn bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let each = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes(&entry.path()),
        Ok(metadata) if metadata.is_file() => metadata.len(),
        _ => 0,
    });
    each.sum()
}

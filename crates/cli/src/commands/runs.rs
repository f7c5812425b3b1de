//! `emberlm runs`: lists runs, compares two of them, and edits their tags and notes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_system::text::escaped;
use emberlm_trainer::RunFolder;
use emberlm_trainer::ancestry::{Ancestor, Ancestry};
use emberlm_trainer::events::{self, EVENTS_FILE};
use emberlm_trainer::folder::CONFIG_FILE;
use serde::Serialize;

use crate::console;
use crate::error::{CliError, warn};
use crate::examples;
use crate::foreign;
use crate::output::{Align, Table, print, print_json};
use crate::plot::short;
use crate::run_folders::{self, runs_below};
use crate::run_history::{History, Status};
use crate::run_labels::RunLabels;

mod diff;
mod labels;

pub use diff::DiffArgs;
pub use labels::{NoteArgs, TagArgs};

/// Arguments of `runs`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = examples::RUNS)]
pub struct RunsArgs {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub command: Option<RunsCommand>,
    /// The folder with the runs, or with sweeps of them
    #[arg(value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// List only runs that have the tag; can be repeated
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Print [{"name", "path", "status", "step", "steps", "tokens", "loss", "validation", …}]
    #[arg(long)]
    pub json: bool,
}

/// The subcommands that replace the list of runs.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// Add tags to a run, or remove them
    Tag(TagArgs),
    /// Write a note on a run
    Note(NoteArgs),
    /// Compare the settings and metrics of two runs
    Diff(DiffArgs),
}

/// A listed run.
#[derive(Debug, Serialize)]
struct ListedRun {
    /// The path relative to the listed folder.
    name: String,
    path: PathBuf,
    status: Option<Status>,
    tags: BTreeSet<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
    /// The reason that the run's events cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    step: usize,
    steps: Option<usize>,
    tokens: Option<u64>,
    /// The last logged training loss.
    loss: Option<f64>,
    best_validation_loss: Option<f64>,
    best_step: Option<usize>,
    tokens_per_second: Option<f64>,
    /// Time of the last event, in Unix seconds.
    time: Option<f64>,
    /// The run that it was forked from, with the step and the changed settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<Ancestor>,
    /// The runs that the parent descends from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ancestors: Vec<Ancestor>,
}

/// Runs the subcommand, or lists the runs with the last active one first.
pub fn run(args: RunsArgs) -> Result<(), CliError> {
    match args.command {
        Some(RunsCommand::Tag(args)) => labels::tag(args),
        Some(RunsCommand::Note(args)) => labels::note(args),
        Some(RunsCommand::Diff(args)) => diff::run(args),
        None => list(args),
    }
}

fn list(args: RunsArgs) -> Result<(), CliError> {
    let dir = &args.dir;
    if !dir.exists() {
        let word = dir.to_string_lossy();
        return Err(match foreign::subcommand("runs", &word) {
            Some(hint) => CliError::new(format!("no run or folder {word}")).hint(hint),
            None => run_folders::missing(dir),
        });
    }
    if dir.is_file() {
        return Err(run_folders::not_a_folder(dir));
    }
    let mut runs: Vec<ListedRun> = runs_below(dir)?
        .into_iter()
        .map(|path| listed(dir, path))
        .filter(|run| args.tags.iter().all(|tag| run.tags.contains(tag)))
        .collect();
    runs.sort_by(|a, b| {
        let newest = |run: &ListedRun| run.time.unwrap_or(f64::NEG_INFINITY);
        newest(b).total_cmp(&newest(a)).then(a.name.cmp(&b.name))
    });
    if args.json {
        return print_json(&runs);
    }
    if runs.is_empty() {
        console::note(format_args!("There is no run in {}", dir.display()));
        return Ok(());
    }
    print(&table(&runs, events::now(), columns()))
}

fn listed(dir: &Path, path: PathBuf) -> ListedRun {
    let name = path
        .strip_prefix(dir)
        .unwrap_or(&path)
        .display()
        .to_string();
    let labels = RunLabels::read(&path).unwrap_or_else(|error| {
        warn(error.message());
        RunLabels::default()
    });
    let read = match path.join(EVENTS_FILE).exists() {
        true => History::read(&path),
        false => Ok(History::default()),
    };
    let (history, error) = match read {
        Ok(history) => (history, None),
        Err(error) => (History::default(), Some(error.message().to_owned())),
    };
    history.damage.iter().for_each(|damage| warn(damage));
    let mut ancestors = Ancestry::read(&path).map_or_else(
        |error| {
            warn(&error.to_string());
            Vec::new()
        },
        |ancestry| ancestry.ancestors,
    );
    let earlier = ancestors.split_off(ancestors.len().min(1));
    let last = history.steps.last();
    let best = history.best();
    let status = match &error {
        Some(_) if !RunFolder::is_held(&path) => None,
        _ => Some(history.status(&path)),
    };
    ListedRun {
        name,
        status,
        tags: labels.tags,
        note: labels.note,
        error,
        step: history.step(),
        steps: history.planned.or_else(|| planned(&path)),
        tokens: last.map(|step| step.tokens),
        loss: last.map(|step| step.loss),
        best_validation_loss: best.map(|best| best.loss),
        best_step: best.map(|best| best.step),
        tokens_per_second: history.paces.last().map(|pace| pace.tokens_per_second),
        time: history.time.or_else(|| changed(&path)),
        parent: ancestors.pop(),
        ancestors: earlier,
        path,
    }
}

/// The total number of steps from the run's configuration.
fn planned(run: &Path) -> Option<usize> {
    let text = read_text(&run.join(CONFIG_FILE), DESCRIPTION_LIMIT).ok()?;
    let config: toml::Table = toml::from_str(&text).ok()?;
    let steps = config.get("train")?.get("steps")?.as_integer()?;
    usize::try_from(steps).ok()
}

/// Modification time of the run's events, or else of its folder.
fn changed(run: &Path) -> Option<f64> {
    let time = |path: &Path| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    let time = time(&run.join(EVENTS_FILE)).or_else(|| time(run))?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}

/// Minimum assumed width of a terminal.
const COLUMNS: usize = 80;

/// Maximum line width.
fn columns() -> usize {
    let terminal = console::columns().map_or(0, usize::from);
    terminal.max(COLUMNS)
}

fn table(runs: &[ListedRun], now: f64, columns: usize) -> String {
    let mut headings = vec!["status", "step", "loss", "best val.", "tok/s", "age"];
    let forked = runs.iter().any(|run| run.parent.is_some());
    headings.extend(forked.then_some("forked from"));
    let tagged = runs.iter().any(|run| !run.tags.is_empty());
    headings.extend(tagged.then_some("tags"));
    let row = |run: &ListedRun| {
        let mut row = cells(run, now).to_vec();
        row.extend(forked.then(|| run.parent.as_ref().map_or_else(String::new, origin)));
        row.extend(tagged.then(|| tags(run)));
        row
    };
    let rows: Vec<Vec<String>> = runs.iter().map(row).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        2 + cells.max().unwrap_or(0).max(headings[column].len())
    };
    let taken: usize = (0..headings.len()).map(width).sum();
    let most = columns.saturating_sub(taken + 2).max(SHORTEST_NAME);
    let mut aligned = vec![Align::Left, Align::Left];
    aligned.extend([Align::Right; 5]);
    aligned.extend([Align::Left; 2]);
    aligned.truncate(1 + headings.len());
    let mut table = Table::new(aligned);
    table.row(std::iter::once("run").chain(headings.iter().copied()));
    for (run, cells) in runs.iter().zip(rows) {
        table.row(std::iter::once(start_cut(&run.name, most)).chain(cells));
    }
    table.render()
}

/// The name of the run and the step that a run was forked from.
fn origin(parent: &Ancestor) -> String {
    let name = parent.run.file_name().unwrap_or_default();
    let step = format!("@{}", parent.step);
    let most = ORIGIN.saturating_sub(step.chars().count());
    start_cut(&escaped(&name.to_string_lossy()), most) + &step
}

/// Maximum width of the origin of a fork.
const ORIGIN: usize = 20;
/// Minimum width of names next to tags.
const SHORTEST_NAME: usize = 12;
/// Maximum width of tags.
const TAGS: usize = 16;

fn tags(run: &ListedRun) -> String {
    let tags: Vec<&str> = run.tags.iter().map(String::as_str).collect();
    let tags = tags.join(",");
    match tags.chars().count() {
        ..=TAGS => tags,
        _ => tags.chars().take(TAGS - 1).chain(['…']).collect(),
    }
}

fn cells(run: &ListedRun, now: f64) -> [String; 6] {
    let none = || "-".to_owned();
    let loss = |loss: f64| match loss {
        ..10.0 => format!("{loss:.4}"),
        _ => format!("{loss:.3}"),
    };
    let count = |count: usize| match count {
        ..10_000 => count.to_string(),
        _ => short(count as f64),
    };
    let step = match run.steps {
        Some(steps) => format!("{}/{}", count(run.step), count(steps)),
        None => count(run.step),
    };
    [
        run.status.map_or("unreadable", Status::name).to_owned(),
        step,
        run.loss.map_or_else(none, loss),
        run.best_validation_loss.map_or_else(none, loss),
        run.tokens_per_second.map_or_else(none, short),
        run.time.map_or_else(none, |time| age(now - time)),
    ]
}

/// Shortens a name at its start: the runs of a sweep differ at the end of their names.
fn start_cut(name: &str, most: usize) -> String {
    let length = name.chars().count();
    if length <= most {
        return name.to_owned();
    }
    let kept = most.saturating_sub(1);
    let end: String = name.chars().skip(length - kept).collect();
    format!("…{end}")
}

/// Formats a duration in at most four characters.
pub(super) fn age(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    match seconds {
        ..100.0 => format!("{seconds:.0}s"),
        ..6000.0 => format!("{:.0}m", seconds / 60.0),
        ..172_800.0 => format!("{:.0}h", seconds / 3600.0),
        _ => format!("{:.0}d", (seconds / 86_400.0).min(9999.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str) -> ListedRun {
        ListedRun {
            name: name.into(),
            path: name.into(),
            status: Some(Status::Interrupted),
            tags: BTreeSet::new(),
            note: String::new(),
            error: None,
            step: 123_456,
            steps: Some(600_000),
            tokens: Some(123_456_789_000),
            loss: Some(10.123_456),
            best_validation_loss: Some(10.234_567),
            best_step: Some(120_000),
            tokens_per_second: Some(123_456.0),
            time: Some(0.0),
            parent: None,
            ancestors: Vec::new(),
        }
    }

    #[test]
    fn a_table_fits_a_terminal() {
        let name = "a-run-with-a-name-that-is-far-too-long-001";
        let in_columns = |columns| table(&[run(name)], 170_000.0, columns);
        assert!(in_columns(120).contains(name));
        let table = in_columns(80);
        for line in table.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let row =
            "  …at-is-far-too-long-001  interrupted  123k/600k  10.123     10.235   123k  47h";
        assert_eq!(table.lines().nth(1), Some(row));
    }

    #[test]
    fn ages_are_short() {
        let ages = [3.2, 99.0, 120.0, 7200.0, 200_000.0].map(age);
        assert_eq!(ages, ["3s", "99s", "2m", "2h", "2d"]);
    }
}

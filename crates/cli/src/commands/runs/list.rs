//! The list of runs, as a table, JSON or comma-separated values.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_trainer::RunFolder;
use emberlm_trainer::ancestry::{Ancestor, Ancestry};
use emberlm_trainer::events::{self, EVENTS_FILE};
use emberlm_trainer::folder::CONFIG_FILE;
use serde::Serialize;

use super::RunsArgs;
use super::table::table;
use crate::console;
use crate::csv::{Csv, number};
use crate::error::{CliError, warn};
use crate::foreign;
use crate::output::{print, print_json};
use crate::run_folders::{self, runs_below};
use crate::run_history::{History, Status};
use crate::run_labels::RunLabels;
use crate::run_settings::{self, RunSettings, differing, shown};

/// A listed run.
#[derive(Debug, Serialize)]
pub(super) struct ListedRun {
    /// The path relative to the listed folder.
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) status: Option<Status>,
    pub(super) tags: BTreeSet<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) note: String,
    /// The reason that the run's events cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    pub(super) step: usize,
    pub(super) steps: Option<usize>,
    pub(super) tokens: Option<u64>,
    /// The last logged training loss.
    pub(super) loss: Option<f64>,
    pub(super) best_validation_loss: Option<f64>,
    pub(super) best_step: Option<usize>,
    pub(super) tokens_per_second: Option<f64>,
    /// Time of the last event, in Unix seconds.
    pub(super) time: Option<f64>,
    /// The run that it was forked from, with the step and the changed settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent: Option<Ancestor>,
    /// The runs that the parent descends from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) ancestors: Vec<Ancestor>,
}

/// Prints the list, with the last active run first.
pub(super) fn list(args: RunsArgs) -> Result<(), CliError> {
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
    if args.csv {
        return print(csv(&runs).text());
    }
    if runs.is_empty() {
        console::note(format_args!("There is no run in {}", dir.display()));
        return Ok(());
    }
    print(&table(&runs, events::now()))
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

/// The runs as comma-separated values: the fields of the list, then the settings in which the runs differ.
fn csv(runs: &[ListedRun]) -> Csv {
    let settings: Vec<RunSettings> = runs
        .iter()
        .map(|run| run_settings::read(&run.path).unwrap_or_default())
        .collect();
    let keys = differing(settings.iter());
    let fields = [
        "name",
        "path",
        "status",
        "step",
        "steps",
        "tokens",
        "loss",
        "best_validation_loss",
        "best_step",
        "tokens_per_second",
        "time",
        "tags",
        "note",
    ];
    let headings = fields.into_iter().chain(keys.iter().map(String::as_str));
    let mut csv = Csv::new(headings);
    for (run, settings) in runs.iter().zip(&settings) {
        let count = |count: Option<usize>| number(count.map(|count| count as f64));
        let tags: Vec<&str> = run.tags.iter().map(String::as_str).collect();
        let cells = [
            run.name.clone(),
            run.path.display().to_string(),
            run.status.map_or("unreadable", Status::name).to_owned(),
            run.step.to_string(),
            count(run.steps),
            number(run.tokens.map(|tokens| tokens as f64)),
            number(run.loss),
            number(run.best_validation_loss),
            count(run.best_step),
            number(run.tokens_per_second),
            number(run.time),
            // Tags have no spaces.
            tags.join(" "),
            run.note.clone(),
        ];
        let values = keys
            .iter()
            .map(|key| settings.get(key).map_or_else(String::new, shown));
        csv.row(cells.into_iter().chain(values));
    }
    csv
}

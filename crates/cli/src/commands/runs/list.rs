//! The list of runs, as a table, JSON or comma-separated values.

use emberlm_trainer::events;

use super::RunsArgs;
use super::listed_run::ListedRun;
use super::table::table;
use crate::console;
use crate::csv::{Csv, number};
use crate::error::CliError;
use crate::foreign;
use crate::output::{print, print_json};
use crate::run_folders::{self, runs_below};
use crate::run_history::Status;
use crate::run_settings::{self, RunSettings, differing, shown};

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
        .map(|path| ListedRun::read(dir, path))
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

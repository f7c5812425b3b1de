//! The list of runs as a table.

use emberlm_system::text::escaped;
use emberlm_trainer::ancestry::Ancestor;

use super::listed_run::ListedRun;
use crate::console;
use crate::output::{Align, Table};
use crate::plot::short;
use crate::run_history::Status;

/// Formats the list. `now` is the time in Unix seconds.
pub fn table(runs: &[ListedRun], now: f64) -> String {
    in_columns(runs, now, columns())
}

/// Minimum assumed width of a terminal.
const COLUMNS: usize = 80;

/// Maximum line width.
fn columns() -> usize {
    let terminal = console::columns().map_or(0, usize::from);
    terminal.max(COLUMNS)
}

fn in_columns(runs: &[ListedRun], now: f64, columns: usize) -> String {
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
pub fn age(seconds: f64) -> String {
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
    use std::collections::BTreeSet;

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
        let fitted = |columns| in_columns(&[run(name)], 170_000.0, columns);
        assert!(fitted(120).contains(name));
        let table = fitted(80);
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

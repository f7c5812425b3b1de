//! The times of a build as Markdown: totals, groups of crates, and the slowest units.

use super::{
    groups::Group,
    timings::{Timings, Unit},
};
use crate::bench::report::{Column::Number, Column::Text, Table};

/// The number of units in the list of the slowest.
const SLOWEST: usize = 15;

/// The three tables.
pub fn markdown(timings: &Timings) -> String {
    let groups = groups(timings).to_markdown();
    let slowest = slowest(timings).to_markdown();
    let totals = totals(timings).to_markdown();
    format!(
        "## Groups of crates\n\n{groups}\n\
         A unit is one run of the compiler or of a build script. Unit-seconds are wall-clock seconds of units that \
         share the cores.\nA build script is in its crate's group.\n\n\
         ## Slowest units\n\n{slowest}\n\
         ## Totals\n\n{totals}"
    )
}

fn groups(timings: &Timings) -> Table {
    let mut rows = Group::ALL.map(|group| {
        let units = timings.units.iter().filter(|unit| Group::of(unit) == group);
        let durations: Vec<f64> = units.map(|unit| unit.duration).collect();
        // The standard library returns -0 as the sum of an empty iterator.
        let total = durations.iter().fold(0.0, |sum, duration| sum + duration);
        (group, durations.len(), total)
    });
    rows.sort_by(|(_, _, a), (_, _, b)| b.total_cmp(a));
    let total = timings.unit_seconds();
    let mut table = Table::new([
        Text("group"),
        Number("units"),
        Number("unit-seconds"),
        Number("share"),
    ]);
    for (group, units, duration) in rows {
        // The durations of a tiny build may all be 0.
        let share = if total > 0.0 { duration / total } else { 0.0 };
        table.row([
            group.title().to_owned(),
            units.to_string(),
            seconds(duration),
            format!("{:.1}%", 100.0 * share),
        ]);
    }
    table
}

fn slowest(timings: &Timings) -> Table {
    let mut units: Vec<&Unit> = timings.units.iter().collect();
    units.sort_by(|a, b| b.duration.total_cmp(&a.duration));
    let mut table = Table::new([
        Text("unit"),
        Number("s"),
        Number("frontend s"),
        Number("codegen s"),
    ]);
    for unit in units.into_iter().take(SLOWEST) {
        let section = |name| unit.section_seconds(name).map_or("-".to_owned(), seconds);
        let name = format!("{} {} {}", unit.name, unit.version, unit.target.trim());
        table.row([
            name.trim_end().to_owned(),
            seconds(unit.duration),
            section("frontend"),
            section("codegen"),
        ]);
    }
    table
}

fn totals(timings: &Timings) -> Table {
    let count =
        |number: Option<usize>| number.map_or("not reported".to_owned(), |it| it.to_string());
    let mut table = Table::new([Text("total"), Number("value")]);
    table.row([
        "wall-clock seconds".to_owned(),
        seconds(timings.wall_seconds()),
    ]);
    table.row(["unit-seconds".to_owned(), seconds(timings.unit_seconds())]);
    table.row(["units".to_owned(), timings.units.len().to_string()]);
    table.row(["crates".to_owned(), timings.crates().to_string()]);
    table.row(["cores".to_owned(), count(timings.cores)]);
    table.row(["jobs at once".to_owned(), count(timings.jobs)]);
    table
}

fn seconds(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::super::timings::tests::example;
    use super::*;

    #[test]
    fn groups_are_sorted_by_time_and_shares_add_up() {
        let table = groups(&example()).to_markdown();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[..5],
            [
                "| group | units | unit-seconds | share |",
                "|---|---|---|---|",
                "| Burn and its CPU backend | 1 | 8.0 | 66.7% |",
                "| other | 1 | 2.5 | 20.8% |",
                "| procedural macros and build scripts | 2 | 1.5 | 12.5% |",
            ]
        );
        assert!(
            lines.contains(&"| GPU runtimes | 0 | 0.0 | 0.0% |"),
            "{table}"
        );
        assert_eq!(lines.len(), 2 + Group::ALL.len());
    }

    #[test]
    fn slowest_units_have_the_compilers_phases() {
        let expected = "| unit | s | frontend s | codegen s |\n|---|---|---|---|\n\
                        | burn-flex 0.21.0 | 8.0 | 2.5 | 5.5 |\n\
                        | libc 1.0.0 | 2.5 | - | - |\n\
                        | libc 0.2.0 build-script | 1.0 | - | - |\n\
                        | libc 0.2.0 build-script (run) | 0.5 | - | - |\n";
        assert_eq!(slowest(&example()).to_markdown(), expected);
    }

    #[test]
    fn only_the_slowest_units_are_listed() {
        let mut timings = example();
        timings.units = vec![timings.units[0].clone(); 40];
        assert_eq!(slowest(&timings).to_markdown().lines().count(), 2 + SLOWEST);
    }

    #[test]
    fn totals_state_time_units_crates_and_cores() {
        let expected = "| total | value |\n|---|---|\n| wall-clock seconds | 12.5 |\n| unit-seconds | 12.0 |\n\
                        | units | 4 |\n| crates | 3 |\n| cores | 4 |\n| jobs at once | 2 |\n";
        assert_eq!(totals(&example()).to_markdown(), expected);
        let unknown = Timings {
            cores: None,
            ..example()
        };
        assert!(markdown(&unknown).contains("| cores | not reported |"));
    }

    #[test]
    fn durations_of_zero_have_no_share() {
        let mut timings = example();
        timings
            .units
            .iter_mut()
            .for_each(|unit| unit.duration = 0.0);
        assert!(!markdown(&timings).contains("NaN"));
    }
}

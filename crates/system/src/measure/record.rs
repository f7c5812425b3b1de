//! The record of a benchmark, and its tables.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Comparison, Measured, Metric, Ratio};

/// The machine of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The operating system.
    pub system: String,
    /// The CPU.
    pub cpu: String,
    /// Threads that run at once.
    pub threads: usize,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| line.split_once(':'));
        Self {
            system: std::env::consts::OS.to_owned(),
            cpu: model.map_or(std::env::consts::ARCH.to_owned(), |(_, name)| {
                name.trim().to_owned()
            }),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// All results of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The benchmark's name.
    pub benchmark: String,
    /// The measured version of the source.
    pub commit: String,
    /// The machine.
    pub machine: Machine,
    /// The settings that all comparisons share.
    pub parameters: BTreeMap<String, String>,
    /// The comparisons.
    pub comparisons: Vec<Comparison>,
    /// Conclusions, such as whether a goal is reached.
    pub notes: Vec<String>,
}

impl Record {
    /// A record without results.
    pub fn new(benchmark: impl Into<String>, commit: impl Into<String>) -> Self {
        Self {
            benchmark: benchmark.into(),
            commit: commit.into(),
            machine: Machine::this(),
            parameters: BTreeMap::new(),
            comparisons: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a setting.
    pub fn parameter(&mut self, name: &str, value: impl ToString) {
        self.parameters.insert(name.to_owned(), value.to_string());
    }

    /// Adds a note that says whether a value is at least its goal.
    pub fn goal(&mut self, what: &str, value: f64, goal: f64) {
        let verdict = match value >= goal {
            true => "at least",
            false => "BELOW",
        };
        self.notes
            .push(format!("{what}: {value:.2}, {verdict} the goal of {goal}"));
    }

    /// The tables of all comparisons, with medians, spreads and ratios. Neighbouring comparisons with the same columns
    /// share a table.
    pub fn to_markdown(&self) -> String {
        let Machine {
            system,
            cpu,
            threads,
        } = &self.machine;
        let mut text = format!(
            "{}, commit {}, {system}, {cpu}, {threads} threads",
            self.benchmark, self.commit
        );
        for (name, value) in &self.parameters {
            text += &format!(", {name} {value}");
        }
        text.push('\n');
        let groups = self
            .comparisons
            .chunk_by(|a, b| a.columns() == b.columns() && a.ratio_heading() == b.ratio_heading());
        for group in groups {
            text += &format!("\n{}", table(group));
        }
        for (at, note) in self.versions().iter().chain(&self.notes).enumerate() {
            let gap = if at == 0 { "\n" } else { "" };
            text += &format!("{gap}{note}\n");
        }
        text
    }

    /// The names that programs gave themselves.
    fn versions(&self) -> Vec<String> {
        let programs = self.comparisons.iter().flat_map(|it| &it.programs);
        let named =
            programs.filter_map(|it| Some(format!("{}: {}", it.program, it.version.as_ref()?)));
        let mut names: Vec<String> = Vec::new();
        for name in named {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

impl Comparison {
    /// All metrics, and whether a ratio follows.
    fn columns(&self) -> Vec<(&Metric, bool)> {
        let mut columns: Vec<(&Metric, bool)> = Vec::new();
        for figure in self.programs.iter().flat_map(|it| &it.figures) {
            let metric = &figure.metric;
            if columns.iter().any(|(known, _)| *known == metric) {
                continue;
            }
            let heading = metric.heading();
            let mut others = self.programs.iter().skip(1);
            let compared = metric.unit.has_ratio() || columns.is_empty() && metric.unit.is_time();
            let ratio = compared && others.any(|it| self.ratio_of(it, &heading).is_some());
            columns.push((metric, ratio));
        }
        columns
    }

    fn ratio_heading(&self) -> String {
        let first = self.programs.first().map_or("", |it| &it.program);
        match self.ratio {
            Ratio::FirstToOther => format!("{first} / it"),
            Ratio::OtherToFirst => format!("it / {first}"),
        }
    }

    fn cells(&self, at: usize, program: &Measured) -> Vec<String> {
        let mut cells = vec![self.workload.clone(), program.program.clone()];
        for (metric, ratio) in self.columns() {
            let heading = metric.heading();
            let figure = program.figure(&heading);
            cells.push(figure.map_or(String::new(), |figure| figure.shown()));
            if ratio {
                let ratio = self.ratio_of(program, &heading).filter(|_| at > 0);
                cells.push(ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")));
            }
        }
        cells
    }
}

/// The table of comparisons with the same columns, in Markdown.
fn table(group: &[Comparison]) -> String {
    let mut header = vec!["workload".to_owned(), "program".to_owned()];
    if let Some(first) = group.first() {
        for (metric, ratio) in first.columns() {
            header.push(metric.heading());
            header.extend(ratio.then(|| first.ratio_heading()));
        }
    }
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&header) + &"|---".repeat(header.len()) + "|\n";
    for comparison in group {
        for (at, program) in comparison.programs.iter().enumerate() {
            text += &line(&comparison.cells(at, program));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::comparison::tests::{example, sample};
    use super::*;

    fn record() -> Record {
        let mut record = Record::new("bench tiny", "abc");
        record.parameter("backend", "flex");
        record.comparisons = vec![example(), example()];
        record
    }

    #[test]
    fn comparisons_with_the_same_columns_share_a_table() {
        let text = record().to_markdown();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("bench tiny, commit abc, "), "{text}");
        assert!(lines[0].ends_with(", backend flex"), "{text}");
        assert_eq!(
            lines[2..],
            [
                "| workload | program | tokens/s | ours / it | step, s | peak, MiB | ours / it |",
                "|---|---|---|---|---|---|---|",
                "| tiny | ours | 60.0 ±48% |  | 0.0167 ±207% | 150.0 |  |",
                "| tiny | theirs | 50.0 ±46% | 1.20 | 0.0200 ±205% | 300.0 | 0.50 |",
                "| tiny | ours | 60.0 ±48% |  | 0.0167 ±207% | 150.0 |  |",
                "| tiny | theirs | 50.0 ±46% | 1.20 | 0.0200 ±205% | 300.0 | 0.50 |",
            ]
        );
    }

    #[test]
    fn a_single_program_has_no_ratios() {
        let mut record = Record::new("bench", "abc");
        let mut comparison = Comparison::new("w", Ratio::OtherToFirst);
        comparison.add("only", sample(2.0, f64::NAN));
        record.comparisons.push(comparison);
        let text = record.to_markdown();
        let table = "| workload | program | tokens/s | step, s |\n|---|---|---|---|\n| w | only | 2.0 | 0.5000 |\n";
        assert!(text.ends_with(table), "{text}");
    }

    #[test]
    fn notes_and_versions_follow_the_tables() {
        let mut record = record();
        record.comparisons[0].programs[1].version = Some("torch 2".to_owned());
        record.comparisons[1].programs[1].version = Some("torch 2".to_owned());
        record.goal("speed", 2.5, 3.0);
        record.goal("more speed", 3.0, 3.0);
        let text = record.to_markdown();
        let end = "\ntheirs: torch 2\nspeed: 2.50, BELOW the goal of 3\nmore speed: 3.00, at least the goal of 3\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn json_has_every_repetition_and_is_read_again() {
        let record = record();
        let json = serde_json::to_string(&record).unwrap();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let figure = &value["comparisons"][0]["programs"][0]["figures"][0];
        assert_eq!(figure["values"], serde_json::json!([60.0, 12.0, 70.0]));
        assert_eq!(figure["unit"], "tokens/s");
        assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), record);
    }
}

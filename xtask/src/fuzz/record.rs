//! The record of the kept slices in the repository: `fuzz/record.toml`, and the table of it in the documentation.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use emberlm_system::digits::grouped;
use serde::{Deserialize, Serialize};

use super::{corpus::Corpus, log::Coverage, slice::Slice};
use crate::{error::Error, tidy};

/// The record, relative to the repository.
const FILE: &str = "fuzz/record.toml";
/// The page with the table of the record.
const PAGE: &str = "docs/results/robustness.md";
/// The first lines of the file.
const COMMENT: &str = "# Written by `cargo xtask fuzz --keep`, like the table in docs/results/robustness.md.\n\
    # Edges and features: of the seeds, with the corpus, and at the end of the last slice.\n\n";
/// The first lines of the table.
const HEAD: &str = "| target | slices | CPU seconds | executions | edges | features | inputs | findings |\n\
    |---|---|---|---|---|---|---|---|\n";

/// The figures of all targets, by name.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record(BTreeMap<String, Figures>);

/// The figures of a target.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figures {
    slices: u64,
    /// The CPU time of all slices.
    cpu_seconds: u64,
    executions: u64,
    /// The distinct findings of all slices.
    findings: BTreeSet<String>,
    /// The edges of the seeds, of the seeds and the corpus, and of all inputs at the end of the last slice.
    edges: [u64; 3],
    /// The features, in the same order.
    features: [u64; 3],
}

impl Record {
    /// Reads the record. It is empty if there is no file.
    pub fn read(root: &Path) -> Result<Self, Error> {
        let path = root.join(FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        tidy::parse(&path)
    }

    /// Adds a slice, with the coverage of the seeds, of the seeds and the corpus, and of all inputs.
    pub fn add(&mut self, slice: &Slice, coverages: [Coverage; 3]) {
        let figures = self.0.entry(slice.target.name.clone()).or_default();
        figures.slices += 1;
        figures.cpu_seconds += slice.cpu_seconds.round() as u64;
        figures.executions += slice.after.executions;
        figures.findings.extend(slice.places.iter().cloned());
        figures.edges = coverages.map(|coverage| coverage.edges);
        figures.features = coverages.map(|coverage| coverage.features);
    }

    /// Writes the record, and its table into the documentation.
    pub fn write(&self, root: &Path) -> Result<(), Error> {
        let path = root.join(FILE);
        let text = toml::to_string(self).map_err(|error| Error::Invalid {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        fs::write(&path, format!("{COMMENT}{text}")).map_err(Error::write(&path))?;
        let page = root.join(PAGE);
        let text = fs::read_to_string(&page).map_err(Error::read(&page))?;
        let Some(text) = with_table(&text, &self.table(root)?) else {
            return Err(Error::Invalid {
                path: page,
                reason: format!("it lacks the table\n{HEAD}"),
            });
        };
        fs::write(&page, text).map_err(Error::write(&page))
    }

    /// The table of the record, with the number of inputs in each corpus.
    fn table(&self, root: &Path) -> Result<String, Error> {
        let mut table = HEAD.to_owned();
        for (name, figures) in &self.0 {
            let inputs = Corpus::read(root, name)?.len();
            table += &figures.row(name, inputs);
        }
        Ok(table)
    }
}

impl Figures {
    fn row(&self, name: &str, inputs: usize) -> String {
        let [edges, features] =
            [self.edges, self.features].map(|reached| reached.map(grouped).join(" / "));
        format!(
            "| `{name}` | {} | {} | {} | {edges} | {features} | {inputs} | {} |\n",
            self.slices,
            grouped(self.cpu_seconds),
            grouped(self.executions),
            self.findings.len()
        )
    }
}

/// A page with another table. `None` if it has no table with the same head.
fn with_table(page: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(HEAD)?;
    let rows: usize = rest
        .split_inclusive('\n')
        .take_while(|line| line.starts_with('|'))
        .map(str::len)
        .sum();
    Some(format!("{before}{table}{}", &rest[rows..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::targets::Target;

    fn coverage(edges: u64, features: u64) -> Coverage {
        Coverage {
            executions: 0,
            edges,
            features,
        }
    }

    fn slice(cpu_seconds: f64, executions: u64, places: &[&str]) -> Slice {
        Slice {
            target: Target {
                name: "shard".to_owned(),
                ..Target::default()
            },
            seconds: 0.0,
            cpu_seconds,
            before: Coverage::default(),
            after: Coverage {
                executions,
                ..Coverage::default()
            },
            inputs: [0, 0],
            findings: Vec::new(),
            places: places.iter().map(|&place| place.to_owned()).collect(),
        }
    }

    #[test]
    fn slices_accumulate_and_coverage_is_that_of_the_last() {
        let mut record = Record::default();
        let coverages = [coverage(10, 20), coverage(11, 21), coverage(12, 22)];
        record.add(&slice(60.4, 900, &["a.rs:1:2"]), coverages);
        let coverages = [coverage(10, 20), coverage(13, 1023), coverage(14, 1024)];
        record.add(&slice(30.0, 1_234_567, &["a.rs:1:2", "timeout"]), coverages);
        assert_eq!(
            record.0["shard"].row("shard", 7),
            "| `shard` | 2 | 90 | 1,235,467 | 10 / 13 / 14 | 20 / 1,023 / 1,024 | 7 | 2 |\n"
        );
        let text = toml::to_string(&record).unwrap();
        assert_eq!(toml::from_str::<Record>(&text).unwrap(), record);
    }

    #[test]
    fn a_table_replaces_the_rows_of_the_old_one() {
        let page = format!("# A\n\n{HEAD}| old |\n| older |\n\nText\n\n| x |\n");
        let table = format!("{HEAD}| new |\n");
        let expected = format!("# A\n\n{HEAD}| new |\n\nText\n\n| x |\n");
        assert_eq!(with_table(&page, &table), Some(expected));
        assert_eq!(with_table("# A\n\n| x |\n", &table), None);
    }

    #[test]
    fn the_documentation_has_the_table_of_the_record() {
        let root = crate::workspace::metadata().unwrap().workspace_root;
        let table = Record::read(root.as_std_path())
            .and_then(|record| record.table(root.as_std_path()))
            .unwrap();
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        assert!(page.contains(&table), "{PAGE} lacks the table\n{table}");
    }
}

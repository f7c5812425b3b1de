//! Cargo's timing report: the HTML page that `cargo build --timings` writes.

use std::{collections::BTreeSet, path::Path};

use serde::Deserialize;

use crate::error::Error;

/// The beginning of the JavaScript line with the units.
const UNITS: &str = "const UNIT_DATA =";

/// The figures of one build.
#[derive(Debug, Clone, PartialEq)]
pub struct Timings {
    /// The compiled units; not empty.
    pub units: Vec<Unit>,
    /// The number of units that cargo compiles in parallel, if the report states it.
    pub jobs: Option<usize>,
    /// The number of CPU cores, if the report states it.
    pub cores: Option<usize>,
}

/// One run of the compiler or of a build script.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Unit {
    /// The crate's name.
    pub name: String,
    /// The crate's version.
    pub version: String,
    /// The kind of unit: empty for a library, otherwise ` build-script`, ` build-script (run)` or ` emberlm
    /// "bin"`.
    pub target: String,
    /// Seconds from the start of the build to the start of the unit.
    pub start: f64,
    /// Wall-clock seconds.
    pub duration: f64,
    /// The compiler's phases. `None` for binaries and build scripts.
    sections: Option<Vec<(String, Section)>>,
}

/// A phase of the compiler, in seconds from the unit's start.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
struct Section {
    start: f64,
    end: f64,
}

impl Unit {
    /// Returns true for the compilation or the run of a build script.
    pub fn is_build_script(&self) -> bool {
        self.target.trim_start().starts_with("build-script")
    }

    /// The seconds of a phase of the compiler, `frontend` or `codegen`.
    pub fn section_seconds(&self, name: &str) -> Option<f64> {
        let sections = self.sections.as_ref()?;
        let (_, section) = sections.iter().find(|(section, _)| section == name)?;
        Some(section.end - section.start)
    }
}

impl Timings {
    /// Reads a report.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let html = std::fs::read_to_string(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&html, path)
    }

    /// Parses a report. `path` is for error messages.
    fn parse(html: &str, path: &Path) -> Result<Self, Error> {
        let report_error = |problem: String| Error::TimingReport {
            path: path.to_owned(),
            problem,
        };
        let at = html
            .split('\n')
            .position(|line| line.starts_with(UNITS))
            .ok_or_else(|| report_error(format!("no line begins with `{UNITS}`")))?;
        let list = html.splitn(at + 1, '\n').last().unwrap_or_default();
        // The list may span several lines and is followed by other JavaScript.
        let mut values = serde_json::Deserializer::from_str(&list[UNITS.len()..]).into_iter();
        let units: Vec<Unit> = values
            .next()
            .ok_or_else(|| report_error(format!("nothing follows `{UNITS}`")))?
            .map_err(|error| {
                let begin = at + 1;
                report_error(format!(
                    "UNIT_DATA: {error}, counted from line {begin} of the file"
                ))
            })?;
        if units.is_empty() {
            return Err(report_error(
                "UNIT_DATA is empty: the build compiled nothing".to_owned(),
            ));
        }
        Ok(Self {
            units,
            jobs: number_after(html, "jobs="),
            cores: number_after(html, "ncpu="),
        })
    }

    /// Wall-clock seconds from the start of the build to the end of the last unit.
    pub fn wall_seconds(&self) -> f64 {
        let ends = self.units.iter().map(|unit| unit.start + unit.duration);
        ends.fold(0.0, f64::max)
    }

    /// The sum of the units' durations. It exceeds the wall-clock time if units are compiled in parallel.
    pub fn unit_seconds(&self) -> f64 {
        self.units.iter().map(|unit| unit.duration).sum()
    }

    /// The number of crates. Two versions of a crate count as two.
    pub fn crates(&self) -> usize {
        let crates: BTreeSet<_> = self
            .units
            .iter()
            .map(|unit| (&unit.name, &unit.version))
            .collect();
        crates.len()
    }
}

/// The number after the first occurrence of `name`, as in `jobs=2`.
fn number_after(text: &str, name: &str) -> Option<usize> {
    let (_, rest) = text.split_once(name)?;
    let end = rest
        .find(|it: char| !it.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const REPORT: &str = r#"<td>Max concurrency:</td><td>3 (jobs=2 ncpu=4)</td>
DURATION = 12;
const UNIT_DATA = [
  {"i": 0, "name": "burn-flex", "version": "0.21.0", "mode": "todo", "target": "", "features": ["simd"],
   "start": 1.0, "duration": 8.0, "unblocked_units": [1],
   "sections": [["frontend", {"start": 0.0, "end": 2.5}], ["codegen", {"start": 2.5, "end": 8.0}]]},
  {"i": 1, "name": "libc", "version": "0.2.0", "mode": "todo", "target": " build-script",
   "start": 0.5, "duration": 1.0, "sections": null},
  {"i": 2, "name": "libc", "version": "0.2.0", "mode": "run-custom-build", "target": " build-script (run)",
   "start": 1.5, "duration": 0.5},
  {"i": 3, "name": "libc", "version": "1.0.0", "mode": "todo", "target": "",
   "start": 10.0, "duration": 2.5, "sections": null}
];
const CONCURRENCY_DATA = [{"t": 0.85}];
"#;

    /// A report of four units, shared by tests.
    pub fn example() -> Timings {
        Timings::parse(REPORT, Path::new("r.html")).unwrap()
    }

    fn message(html: &str) -> String {
        let error = Timings::parse(html, Path::new("r.html")).unwrap_err();
        error.to_string()
    }

    #[test]
    fn a_report_is_read() {
        let timings = example();
        assert_eq!(timings.units.len(), 4);
        assert_eq!((timings.jobs, timings.cores), (Some(2), Some(4)));
        assert_eq!(timings.wall_seconds(), 12.5);
        assert_eq!(timings.unit_seconds(), 12.0);
        assert_eq!(timings.crates(), 3);
    }

    #[test]
    fn a_unit_has_its_kind_and_phases() {
        let units = example().units;
        assert_eq!(units[0].section_seconds("frontend"), Some(2.5));
        assert_eq!(units[0].section_seconds("codegen"), Some(5.5));
        assert_eq!(units[0].section_seconds("link"), None);
        assert_eq!(units[1].section_seconds("codegen"), None);
        let scripts: Vec<_> = units.iter().map(Unit::is_build_script).collect();
        assert_eq!(scripts, [false, true, true, false]);
    }

    #[test]
    fn a_report_without_the_number_of_cores_is_read() {
        let report = REPORT.replace("(jobs=2 ncpu=4)", "");
        let timings = Timings::parse(&report, Path::new("r.html")).unwrap();
        assert_eq!((timings.jobs, timings.cores), (None, None));
    }

    #[test]
    fn a_page_without_units_is_refused() {
        let refused = message("<html>\nconst CONCURRENCY_DATA = [];\n");
        assert_eq!(
            refused,
            "`r.html` is not a timing report of cargo: no line begins with `const UNIT_DATA =`\nhint: pass the page \
             that `cargo build --timings` writes, `target/cargo-timings/cargo-timing.html`; it must contain \
             `const UNIT_DATA = [...];` with the fields name, version, target, start and duration of each unit"
        );
        assert!(message("").contains("no line begins with"));
    }

    #[test]
    fn broken_units_are_refused_with_their_place() {
        let cases = [
            ("\nconst UNIT_DATA = [{\"name\": ];", "counted from line 2"),
            ("const UNIT_DATA = [", "UNIT_DATA: EOF"),
            ("const UNIT_DATA =", "nothing follows"),
            ("const UNIT_DATA = 5;", "UNIT_DATA: invalid type"),
            (
                "const UNIT_DATA = [{\"name\": \"a\"}];",
                "missing field `version`",
            ),
            ("const UNIT_DATA = [];", "the build compiled nothing"),
        ];
        for (html, expected) in cases {
            let message = message(html);
            assert!(message.starts_with("`r.html` is not"), "{message}");
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Timings::read(Path::new("missing/r.html")).unwrap_err();
        assert!(error.to_string().contains("missing/r.html"), "{error}");
    }
}

//! Reads `events.jsonl`, tolerating damage.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use emberlm_system::lines::{Line, Lines};
use emberlm_system::read;
use serde::Deserialize;

use super::Event;

/// The longest line that is parsed as an event: 1 MiB.
pub const LINE_LIMIT: usize = 1 << 20;

/// The number of findings to keep. Further ones are only counted.
const KEPT: usize = 5;

/// Damage of a log: lines that are not events, and lost or repeated lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The first findings.
    pub found: Vec<Finding>,
    /// The number of further findings.
    pub more: usize,
}

/// A defect of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A line is not an event and was skipped.
    NotAnEvent {
        /// The line number, counted from 1.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// Lines are missing before a line.
    Missing {
        /// The line number.
        line: usize,
        /// The number of missing lines.
        count: u64,
        /// The steps of the events before and after them.
        steps: (usize, usize),
    },
    /// A line is repeated or out of order and was skipped.
    Repeated {
        /// The line number.
        line: usize,
        /// The step of its event.
        step: usize,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnEvent { line, reason } => {
                write!(f, "line {line} is not an event and was skipped: {reason}")
            }
            Self::Missing { line, count, steps } => {
                let (before, after) = steps;
                let noun = if *count == 1 { "line is" } else { "lines are" };
                write!(
                    f,
                    "{count} {noun} missing before line {line}, between steps {before} and {after}"
                )
            }
            Self::Repeated { line, step } => write!(
                f,
                "line {line}, of step {step}, is there twice or out of order and was skipped"
            ),
        }
    }
}

impl Damage {
    /// A sentence for each kept finding, and one for the remaining ones.
    pub fn sentences(&self) -> impl Iterator<Item = String> + '_ {
        let more = (self.more > 0).then(|| format!("{} more lines are damaged", self.more));
        self.found.iter().map(Finding::to_string).chain(more)
    }

    fn add(&mut self, finding: Finding) {
        match self.found.len() < KEPT {
            true => self.found.push(finding),
            false => self.more += 1,
        }
    }
}

/// The sequence number of a line. Lines of the machine (those with a time) and all other lines are numbered
/// separately.
#[derive(Deserialize)]
struct Numbered {
    n: Option<u64>,
}

/// Reads a log, line by line.
pub struct Reader {
    lines: Lines<BufReader<File>>,
    /// The number of lines read.
    line: usize,
    /// The last sequence numbers: of other lines, and of lines of the machine.
    numbers: [u64; 2],
    /// The number of lines that are not events, whose sequence numbers are unknown.
    unknown: u64,
    /// The step of the previous event.
    step: usize,
    damage: Damage,
}

/// An event and its line.
pub struct Entry {
    /// The event.
    pub event: Event,
    /// The line without its line break.
    pub line: Vec<u8>,
}

impl Reader {
    /// Opens a log at its beginning.
    ///
    /// # Errors
    /// The file cannot be opened, or is not a regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            lines: Lines::new(BufReader::new(read::open(path)?), LINE_LIMIT),
            line: 0,
            numbers: [0; 2],
            unknown: 0,
            step: 0,
            damage: Damage::default(),
        })
    }

    /// Returns the next event, or `None` at the end. Ignores an incomplete last line.
    ///
    /// # Errors
    /// The file cannot be read.
    #[allow(clippy::should_implement_trait)] // Reading can fail.
    pub fn next(&mut self) -> io::Result<Option<Entry>> {
        loop {
            let read = match self.lines.next()? {
                None | Some(Line::Unfinished(_)) => return Ok(None),
                Some(Line::TooLong) => Err(format!("it is longer than {LINE_LIMIT} bytes")),
                Some(Line::Whole(line)) => parse(line).map(|found| (found, line.to_vec())),
            };
            self.line += 1;
            match read {
                Err(reason) => {
                    self.unknown += 1;
                    let line = self.line;
                    self.damage.add(Finding::NotAnEvent { line, reason });
                }
                Ok(((event, number), line)) => {
                    if self.is_next(&event, number) {
                        self.step = event.step();
                        return Ok(Some(Entry { event, line }));
                    }
                }
            }
        }
    }

    /// Returns true if an event was not read before, judging by its sequence number. Records missing lines.
    /// Lines of older versions have no numbers.
    fn is_next(&mut self, event: &Event, number: Option<u64>) -> bool {
        let last = &mut self.numbers[usize::from(event.is_of_the_machine())];
        let expected = *last + 1;
        let number = number.unwrap_or(expected);
        if number < expected {
            self.damage.add(Finding::Repeated {
                line: self.line,
                step: event.step(),
            });
            return false;
        }
        *last = number;
        let missing = number - expected;
        // Lines that are not events account for some of the missing numbers.
        let known = missing.min(self.unknown);
        self.unknown -= known;
        if missing > known {
            self.damage.add(Finding::Missing {
                line: self.line,
                count: missing - known,
                steps: (self.step, event.step()),
            });
        }
        true
    }

    /// The last sequence numbers: of lines that depend only on the configuration, and of lines of the
    /// machine.
    pub(super) fn numbers(&self) -> [u64; 2] {
        self.numbers
    }

    /// The damage of the lines read so far.
    pub fn into_damage(self) -> Damage {
        self.damage
    }
}

fn parse(line: &[u8]) -> Result<(Event, Option<u64>), String> {
    let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
    let event = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let numbered: Numbered = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok((event, numbered.n))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::report::events::EventLog;

    fn log(steps: impl IntoIterator<Item = usize>) -> (tempfile::TempDir, Vec<String>) {
        let run = tempfile::tempdir().unwrap();
        let mut log = EventLog::create(run.path()).unwrap();
        for step in steps {
            let (loss, gradient_norm) = (None, None);
            let reason = "a test".to_owned();
            log.write(&Event::Skipped {
                step,
                loss,
                gradient_norm,
                reason,
            })
            .unwrap();
            let time = 0.5;
            log.write(&Event::Checkpoint { time, step }).unwrap();
        }
        let text = fs::read_to_string(run.path().join("events.jsonl")).unwrap();
        (run, text.lines().map(str::to_owned).collect())
    }

    /// The steps that are read from these lines, and the messages.
    fn read(lines: &[impl AsRef<[u8]>]) -> (Vec<usize>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut bytes = Vec::new();
        for line in lines {
            bytes.extend_from_slice(line.as_ref());
            bytes.push(b'\n');
        }
        fs::write(&path, bytes).unwrap();
        let mut reader = Reader::open(&path).unwrap();
        let mut steps = Vec::new();
        while let Some(entry) = reader.next().unwrap() {
            steps.push(entry.event.step());
        }
        (steps, reader.into_damage().sentences().collect())
    }

    #[test]
    fn lost_and_repeated_lines_are_reported() {
        let (_run, lines) = log([1, 2, 3]);
        assert_eq!(read(&lines), (vec![1, 1, 2, 2, 3, 3], vec![]));
        let mut lost = lines.clone();
        lost.remove(2);
        assert_eq!(
            read(&lost),
            (
                vec![1, 1, 2, 3, 3],
                vec!["1 line is missing before line 4, between steps 2 and 3".to_owned()]
            )
        );
        let mut twice = lines.clone();
        twice.insert(3, lines[2].clone());
        assert_eq!(
            read(&twice),
            (
                vec![1, 1, 2, 2, 3, 3],
                vec![
                    "line 4, of step 2, is there twice or out of order and was skipped".to_owned()
                ]
            )
        );
    }

    #[test]
    fn a_damaged_line_is_skipped_and_reported_once() {
        let (_run, lines) = log([1, 2, 3]);
        let mut bytes: Vec<Vec<u8>> = lines.iter().map(|line| line.clone().into_bytes()).collect();
        bytes[2][12] = 0xff;
        let (steps, said) = read(&bytes);
        assert_eq!(steps, [1, 1, 2, 3, 3]);
        assert_eq!(
            said,
            ["line 3 is not an event and was skipped: it is not UTF-8"]
        );
        bytes[3] = vec![b'x'; LINE_LIMIT + 1];
        let (steps, said) = read(&bytes);
        assert_eq!((steps.len(), said.len()), (4, 2));
        bytes.extend(std::iter::repeat_n(b"{".to_vec(), 20));
        let (_, said) = read(&bytes);
        assert_eq!((said.len(), &said[5][..]), (6, "17 more lines are damaged"));
    }

    #[test]
    fn lines_of_older_versions_have_no_numbers() {
        let (_run, lines) = log([1, 2, 3]);
        let old: Vec<String> = lines
            .iter()
            .enumerate()
            .map(|(at, line)| match line.rsplit_once(",\"n\":") {
                Some((line, _)) if at < 4 => format!("{line}}}"),
                _ => line.clone(),
            })
            .collect();
        assert_ne!(old, lines);
        assert_eq!(read(&old), (vec![1, 1, 2, 2, 3, 3], vec![]));
    }
}

//! Writes `events.jsonl`.

use std::fs::File;
use std::io;
use std::path::Path;

use emberlm_system::write::write_whole;

use super::{Damage, EVENTS_FILE, Event, Reader};
use crate::error::TrainError;
use crate::report::append::AppendFile;

/// Appends events to the log. Each line is written immediately; if the disk is full, lines are buffered.
pub struct EventLog {
    file: AppendFile,
    /// The last sequence numbers: of lines that depend only on the configuration, and of lines of the
    /// machine.
    numbers: [u64; 2],
}

impl EventLog {
    /// Creates the log of a new run.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(run: &Path) -> Result<Self, TrainError> {
        let file = AppendFile::create(&run.join(EVENTS_FILE))?;
        let numbers = [0; 2];
        Ok(Self { file, numbers })
    }

    /// Reopens a run's log to continue after `step`. Removes later lines and lines that are not events, and
    /// returns the damage found.
    ///
    /// # Errors
    /// The file cannot be read or written, or is not a regular file.
    pub fn resume(run: &Path, step: usize) -> Result<(Self, Damage), TrainError> {
        let path = run.join(EVENTS_FILE);
        let (kept, numbers, damage) = kept(&path, step).map_err(TrainError::file("read", &path))?;
        write_whole(&path, &kept).map_err(TrainError::file("write", &path))?;
        let file = AppendFile::open(&path)?;
        Ok((Self { file, numbers }, damage))
    }

    /// Writes an event.
    ///
    /// # Errors
    /// The file cannot be written. The line is buffered and written with the next one.
    pub fn write(&mut self, event: &Event) -> Result<(), TrainError> {
        let number = &mut self.numbers[usize::from(event.is_of_the_machine())];
        *number += 1;
        self.file.append(&numbered(event, *number))
    }

    /// Writes buffered lines.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), TrainError> {
        self.file.flush()
    }

    /// Another handle of the file, for syncing it.
    pub fn handle(&self) -> Option<File> {
        self.file.handle()
    }
}

/// The lines of a log up to `step`, their last sequence numbers, and the damage found. Empty if there is no
/// log yet.
fn kept(path: &Path, step: usize) -> io::Result<(Vec<u8>, [u64; 2], Damage)> {
    let (mut kept, mut of_the_machine) = (Vec::new(), 0);
    let mut reader = match Reader::open(path) {
        Ok(reader) => reader,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        Err(error) => return Err(error),
    };
    let mut last = 0;
    while let Some(entry) = reader.next()? {
        if entry.event.step() > step {
            continue;
        }
        match entry.event.is_of_the_machine() {
            // These are not in the order of their steps: a checkpoint is complete some steps after its own.
            // Renumber them.
            true => {
                of_the_machine += 1;
                kept.extend(numbered(&entry.event, of_the_machine));
            }
            false => {
                last = reader.numbers()[0];
                kept.extend(entry.line);
                kept.push(b'\n');
            }
        }
    }
    Ok((kept, [last, of_the_machine], reader.into_damage()))
}

/// Serializes an event with its sequence number.
fn numbered(event: &Event, number: u64) -> Vec<u8> {
    // Serialization cannot fail: an event consists of strings and numbers.
    let mut line = serde_json::to_vec(event).unwrap_or_default();
    // Remove the closing brace of the object.
    line.pop();
    line.extend(format!(",\"n\":{number}}}\n").bytes());
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::events::read;

    fn evaluation(step: usize) -> Event {
        Event::Evaluation {
            step,
            loss: 1.1 / 3.0,
            perplexity: Some(2.0),
            tokens: 3,
            datasets: Vec::new(),
            metrics: Default::default(),
        }
    }

    #[test]
    fn a_resumed_log_keeps_earlier_lines() {
        let run = tempfile::tempdir().unwrap();
        let mut log = EventLog::create(run.path()).unwrap();
        for step in [10, 20, 30] {
            log.write(&evaluation(step)).unwrap();
        }
        // The state after a killed process.
        log.file.append(b"{\"event\":\"evalu").unwrap();
        assert_eq!(
            read(run.path()).unwrap().events,
            [10, 20, 30].map(evaluation)
        );
        let (mut log, damage) = EventLog::resume(run.path(), 20).unwrap();
        assert_eq!(damage, Damage::default());
        log.write(&evaluation(25)).unwrap();
        let found = read(run.path()).unwrap();
        assert_eq!(found.events, [10, 20, 25].map(evaluation));
        assert_eq!(found.damage, Damage::default());
    }

    #[test]
    fn a_missing_log_is_created() {
        let run = tempfile::tempdir().unwrap();
        let (mut log, damage) = EventLog::resume(run.path(), 20).unwrap();
        assert_eq!(damage, Damage::default());
        log.write(&evaluation(25)).unwrap();
        assert_eq!(read(run.path()).unwrap().events, [evaluation(25)]);
    }
}

//! Writing `events.jsonl`.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::{EVENTS_FILE, Event};
use crate::error::TrainError;
use crate::folder::write_whole;
use crate::growing::GrowingFile;

/// Writes events as they happen; each line reaches the file at once. Where the disk is full, lines wait in memory.
pub struct EventLog {
    file: GrowingFile,
}

impl EventLog {
    /// A new log in a run directory.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(run: &Path) -> Result<Self, TrainError> {
        let file = GrowingFile::create(&run.join(EVENTS_FILE))?;
        Ok(Self { file })
    }

    /// A run's log without what came after `step`, to go on with: what a run that is resumed there has not done yet.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn resume(run: &Path, step: usize) -> Result<Self, TrainError> {
        let path = run.join(EVENTS_FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(TrainError::file("read", &path)(error)),
        };
        // The last line may be half written, and after a crash of the machine nothing but zeros.
        let before = |line: &&str| {
            serde_json::from_str::<Event>(line).is_ok_and(|event| event.step() <= step)
        };
        let kept: String = text
            .lines()
            .filter(before)
            .flat_map(|line| [line, "\n"])
            .collect();
        write_whole(&path, kept.as_bytes())?;
        let file = GrowingFile::open(&path)?;
        Ok(Self { file })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// The file cannot be written; the line waits, and is written with the next.
    pub fn write(&mut self, event: &Event) -> Result<(), TrainError> {
        // An event is made of texts and numbers alone, which JSON has.
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        self.file.add(&line)
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), TrainError> {
        self.file.flush()
    }

    /// Another handle of the file, to sync it by.
    pub fn handle(&self) -> Option<File> {
        self.file.handle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::read;

    fn evaluation(step: usize) -> Event {
        Event::Evaluation {
            step,
            loss: 1.1 / 3.0,
            perplexity: 2.0,
            tokens: 3,
            datasets: Vec::new(),
        }
    }

    #[test]
    fn a_resumed_log_holds_what_was_before() {
        let run = tempfile::tempdir().unwrap();
        let mut log = EventLog::create(run.path()).unwrap();
        for step in [10, 20, 30] {
            log.write(&evaluation(step)).unwrap();
        }
        // As a killed process leaves it.
        log.file.add(b"{\"event\":\"evalu").unwrap();
        assert_eq!(read(run.path()).unwrap(), [10, 20, 30].map(evaluation));
        let mut log = EventLog::resume(run.path(), 20).unwrap();
        log.write(&evaluation(25)).unwrap();
        assert_eq!(read(run.path()).unwrap(), [10, 20, 25].map(evaluation));
    }

    #[test]
    fn a_run_without_a_log_gets_one() {
        let run = tempfile::tempdir().unwrap();
        let mut log = EventLog::resume(run.path(), 20).unwrap();
        log.write(&evaluation(25)).unwrap();
        assert_eq!(read(run.path()).unwrap(), [evaluation(25)]);
    }
}

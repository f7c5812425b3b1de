//! The log of `serve` on stderr: one line per request, and one per new checkpoint of a followed run.
//!
//! A dedicated thread writes the lines. If stderr blocks, as with a full pipe, requests are still answered,
//! and dropped lines are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use clap::ValueEnum;
use emberlm_serve::{RequestLog, RequestRecord};
use serde::Serialize;

use crate::console;
use crate::error::{CliError, warn};

/// The parts of a request that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogContent {
    /// Nothing
    None,
    /// A line for each request, without its text
    Requests,
    /// Requests and their bodies, which contain the prompts
    Bodies,
}

/// The format of a request's log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable lines
    Text,
    /// A JSON object
    Json,
}

/// Capacity of the queue of lines.
const WAITING: usize = 1024;
/// Time limit for writing the remaining lines at exit.
const LAST: Duration = Duration::from_secs(1);

/// Sends lines to the thread that writes them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Log {
    lines: SyncSender<LogLine>,
    /// Number of dropped lines since the last written one.
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum LogLine {
    Request(Box<RequestRecord>),
    Note(String),
    Warning(String),
    /// Ends the thread.
    End,
}

/// The thread that writes the lines.
#[derive(Debug)]
pub struct LogThread {
    log: Log,
    ended: Receiver<()>,
}

impl LogThread {
    /// Waits up to a second until all lines are written.
    pub fn finish(self) {
        self.log.send(LogLine::End);
        // An error means that the thread has ended already.
        let _ = self.ended.recv_timeout(LAST);
    }
}

impl Log {
    /// Starts the thread that writes the lines. `format` applies to requests.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(format: LogFormat) -> Result<(Self, LogThread), CliError> {
        let (lines, waiting) = mpsc::sync_channel(WAITING);
        let (ending, ended) = mpsc::channel::<()>();
        let log = Self {
            lines,
            lost: Arc::default(),
        };
        let lost = Arc::clone(&log.lost);
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                for line in waiting {
                    match line {
                        LogLine::Request(record) => write(&record, format),
                        LogLine::Note(text) => console::note(text),
                        LogLine::Warning(text) => warn(&text),
                        LogLine::End => break,
                    }
                    match lost.swap(0, Ordering::Relaxed) {
                        0 => {}
                        lost => warn(&format!(
                            "{lost} lines of the log were left out: stderr takes lines too slowly"
                        )),
                    }
                }
                drop(ending);
            })
            .map_err(|error| CliError::new(format!("cannot start a thread: {error}")))?;
        let thread = LogThread {
            log: log.clone(),
            ended,
        };
        Ok((log, thread))
    }

    /// Logs a line.
    pub fn note(&self, text: String) {
        self.send(LogLine::Note(text));
    }

    /// Logs a warning.
    pub fn warn(&self, text: String) {
        self.send(LogLine::Warning(text));
    }

    /// The request log. Returns `None` if requests are not logged. Fields without effect are logged if `verbose`.
    pub fn requests(&self, content: LogContent, verbose: bool) -> Option<RequestLog> {
        let log = self.clone();
        (content != LogContent::None).then(|| RequestLog {
            bodies: content == LogContent::Bodies,
            write: Box::new(move |mut record: RequestRecord| {
                if !verbose {
                    record.ignored.clear();
                }
                log.send(LogLine::Request(Box::new(record)));
            }),
        })
    }

    fn send(&self, line: LogLine) {
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write(record: &RequestRecord, format: LogFormat) {
    match format {
        LogFormat::Text => console::note(text(record)),
        LogFormat::Json => console::note_json(&Line::from(record)),
    }
}

/// Formats a request as text: `TIME CLIENT "METHOD PATH" STATUS model=… prompt=… completion=… queue=…
/// total=…`.
fn text(record: &RequestRecord) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut line = format!(
        "{} {} \"{} {}\" {}",
        timestamp(record.time),
        or_dash(record.client.map(|client| client.to_string())),
        record.method,
        record.path,
        or_dash(record.status.map(|status| status.to_string())),
    );
    if let Some(model) = &record.model {
        line += &format!(
            " model={model} prompt={} completion={}",
            record.prompt_tokens, record.completion_tokens
        );
    }
    if let Some(queue) = record.queue {
        line += &format!(" queue={:.3}s", queue.as_secs_f64());
    }
    line += &format!(" total={:.3}s", record.total.as_secs_f64());
    if !record.ignored.is_empty() {
        line += &format!(" ignored={}", record.ignored.join(","));
    }
    for warning in &record.warnings {
        line += &format!(" warning={warning:?}");
    }
    if let Some(body) = &record.body {
        line += &format!(" body={body}");
    }
    line
}

/// A request as a JSON object.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    client: Option<String>,
    method: &'a str,
    path: &'a str,
    status: Option<u16>,
    model: Option<&'a str>,
    prompt_tokens: usize,
    completion_tokens: usize,
    queue_seconds: Option<f64>,
    total_seconds: f64,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    ignored: &'a [&'static str],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
}

impl<'a> From<&'a RequestRecord> for Line<'a> {
    fn from(record: &'a RequestRecord) -> Self {
        Self {
            time: timestamp(record.time),
            client: record.client.map(|client| client.to_string()),
            method: &record.method,
            path: &record.path,
            status: record.status,
            model: record.model.as_deref(),
            prompt_tokens: record.prompt_tokens,
            completion_tokens: record.completion_tokens,
            queue_seconds: record.queue.map(|queue| queue.as_secs_f64()),
            total_seconds: record.total.as_secs_f64(),
            ignored: &record.ignored,
            warnings: &record.warnings,
            body: record.body.as_deref(),
        }
    }
}

/// Formats a time as RFC 3339 in UTC, with milliseconds.
fn timestamp(time: SystemTime) -> String {
    let time = DateTime::<Utc>::from(time);
    time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn log_lines_contain_client_request_and_timing() {
        let record = RequestRecord {
            time: UNIX_EPOCH + Duration::from_millis(1_700_000_000_250),
            client: "127.0.0.1:4000".parse().ok(),
            method: "POST".to_owned(),
            path: "/v1/completions".to_owned(),
            status: Some(200),
            model: Some("chat".to_owned()),
            prompt_tokens: 31,
            completion_tokens: 20,
            queue: Some(Duration::from_millis(2)),
            total: Duration::from_millis(1234),
            warnings: Vec::new(),
            ignored: Vec::new(),
            body: None,
        };
        assert_eq!(
            text(&record),
            "2023-11-14T22:13:20.250Z 127.0.0.1:4000 \"POST /v1/completions\" 200 \
             model=chat prompt=31 completion=20 queue=0.002s total=1.234s"
        );
        let left = RequestRecord {
            status: None,
            model: None,
            queue: None,
            client: None,
            ..record
        };
        assert_eq!(
            text(&left),
            "2023-11-14T22:13:20.250Z - \"POST /v1/completions\" - total=1.234s"
        );
        let warned = RequestRecord {
            warnings: vec!["not enforced".to_owned()],
            ignored: vec!["store", "reasoning.effort"],
            ..left
        };
        let end = " total=1.234s ignored=store,reasoning.effort warning=\"not enforced\"";
        assert!(text(&warned).ends_with(end));
    }
}

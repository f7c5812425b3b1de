//! One run of a program. Ours and the peers print it as a line of JSON.

use std::process::Command;

use serde_json::{Value, json};

use super::corpus::Form;
use crate::{error::Error, workspace};

/// One run of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The name of the program.
    pub program: String,
    /// The form of the corpus.
    pub form: Form,
    /// Tokenizer threads.
    pub threads: u64,
    /// Bytes of text.
    pub bytes: u64,
    /// Tokens of the text.
    pub tokens: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Peak resident memory of the process, in MiB.
    pub peak_rss_mib: u64,
}

impl Run {
    /// Runs a program whose last output line has its figures.
    pub fn take(command: &mut Command, form: Form) -> Result<Self, Error> {
        let output = workspace::stdout(command)?;
        Self::parse(&output, form).map_err(|field| Error::Measurement {
            command: workspace::shown(command),
            field,
            output: output.trim().to_owned(),
        })
    }

    /// Parses the last line. The error is the first field that is missing or has the wrong type.
    fn parse(output: &str, form: Form) -> Result<Self, &'static str> {
        let line = output.trim().lines().next_back().unwrap_or_default();
        let fields: Value = serde_json::from_str(line).map_err(|_| "program")?;
        let whole = |name| fields[name].as_u64().ok_or(name);
        Ok(Self {
            program: fields["program"].as_str().ok_or("program")?.to_owned(),
            form,
            threads: whole("threads")?,
            bytes: whole("bytes")?,
            tokens: whole("tokens")?,
            seconds: fields["seconds"].as_f64().ok_or("seconds")?,
            peak_rss_mib: whole("peak_rss_mib")?,
        })
    }

    /// Millions of bytes of text per second.
    pub fn speed(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds
    }

    /// Tokens per second.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }

    /// The fields of the parsed line, and the speeds.
    pub fn to_json(&self) -> Value {
        json!({
            "program": self.program,
            "corpus": self.form.name(),
            "threads": self.threads,
            "bytes": self.bytes,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "mb_per_second": self.speed(),
            "tokens_per_second": self.tokens_per_second(),
            "peak_rss_mib": self.peak_rss_mib,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn example(program: &str, form: Form, bytes: u64, seconds: f64) -> Run {
        let line = json!({
            "program": program, "threads": 2, "bytes": bytes, "tokens": 10, "seconds": seconds, "peak_rss_mib": 5,
        });
        Run::parse(&format!("warming up\n{line}\n"), form).unwrap()
    }

    #[test]
    fn a_missing_figure_is_named() {
        assert_eq!(Run::parse("", Form::Text), Err("program"));
        let line = r#"{"program": "p", "threads": 2}"#;
        assert_eq!(Run::parse(line, Form::Text), Err("bytes"));
    }
}

//! One run of a program: tokens per second, and peak memory as the operating system reports it for both programs.

use std::{fmt, process::Command};

use serde_json::Value;

use super::super::peak_memory::run;
use crate::{error::Error, workspace};

/// One run of one program. Missing values are NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Decoded tokens per second.
    pub decode: f64,
    /// Prompt tokens per second.
    pub prompt: f64,
    /// Peak resident memory in MiB.
    pub peak_mib: f64,
}

impl Speed {
    /// Runs `emberlm bench --json`.
    pub fn ours(command: &mut Command) -> Result<Self, Error> {
        let (output, peak_mib) = run(command)?;
        let field = |prefix| our_speed(&output, prefix).ok_or_else(|| wrong(command, &output));
        Ok(Self {
            decode: field("tg")?,
            prompt: field("pp")?,
            peak_mib,
        })
    }

    /// Runs `llama-bench -o json`.
    pub fn theirs(command: &mut Command) -> Result<Self, Error> {
        let (output, peak_mib) = run(command)?;
        let field = |name| their_speed(&output, name).ok_or_else(|| wrong(command, &output));
        Ok(Self {
            decode: field("n_gen")?,
            prompt: field("n_prompt")?,
            peak_mib,
        })
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (decode, prompt, peak) = (self.decode, self.prompt, self.peak_mib);
        write!(
            f,
            "{decode:.1} tokens/s, prompt {prompt:.1} tokens/s, {peak:.0} MiB"
        )
    }
}

fn wrong(command: &Command, output: &str) -> Error {
    Error::Measurement {
        command: workspace::shown(command),
        field: "tokens per second of both tests",
        output: output.trim().to_owned(),
    }
}

/// The speed of the test whose name begins with `prefix`.
fn our_speed(output: &str, prefix: &str) -> Option<f64> {
    let models: Value = serde_json::from_str(output).ok()?;
    let is_test = |test: &&Value| {
        test["test"]
            .as_str()
            .is_some_and(|it| it.starts_with(prefix))
    };
    let mut tests = models[0]["tests"].as_array()?.iter();
    tests.find(is_test)?["tokens_per_second"].as_f64()
}

/// The speed of the test that has tokens of the kind `name`.
fn their_speed(output: &str, name: &str) -> Option<f64> {
    let tests: Value = serde_json::from_str(output).ok()?;
    let mut tests = tests.as_array()?.iter();
    let test = tests.find(|test| test[name].as_u64().is_some_and(|tokens| tokens > 0))?;
    test["avg_ts"].as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_both_programs_is_read() {
        let ours = r#"[{"model": "a.gguf", "tests": [{"test": "pp32", "tokens_per_second": 600.5},
            {"test": "tg8", "tokens_per_second": 50.25}]}]"#;
        assert_eq!(our_speed(ours, "pp"), Some(600.5));
        assert_eq!(our_speed(ours, "tg"), Some(50.25));
        assert_eq!(our_speed("[]", "tg"), None);
        // The fields of llama-bench's output that are read.
        let theirs = r#"[{"n_prompt": 32, "n_gen": 0, "avg_ts": 226.26},
            {"n_prompt": 0, "n_gen": 8, "avg_ts": 24.69}]"#;
        assert_eq!(their_speed(theirs, "n_prompt"), Some(226.26));
        assert_eq!(their_speed(theirs, "n_gen"), Some(24.69));
        assert_eq!(their_speed("error", "n_gen"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_of_a_process_is_measured() {
        // `dd` holds one block of 64 MiB.
        let mut command = Command::new("dd");
        command.args([
            "if=/dev/zero",
            "of=/dev/null",
            "bs=64M",
            "count=40",
            "status=none",
        ]);
        let (output, peak) = run(&mut command).unwrap();
        assert_eq!(output, "");
        assert!((64.0..100.0).contains(&peak), "{peak}");
    }

    #[test]
    fn a_failure_has_the_command() {
        let mut command = Command::new("cat");
        command.arg("/nowhere");
        let error = Speed::ours(&mut command).unwrap_err().to_string();
        assert!(error.starts_with("`cat /nowhere` failed: "), "{error}");
    }
}

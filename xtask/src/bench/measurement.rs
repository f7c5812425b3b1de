//! One run's figures, as both our binary and the PyTorch twin print them: a line of JSON.

use std::process::Command;

use serde_json::{Map, Value, json};

use crate::{error::Error, workspace};

/// One run of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// The program and what it ran on.
    pub peer: String,
    /// The workload's name.
    pub workload: String,
    /// Sequences per step.
    pub batch: u64,
    /// Threads that the program used.
    pub threads: u64,
    /// The model's parameters.
    pub parameters: u64,
    /// Tokens per second over the median step.
    pub tokens_per_second: f64,
    /// The median step's seconds.
    pub seconds_per_step: f64,
    /// The highest resident memory of the process, in MiB.
    pub peak_rss_mib: u64,
    /// Memory reserved on the device, in MiB; `None` if the device shares the CPU's memory.
    pub device_mib: Option<u64>,
    /// The model's operations per second over those of a matrix product, where that was measured.
    pub utilization: Option<f64>,
}

impl Measurement {
    /// Runs a program that ends by printing a measurement.
    pub fn take(command: &mut Command) -> Result<Self, Error> {
        let output = workspace::stdout(command)?;
        Self::parse(&output).map_err(|field| Error::Measurement {
            command: workspace::shown(command),
            field,
            output: output.trim().to_owned(),
        })
    }

    /// Reads the last line; the error is the first field that is missing or of another kind.
    fn parse(output: &str) -> Result<Self, &'static str> {
        let line = output.trim().lines().next_back().unwrap_or_default();
        let fields: Map<String, Value> = serde_json::from_str(line).map_err(|_| "peer")?;
        let text = |name| {
            fields
                .get(name)
                .and_then(Value::as_str)
                .map(str::to_owned)
                .ok_or(name)
        };
        let whole = |name| fields.get(name).and_then(Value::as_u64).ok_or(name);
        let real = |name| fields.get(name).and_then(Value::as_f64).ok_or(name);
        Ok(Self {
            peer: text("peer")?,
            workload: text("workload")?,
            batch: whole("batch")?,
            threads: whole("threads")?,
            parameters: whole("parameters")?,
            tokens_per_second: real("tokens_per_second")?,
            seconds_per_step: real("seconds_per_step")?,
            // A binary may report a fraction of a MiB.
            peak_rss_mib: real("peak_rss_mib")?.round() as u64,
            device_mib: fields.get("device_mib").and_then(Value::as_u64),
            utilization: fields.get("utilization").and_then(Value::as_f64),
        })
    }

    /// The same fields again.
    pub fn to_json(&self) -> Value {
        json!({
            "peer": self.peer,
            "workload": self.workload,
            "batch": self.batch,
            "threads": self.threads,
            "parameters": self.parameters,
            "tokens_per_second": self.tokens_per_second,
            "seconds_per_step": self.seconds_per_step,
            "peak_rss_mib": self.peak_rss_mib,
            "device_mib": self.device_mib,
            "utilization": self.utilization,
        })
    }
}

/// The run with the median speed (of an even number, the slower middle one): its figures belong together.
pub fn median(first: Measurement, rest: Vec<Measurement>) -> Measurement {
    let mut runs = rest;
    runs.push(first);
    runs.sort_by(|a, b| a.tokens_per_second.total_cmp(&b.tokens_per_second));
    runs.swap_remove((runs.len() - 1) / 2)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn example(tokens_per_second: f64) -> Measurement {
        let line = format!(
            r#"{{"peer": "emberlm flex", "workload": "char", "batch": 12, "threads": 2, "parameters": 804096,
            "tokens_per_second": {tokens_per_second}, "seconds_per_step": 0.25, "peak_rss_mib": 90.4}}"#
        );
        Measurement::parse(&format!("warming up\n{}\n", line.replace('\n', " "))).unwrap()
    }

    #[test]
    fn the_last_line_is_read_and_printed_alike() {
        let read = example(3072.5);
        assert_eq!(
            (read.peer.as_str(), read.batch, read.peak_rss_mib),
            ("emberlm flex", 12, 90)
        );
        assert_eq!(Measurement::parse(&read.to_json().to_string()), Ok(read));
    }

    #[test]
    fn a_missing_field_is_named() {
        assert_eq!(Measurement::parse(""), Err("peer"));
        assert_eq!(
            Measurement::parse(r#"{"peer": "a", "workload": "char", "batch": "x"}"#),
            Err("batch")
        );
    }

    #[test]
    fn the_median_is_a_run_that_took_place() {
        let speed = |first, rest: &[f64]| {
            median(example(first), rest.iter().copied().map(example).collect()).tokens_per_second
        };
        assert_eq!(speed(30.0, &[10.0, 20.0]), 20.0);
        assert_eq!(speed(30.0, &[10.0]), 10.0);
        assert_eq!(speed(30.0, &[]), 30.0);
    }
}

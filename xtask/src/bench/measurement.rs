//! The figures of one run. Our binary and the PyTorch twin print them as a line of JSON.

use std::process::Command;

use serde_json::{Map, Value, json};

use crate::{error::Error, workspace};

/// One run of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// The program and its device.
    pub peer: String,
    /// The workload's name.
    pub workload: String,
    /// Sequences per step.
    pub batch: u64,
    /// Threads of the program.
    pub threads: u64,
    /// Parameters of the model.
    pub parameters: u64,
    /// Tokens per second at the median step time.
    pub tokens_per_second: f64,
    /// The median step time, in seconds.
    pub seconds_per_step: f64,
    /// Peak resident memory of the process, in MiB.
    pub peak_rss_mib: u64,
    /// Memory reserved on the device, in MiB; `None` if the device shares the CPU's memory.
    pub device_mib: Option<u64>,
    /// The model's floating-point throughput relative to that of a matrix product, if measured.
    pub utilization: Option<f64>,
}

impl Measurement {
    /// Runs a program whose last output line is a measurement.
    pub fn take(command: &mut Command) -> Result<Self, Error> {
        let output = workspace::stdout(command)?;
        Self::parse(&output).map_err(|field| Error::Measurement {
            command: workspace::shown(command),
            field,
            output: output.trim().to_owned(),
        })
    }

    /// Parses the last line. The error is the first field that is missing or has the wrong type.
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
            // Binaries may print fractions of a MiB.
            peak_rss_mib: real("peak_rss_mib")?.round() as u64,
            device_mib: fields.get("device_mib").and_then(Value::as_u64),
            utilization: fields.get("utilization").and_then(Value::as_f64),
        })
    }

    /// The fields of the parsed line.
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

/// The run with the median speed, or the slower of the two middle ones. All its figures are of the same run.
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

//! The measured programs: this project's binaries, and the Python of its peers.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use cargo_metadata::{Metadata, camino::Utf8PathBuf};
use emberlm_system::measure::{Contender, Metric, Record, Sample, Unit};
use serde_json::Value;

use super::session::Session;
use crate::{
    error::Error,
    python::{Environment, absolute},
    workspace,
};

/// Environment variables that make glibc keep freed memory. They speed up PyTorch on the CPU, where fresh pages
/// cost more than a third of the time.
pub const MEMORY_KEPT: [(&str, &str); 3] = [
    ("MALLOC_MMAP_THRESHOLD_", "8589934592"),
    ("MALLOC_TRIM_THRESHOLD_", "17179869184"),
    ("MALLOC_TOP_PAD_", "268435456"),
];

/// The environment of the programs in `xtask/peers`.
const PEERS: Environment<'_> = Environment {
    name: "peers",
    requirements: &["xtask/peers/requirements.txt"],
};

/// The programs of this project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The command-line program.
    Emberlm,
    /// The program with the benchmark commands: `crates/bench`.
    Bench,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Emberlm => "emberlm",
            Self::Bench => "emberlm-bench",
        }
    }

    fn file(self) -> String {
        format!("{}{}", self.name(), std::env::consts::EXE_SUFFIX)
    }

    /// The path of the release binary.
    pub fn path(self, metadata: &Metadata) -> Utf8PathBuf {
        metadata.target_directory.join("release").join(self.file())
    }
}

/// Builds the release binaries of both programs with a backend. One cargo command builds both, so that they
/// share dependencies.
pub fn build(backend: &str) -> Result<(), Error> {
    let mut command = workspace::cargo();
    command
        .args(["build", "--quiet", "--release"])
        .args(["--package=emberlm-cli", "--package=emberlm-bench"])
        .arg(format!("--features={backend}"));
    workspace::success(&mut command)
}

/// Selects our binary.
#[derive(Debug, clap::Args)]
pub struct OursArgs {
    /// The backend to build and measure.
    #[arg(long, default_value = "flex")]
    pub backend: String,
    /// Measure this binary instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

impl OursArgs {
    /// Builds the program if needed, records the limits of this machine, and returns the program's path.
    pub fn ready(&self, program: Program, session: &mut Session) -> Result<PathBuf, Error> {
        let binary = match &self.binary {
            Some(binary) => absolute(binary)?,
            None => {
                build(&self.backend)?;
                program.path(&session.metadata).into()
            }
        };
        let bench = binary.with_file_name(Program::Bench.file());
        if bench.exists() {
            self.record_limits(&bench, &mut session.record)?;
        }
        Ok(binary)
    }

    /// Records the instructions of this CPU's matrix products, how fast they are, and the memory bandwidth.
    fn record_limits(&self, bench: &Path, record: &mut Record) -> Result<(), Error> {
        let mut command = Command::new(bench);
        command.args(["machine", "--backend", &self.backend]);
        let output = workspace::stdout(&mut command)?;
        let limits: Value = serde_json::from_str(&output).unwrap_or_default();
        for (key, name, unit) in [
            ("f32_flops", "f32 products", "GFLOP/s"),
            ("bf16_flops", "bf16 products", "GFLOP/s"),
            ("read_bytes_per_second", "reading", "GB/s"),
        ] {
            let Some(value) = limits[key].as_f64() else {
                return Err(Error::Measurement {
                    command: workspace::shown(&command),
                    field: key,
                    output: output.trim().to_owned(),
                });
            };
            record.parameter(name, format!("{:.1} {unit}", value / 1e9));
        }
        let instructions = limits["instructions"].as_str().unwrap_or_default();
        record.parameter("instructions", format!("({instructions})"));
        Ok(())
    }
}

/// Selects the Python of the peers.
#[derive(Debug, clap::Args)]
pub struct PythonArgs {
    /// Run the peers with this Python, which has the packages, instead of a separate environment in the target
    /// folder.
    #[arg(long, value_name = "PYTHON")]
    python: Option<PathBuf>,
    /// Fail if the environment does not exist yet. Creating it downloads packages.
    #[arg(long, conflicts_with = "python")]
    offline: bool,
}

impl PythonArgs {
    /// Creates the environment if needed, and returns its Python.
    pub fn ready(&self, metadata: &Metadata) -> Result<PathBuf, Error> {
        match &self.python {
            Some(python) => absolute(python),
            None => PEERS.python(metadata, self.offline),
        }
    }
}

/// A field of a program's output: its key, and the name and the unit of its metric. Sizes with the suffix `_mib` and
/// fractions are converted to the unit.
pub struct Field(pub &'static str, pub &'static str, pub Unit);

impl Field {
    fn of(&self, output: &Value) -> Option<(Metric, f64)> {
        let Self(key, name, unit) = *self;
        let scale = match unit {
            Unit::Bytes if key.ends_with("_mib") => f64::from(1 << 20),
            Unit::Percent => 100.0,
            _ => 1.0,
        };
        Some((Metric::new(name, unit), scale * output[key].as_f64()?))
    }
}

/// The fields that a program's output has, and the program's name for itself.
pub fn sample(output: &Value, fields: &[Field]) -> Sample {
    let version = output["peer"].as_str().or(output["program"].as_str());
    Sample {
        version: version.map(str::to_owned),
        values: fields.iter().filter_map(|field| field.of(output)).collect(),
    }
}

/// A program that prints its figures as a line of JSON, which must have the first of the fields.
pub fn contender<'a>(
    name: &str,
    fields: &'a [Field],
    mut command: impl FnMut() -> Command + 'a,
) -> Contender<'a, Error> {
    let required = fields.first().map_or("", |field| field.0);
    Contender::new(name, move || {
        Ok(sample(&last_json(&mut command(), required)?, fields))
    })
}

/// Runs a program whose last output line is a JSON object with `field`.
pub fn last_json(command: &mut Command, field: &'static str) -> Result<Value, Error> {
    let output = workspace::stdout(command)?;
    let line = output.trim().lines().next_back().unwrap_or_default();
    let value: Option<Value> = serde_json::from_str(line).ok();
    let wrong = || Error::Measurement {
        command: workspace::shown(command),
        field,
        output: output.trim().to_owned(),
    };
    value
        .filter(|value| !value[field].is_null())
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_read_and_must_have_the_field() {
        let echo = |text: &str| {
            let mut command = Command::new("printf");
            command.arg(text);
            command
        };
        let line = r#"making\n{"loss": 1.5}\n"#;
        assert_eq!(last_json(&mut echo(line), "loss").unwrap()["loss"], 1.5);
        let error = last_json(&mut echo(line), "gain").unwrap_err().to_string();
        assert!(error.contains("`gain`"), "{error}");
    }

    #[test]
    fn fields_become_metrics_in_base_units() {
        let output = serde_json::json!({"peer": "torch 2", "speed": 30.5, "peak_rss_mib": 2, "share": 0.5, "none": null});
        let fields = [
            Field("speed", "", Unit::TokensPerSecond),
            Field("peak_rss_mib", "peak", Unit::Bytes),
            Field("share", "used", Unit::Percent),
            Field("none", "", Unit::Seconds),
        ];
        let sample = sample(&output, &fields);
        assert_eq!(sample.version.as_deref(), Some("torch 2"));
        let shown = |(metric, value): &(Metric, f64)| metric.unit.shown(*value);
        let shown: Vec<String> = sample.values.iter().map(shown).collect();
        assert_eq!(shown, ["30.5 tokens/s", "2.0 MiB", "50.0 %"]);
    }

    #[test]
    fn the_files_of_the_peers_exist() {
        let root = workspace::metadata().unwrap().workspace_root;
        let scripts = [
            "crates/cli/peers/train.py",
            "xtask/peers/embed.py",
            "xtask/peers/finetune.py",
            "xtask/peers/generate.py",
            "xtask/peers/nanogpt_loss.py",
            "xtask/peers/tiktoken_prepare.py",
        ];
        for file in PEERS.requirements.iter().chain(&scripts) {
            assert!(root.join(file).is_file(), "{file}");
        }
    }
}

//! Measures one of several models in a child process.

use std::env;
use std::process::{Command, Stdio};

use emberlm_model::WeightFormat;

use super::report::ModelSpeed;
use super::{BenchArgs, Subject};
use crate::backend::Placement;
use crate::error::CliError;
use crate::weights_arg::WeightsArg;

/// Runs `emberlm bench` on the model in a child process, whose errors go to this process's stderr.
///
/// # Errors
/// The process cannot be started, or it fails.
pub fn measure(
    subject: &Subject,
    args: &BenchArgs,
    backend: Placement,
) -> Result<ModelSpeed, CliError> {
    let program = env::current_exe()
        .map_err(|error| CliError::new(format!("cannot find this program's file: {error}")))?;
    let mut command = Command::new(&program);
    command
        .args(["bench", "--json"])
        .args(options(subject, args))
        .args(args.adapter.options())
        .args(backend.options())
        .arg("--")
        .arg(&subject.path)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = command.output().map_err(CliError::io("start", &program))?;
    let failed = |reason: String| {
        let name = &subject.name;
        CliError::new(format!("the measurement of {name} failed: {reason}"))
    };
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    let speeds: Vec<ModelSpeed> =
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    let speed = speeds.into_iter().next();
    let speed = speed.ok_or_else(|| failed("it printed no result".to_owned()))?;
    Ok(ModelSpeed {
        model: subject.name.clone(),
        ..speed
    })
}

/// The options that give the same tests.
fn options(subject: &Subject, args: &BenchArgs) -> Vec<String> {
    let tests = &subject.tests;
    let sizes = [
        ("--prompt-tokens", tests.prompt),
        ("--decode", tests.decode),
        ("--depth", tests.depth),
        ("--batch-size", tests.batch),
        ("--repeat", tests.repeat),
    ];
    let sizes = sizes.map(|(name, size)| [name.to_owned(), size.to_string()]);
    let mut options = sizes.concat();
    let WeightsArg { weights, precision } = args.weights;
    let formats = [
        ("--cache", Some(args.cache.cache.name())),
        ("--precision", Some(precision.name())),
        ("--weights", weights.map(WeightFormat::name)),
    ];
    for (name, format) in formats {
        let format = format.map(|format| [name, format].map(str::to_owned));
        options.extend(format.into_iter().flatten());
    }
    if args.memory.ignore_memory {
        options.push("--ignore-memory".to_owned());
    }
    options
}

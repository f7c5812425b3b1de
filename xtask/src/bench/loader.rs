//! `cargo xtask bench loader`: the speed of batches, compared with the training speed of a small model on the
//! CPU.

use std::fs;
use std::num::NonZero;
use std::process::Command;

use cargo_metadata::camino::Utf8Path;
use serde_json::{Value, json};

use super::programs::{Program, build};
use crate::{error::Error, workspace};

/// Arguments of `cargo xtask bench loader`.
#[derive(Debug, clap::Args)]
pub struct LoaderArgs {
    /// The backend to build and measure.
    #[arg(long, default_value = "flex")]
    backend: String,
    /// Batches to measure of each loading mode.
    #[arg(long, default_value = "20000")]
    batches: NonZero<usize>,
    /// Training steps of char-nano to measure.
    #[arg(long, default_value = "100")]
    steps: NonZero<usize>,
    /// Print one line of JSON instead of the table.
    #[arg(long)]
    json: bool,
}

/// Documents per dataset, of 100 to 4,100 bytes each: about 4 MB, which stay in the page cache after
/// preparation.
const DOCUMENTS: usize = 2000;

/// The required speed of a loading thread relative to the trainer.
const GOAL: f64 = 50.0;

/// Builds, prepares two datasets and measures.
pub fn run(args: &LoaderArgs) -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    build(&args.backend)?;
    let [emberlm, bench] = [Program::Emberlm, Program::Bench].map(|it| it.path(&metadata));
    let folder = metadata.target_directory.join("bench-loader");
    for name in ["a", "b"] {
        prepare(&emberlm, &folder, name)?;
    }
    let measured = |words: &[&str]| -> Result<Value, Error> {
        let mut command = Command::new(&bench);
        command.current_dir(&folder).args(words);
        command.args(["--backend", &args.backend]);
        let output = workspace::stdout(&mut command)?;
        let line = output.trim().lines().next_back().unwrap_or_default();
        serde_json::from_str(line).map_err(|_| Error::Measurement {
            command: workspace::shown(&command),
            field: "tokens_per_second",
            output: output.trim().to_owned(),
        })
    };
    let speed = |value: &Value| value["tokens_per_second"].as_f64().unwrap_or(f64::NAN);
    let steps = args.steps.to_string();
    let trained = measured(&["bench-train", "--preset", "char-nano", "--steps", &steps])?;
    let trained = speed(&trained);
    let mut rows = Vec::new();
    for (name, data, documents) in [
        ("stream", &["a"][..], "stream"),
        ("isolated", &["a"], "isolated"),
        ("mix", &["a=0.7", "b=0.3"], "stream"),
    ] {
        for workers in ["0", "1", "2"] {
            let batches = args.batches.to_string();
            let mut words = vec!["bench-loader", "--batches", &batches];
            words.extend(["--documents", documents, "--workers", workers, "--data"]);
            words.extend(data);
            let loaded = speed(&measured(&words)?);
            rows.push((name, workers, loaded, loaded / trained));
        }
    }
    show(args.json, trained, &rows);
    Ok(())
}

fn show(as_json: bool, trained: f64, rows: &[(&str, &str, f64, f64)]) {
    if as_json {
        let rows: Vec<Value> = rows
            .iter()
            .map(|(name, workers, loaded, ratio)| {
                json!({ "loader": name, "workers": workers, "tokens_per_second": loaded, "ratio": ratio })
            })
            .collect();
        println!("{}", json!({ "trainer": trained, "loaders": rows }));
        return;
    }
    println!("char-nano trains {trained:.0} tokens/s");
    println!(
        "{:<10} {:>7} {:>14} {:>8}",
        "loader", "workers", "tokens/s", "ratio"
    );
    for (name, workers, loaded, ratio) in rows {
        println!("{name:<10} {workers:>7} {loaded:>14.0} {ratio:>8.0}");
    }
    let least = rows.iter().map(|row| row.3).fold(f64::INFINITY, f64::min);
    let verdict = if least >= GOAL { "at least" } else { "BELOW" };
    println!("{verdict} {GOAL} times the trainer's speed: {least:.0} at the least");
}

/// Prepares a dataset of many documents with arbitrary words.
fn prepare(binary: &Utf8Path, folder: &Utf8Path, name: &str) -> Result<(), Error> {
    let texts = folder.join(format!("texts-{name}"));
    let write = || {
        fs::create_dir_all(&texts)?;
        for i in 0..DOCUMENTS {
            let text = format!("{name} {i} and so on, ").repeat(300);
            let len = 100 + i * 7919 % 4001;
            fs::write(
                texts.join(format!("{i:05}.txt")),
                &text[..len.min(text.len())],
            )?;
        }
        Ok(())
    };
    write().map_err(|source: std::io::Error| Error::Write {
        path: texts.clone().into(),
        source,
    })?;
    let out = folder.join(name);
    let words = [
        "prepare",
        texts.as_str(),
        "--tokenizer",
        "byte",
        "--force",
        "--out",
    ];
    workspace::stdout(Command::new(binary).args(words).arg(&out))?;
    Ok(())
}

//! Models for the server's tests: a small byte model that is trained in seconds, or a model with the sizes of a
//! preset.
//!
//! The small model predicts most of its text with enough certainty that sums in another order select the same
//! tokens, but is uncertain about the numbers. Its text has characters of one to four bytes, which are divided
//! among tokens.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{error::Error, workspace};

/// The settings of the small model.
const SIZES: [&str; 6] = [
    "model.d_model=64",
    "model.n_layers=2",
    "model.heads=4",
    "model.kv_heads=2",
    "model.seq_len=512",
    "train.micro_batch=4",
];

/// Trains the small model in `folder` and returns its path.
pub fn make(binary: &Path, folder: &Path) -> Result<PathBuf, Error> {
    let set = SIZES.iter().flat_map(|size| ["--set", size]);
    let words = ["--preset", "pocket-tales", "--steps", "150"];
    trained(binary, folder, "byte", "sums", words.into_iter().chain(set))
}

/// Trains a model with a preset's sizes and GPT-2's tokenizer for one step in `folder`. A model of `emberlm
/// new` has no tokenizer and cannot be served.
pub fn of_preset(binary: &Path, folder: &Path, preset: &str) -> Result<PathBuf, Error> {
    let words = ["--preset", preset, "--steps", "1"];
    let set = [
        "train.micro_batch=1",
        "train.accumulation=1",
        "train.seq_len=32",
    ];
    let set = set.iter().flat_map(|value| ["--set", value]);
    trained(binary, folder, "gpt2", preset, words.into_iter().chain(set))
}

/// Trains an adapter of a model that this module made, for one step, and returns its path.
pub fn adapter(binary: &Path, model: &Path) -> Result<PathBuf, Error> {
    let (dataset, adapter) = (
        model.with_file_name("dataset"),
        model.with_file_name("adapter"),
    );
    let set = [
        "train.adapter.targets=[\"all-linear\"]",
        "train.micro_batch=1",
        "train.accumulation=1",
        "train.seq_len=32",
    ];
    let set = set.iter().flat_map(|value| ["--set", value]);
    let mut train = Command::new(binary);
    train
        .arg("train")
        .args(["--adapter", "lora", "--steps", "1", "--renderer", "plain"]);
    train.args(set).arg("--from").arg(model);
    train.arg("--data").arg(&dataset).arg("--out").arg(&adapter);
    quietly(&mut train)?;
    Ok(adapter)
}

fn trained<'a>(
    binary: &Path,
    folder: &Path,
    tokenizer: &str,
    name: &str,
    words: impl Iterator<Item = &'a str>,
) -> Result<PathBuf, Error> {
    workspace::emptied(folder)?;
    let sums = folder.join("sums.txt");
    fs::write(&sums, text()).map_err(Error::write(&sums))?;
    let (dataset, model) = (folder.join("dataset"), folder.join(name));
    let mut prepare = Command::new(binary);
    prepare
        .arg("prepare")
        .arg(&sums)
        .args(["--tokenizer", tokenizer]);
    quietly(prepare.arg("--out").arg(&dataset))?;
    let mut train = Command::new(binary);
    train.arg("train").args(words).args(["--renderer", "plain"]);
    train.arg("--data").arg(&dataset).arg("--out").arg(&model);
    quietly(&mut train)?;
    Ok(model)
}

/// Runs a command and prints its output only if it fails.
fn quietly(command: &mut Command) -> Result<(), Error> {
    let output = workspace::output(command)?;
    if output.status.success() {
        return Ok(());
    }
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    Err(Error::failed(command, output.status))
}

/// Lines such as "3 and 4 make 7 – très bien, said the café’s 🐢."
fn text() -> String {
    let line = |i: usize| {
        let (a, b) = (i % 40, i * 7 % 30);
        format!(
            "{a} and {b} make {} – très bien, said the café’s 🐢.\n",
            a + b
        )
    };
    (0..600).map(line).collect()
}

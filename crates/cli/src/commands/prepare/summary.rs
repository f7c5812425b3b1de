//! The summary printed after creating a dataset.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::thread::available_parallelism;

use emberlm_data::{Manifest, Prepared, Split, SplitManifest};
use emberlm_model::families;
use emberlm_tokenizer::{TokenizerKind, TokenizerSpec};
use emberlm_trainer::presets;
use indicatif::HumanCount;

use crate::output::{Align, Table};
use crate::shell::shell_path;

/// Summarizes the dataset, the records left out, the warnings, and the next command.
pub fn prepared(out: &Path, prepared: &Prepared) -> String {
    summary("Prepared", out, &prepared.manifest, &findings(prepared))
}

/// Summarizes a dataset after the action `done`: its contents, the lines of `findings`, and the next command.
pub fn summary(done: &str, out: &Path, manifest: &Manifest, findings: &str) -> String {
    let tokenizer = &manifest.tokenizer;
    let ids = HumanCount(tokenizer.vocab_size as u64);
    let name = match tokenizer.kind {
        TokenizerKind::File => format!("a {}", tokenizer.kind),
        kind => format!("the {kind} tokenizer"),
    };
    let mut table = Table::new([Align::Left, Align::Right, Align::Right, Align::Right]);
    for split in Split::ALL {
        let part = manifest.split(split);
        table.row([
            split.name().to_owned(),
            counted(part.tokens, "token"),
            counted(part.documents, "document"),
            counted(part.shards.len() as u64, "shard"),
        ]);
    }
    let sum = |count: fn(&SplitManifest) -> u64| -> u64 {
        Split::ALL
            .iter()
            .map(|&split| count(manifest.split(split)))
            .sum()
    };
    let (tokens, bytes) = (sum(|split| split.tokens), sum(|split| split.bytes));
    // The text size of an adopted dataset may be unknown.
    let density = match bytes {
        0 => String::new(),
        _ => format!(
            "  {:.2} bytes per token\n",
            bytes as f64 / tokens.max(1) as f64
        ),
    };
    format!(
        "{done} {} with {name} ({ids} ids)\n{}{density}{findings}Next: {}\n",
        out.display(),
        table.render(),
        next_command(out, manifest),
    )
}

/// Lists the records left out and probable mistakes, one per line.
fn findings(prepared: &Prepared) -> String {
    let left_out = &prepared.left_out;
    let counts = [
        (left_out.broken(), "broken record"),
        (left_out.empty(), "record without text"),
        (prepared.duplicates, "duplicate"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, what)| counted(count, what)).collect();
    let mut text = String::new();
    // Writing to a string cannot fail.
    if !counts.is_empty() {
        let _ = writeln!(text, "Left out: {}", counts.join(", "));
    }
    for reason in left_out.first() {
        let _ = writeln!(text, "  {reason}");
    }
    for warning in &prepared.warnings {
        let _ = writeln!(text, "Warning: {warning}");
    }
    text
}

fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", HumanCount(count))
}

/// Suggests a training command for the dataset and this machine: fine-tuning for conversations in a published
/// model's tokens, otherwise a preset that fits the vocabulary and the number of tokens.
fn next_command(out: &Path, manifest: &Manifest) -> String {
    let TokenizerSpec {
        kind, vocab_size, ..
    } = &manifest.tokenizer;
    let own = matches!(kind, TokenizerKind::Char | TokenizerKind::Byte);
    let preset = || preset(*vocab_size, manifest.split(Split::Train).tokens);
    let model = match &manifest.chat_template {
        Some(_) if !own => "--documents isolated --from MODEL".to_owned(),
        Some(_) => format!("--documents isolated {}", preset()),
        None => preset(),
    };
    // Resolves `.` to the folder's name.
    let real = fs::canonicalize(out).unwrap_or_else(|_| out.to_owned());
    let name = real.file_name().unwrap_or(out.as_os_str());
    let run = Path::new("runs").join(name);
    let [data, run] = [out, &run].map(shell_path);
    format!("emberlm train --data {data} {model} --out {run}")
}

/// The option for a preset that fits the vocabulary and the training split, and trains on this machine in
/// reasonable time.
fn preset(vocab_size: usize, tokens: u64) -> String {
    let threads = available_parallelism().map_or(1, usize::from);
    let name = presets::suggested(vocab_size, tokens, threads);
    let own = families::preset(name).and_then(|preset| preset.config.vocab_size);
    match own {
        Some(own) if own != vocab_size => format!("--preset {name} --set model.vocab_size=0"),
        _ => format!("--preset {name}"),
    }
}

//! `emberlm prepare`: text files to a dataset.

use std::path::Path;

use emberlm_data::{Manifest, Phase, PrepareOptions, Progress, Split, SplitManifest, prepare};
use emberlm_tokenizer::TokenizerKind;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::args::PrepareArgs;
use crate::error::CliError;
use crate::output::{Align, Table, print, shell_word};

/// Makes the dataset and says what it is.
pub fn run(args: PrepareArgs) -> Result<(), CliError> {
    let options = PrepareOptions {
        tokenizer: args.tokenizer,
        val_fraction: args.val_fraction,
        shard_tokens: args.shard_tokens,
        force: args.force,
        command: command(),
    };
    let bar = progress_bar();
    let manifest = prepare(&args.inputs, &args.out, &options, &|progress| {
        show(&bar, progress)
    });
    bar.finish_and_clear();
    print(&summary(&args.out, &manifest?))
}

/// The command as it was given.
fn command() -> String {
    let given = std::env::args_os().skip(1);
    let words = given.map(|word| shell_word(&word.to_string_lossy()));
    ["emberlm".to_owned()]
        .into_iter()
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A bar in bytes on stderr; none where that is no terminal.
fn progress_bar() -> ProgressBar {
    const TEMPLATE: &str = "{msg:>11} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(TEMPLATE);
    // The template is a constant: what it falls back to is never seen.
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style.progress_chars("=> "))
}

fn show(bar: &ProgressBar, progress: Progress) {
    match progress {
        Progress::Start { phase, bytes } => {
            bar.reset();
            bar.set_length(bytes);
            bar.set_message(match phase {
                Phase::Scan => "reading",
                Phase::Tokenize => "tokenizing",
            });
        }
        Progress::Advance { bytes } => bar.inc(bytes),
    }
}

fn summary(out: &Path, manifest: &Manifest) -> String {
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
    format!(
        "Prepared {} with {name} ({ids} ids)\n{}  {:.2} bytes per token\nNext: {}\n",
        out.display(),
        table.render(),
        bytes as f64 / tokens.max(1) as f64,
        next_command(out, tokenizer.kind),
    )
}

fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", HumanCount(count))
}

/// A training that fits the vocabulary.
fn next_command(out: &Path, kind: TokenizerKind) -> String {
    let preset = match kind {
        TokenizerKind::Char | TokenizerKind::Byte => "--preset char-nano",
        TokenizerKind::Gpt2 => "--preset pocket",
        TokenizerKind::P50k
        | TokenizerKind::Cl100k
        | TokenizerKind::O200k
        | TokenizerKind::File => "--preset pocket --set model.vocab_size=0",
    };
    let name = out.file_name().unwrap_or(out.as_os_str());
    let run = Path::new("runs").join(name);
    let [data, run] = [out, &run].map(|path| shell_word(&path.to_string_lossy()));
    format!("emberlm train --data {data} {preset} --out {run}")
}

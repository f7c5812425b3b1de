//! `emberlm data inspect`: a summary of a dataset on a page of 80 columns.

use std::path::Path;

use emberlm_data::{Dataset, DocumentsFound, Excerpt, Inspection, SplitInspection, inspect};
use indicatif::{HumanBytes, HumanCount};

use super::InspectArgs;
use crate::error::CliError;
use crate::output::{Align, Table, print, print_json};
use crate::progress;

const COLUMNS: usize = 80;

/// Maximum number of lines of an excerpt.
const EXCERPT_LINES: usize = 3;

/// Maximum length of a histogram bar.
const BAR: usize = 40;

/// Reads the dataset and prints the summary.
pub(super) fn run(args: InspectArgs) -> Result<(), CliError> {
    let dataset = Dataset::open(&args.dataset)?;
    let bar = progress::bytes("reading", dataset.bytes());
    let found = inspect(&dataset, args.excerpts, args.seed, &|bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let found = found?;
    match args.json {
        true => print_json(&found),
        false => print(&page(&args.dataset, &found)),
    }
}

fn page(folder: &Path, found: &Inspection) -> String {
    let ids = HumanCount(found.vocab_size as u64);
    let mut text = format!("{}: {} ({ids} ids)\n", folder.display(), found.tokenizer);
    text += &splits(found);
    let of_train = found.train.tokens > 0;
    let (name, shown) = match of_train {
        true => ("train", &found.train),
        false => ("val", &found.val),
    };
    if let Some(documents) = &shown.found {
        text += &format!("\nTokens per document of {name}\n{}", histogram(documents));
    }
    if !shown.frequent.is_empty() {
        text += &format!("\nMost frequent tokens of {name}\n{}", frequent(shown));
    }
    if !found.excerpts.is_empty() {
        text += "\nHow documents begin\n";
        found
            .excerpts
            .iter()
            .for_each(|shown| text += &excerpt(shown));
    }
    text
}

/// A table of statistics with one column per split.
fn splits(found: &Inspection) -> String {
    let mut table = Table::new([Align::Left, Align::Right, Align::Right]);
    let (train, val) = (&found.train, &found.val);
    table.row(["", "train", "val"]);
    let mut row = |name: &str, cell: &dyn Fn(&SplitInspection) -> Option<String>| {
        let cells = [cell(train), cell(val)];
        if cells.iter().any(Option::is_some) {
            let cells = cells.map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            table.row([name.to_owned()].into_iter().chain(cells));
        }
    };
    let count = |count: u64| Some(HumanCount(count).to_string());
    row("shards", &|split| count(split.shards));
    row("tokens", &|split| count(split.tokens));
    row("documents", &|split| count(split.documents));
    row("text", &|split| {
        split.bytes.map(|bytes| HumanBytes(bytes).to_string())
    });
    row("bytes per token", &|split| {
        let bytes = split.bytes?;
        Some(format!("{:.2}", bytes as f64 / split.tokens as f64))
    });
    let lengths = |split: &SplitInspection| split.found.as_ref().map(|found| found.lengths.clone());
    row("shortest document", &|split| count(lengths(split)?.min()));
    row("median", &|split| {
        Some(format!("{:.1}", lengths(split)?.median()))
    });
    row("mean", &|split| {
        Some(format!("{:.1}", lengths(split)?.mean()))
    });
    row("longest", &|split| count(lengths(split)?.max()));
    row("to be learnt", &|split| share(split.learnt?, split.tokens));
    row("unknown tokens", &|split| {
        share(split.unknown?, split.tokens)
    });
    row("ids never used", &|split| {
        share(split.never_used, found.vocab_size as u64).filter(|_| split.tokens > 0)
    });
    row("exact duplicates", &|split| {
        let found = split.found.as_ref()?;
        share(found.duplicates, found.count)
    });
    let mut text = table.render();
    match (found.leaked, &val.found) {
        (Some(leaked), Some(documents)) => {
            let share = share(leaked, documents.count).unwrap_or_default();
            text += &format!("  validation documents that are also in train: {share}\n");
        }
        (None, _) => text += "  Without an end-of-text token documents cannot be distinguished.\n",
        _ => {}
    }
    text
}

/// Formats a count with its percentage.
fn share(count: u64, of: u64) -> Option<String> {
    let percent = 100.0 * count as f64 / of.max(1) as f64;
    Some(format!("{} ({percent:.1}%)", HumanCount(count)))
}

fn histogram(documents: &DocumentsFound) -> String {
    let bins = documents.lengths.histogram();
    let most = bins.iter().map(|bin| bin.documents).max().unwrap_or(0);
    let mut table = Table::new([Align::Right, Align::Right, Align::Left]);
    for bin in bins {
        let range = match bin.from == bin.to {
            true => HumanCount(bin.from).to_string(),
            false => format!("{} to {}", HumanCount(bin.from), HumanCount(bin.to)),
        };
        let documents = HumanCount(bin.documents).to_string();
        table.row([range, documents, blocks(bin.documents, most)]);
    }
    table.render()
}

/// Draws a bar in eighths of a character. A positive value has at least one eighth.
fn blocks(value: u64, most: u64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (value as f64 / most.max(1) as f64 * (BAR * 8) as f64).round() as usize;
    let eighths = eighths.max(usize::from(value > 0));
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

fn frequent(split: &SplitInspection) -> String {
    let mut table = Table::new([Align::Right, Align::Right, Align::Right, Align::Left]);
    for token in &split.frequent {
        let percent = 100.0 * token.count as f64 / split.tokens as f64;
        table.row([
            token.id.to_string(),
            HumanCount(token.count).to_string(),
            format!("{percent:.1}%"),
            fitting(&token.text, 40).to_owned(),
        ]);
    }
    table.render()
}

fn excerpt(shown: &Excerpt) -> String {
    let (number, tokens) = (HumanCount(shown.document), HumanCount(shown.tokens));
    let mut text = format!("  {}, document {number} of {tokens} tokens", shown.split);
    // Quoted, with invisible characters escaped: a terminal interprets some of them.
    let escaped = format!("{:?}", shown.text);
    let mut rest = escaped.as_str();
    for _ in 0..EXCERPT_LINES {
        // Leaves room for the ellipsis.
        let line = fitting(rest, COLUMNS - 5);
        if !line.is_empty() {
            text += &format!("\n    {line}");
        }
        rest = &rest[line.len()..];
    }
    if !shown.whole || !rest.is_empty() {
        text.push('…');
    }
    text + "\n"
}

/// The longest prefix of `text` that fits into `columns`.
fn fitting(text: &str, columns: usize) -> &str {
    // From Hangul on, many characters are two columns wide. None is wider.
    let width = |c: char| if c < '\u{1100}' { 1 } else { 2 };
    let mut room = columns;
    let mut end = 0;
    for character in text.chars() {
        match room.checked_sub(width(character)) {
            Some(left) => room = left,
            None => break,
        }
        end += character.len_utf8();
    }
    &text[..end]
}

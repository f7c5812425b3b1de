//! `emberlm tokenizer stats`: compares tokenizers on texts.

use std::collections::BTreeMap;

use emberlm_tokenizer::{
    Statistics, TOKENIZER_FILE, TokenCounts, Tokenizer, TokenizerChoice, TokenizerKind,
};
use indicatif::HumanCount;
use rayon::prelude::*;
use serde::Serialize;

use super::args::StatsArgs;
use super::waves::for_each_wave;
use crate::error::CliError;
use crate::output::{Align, Table, print, print_json};

/// Number of longest tokens to print.
const LONGEST: usize = 5;

/// Minimum share of the characters for a script to be listed.
const MIN_SHARE: f64 = 0.01;

/// The JSON output.
#[derive(Serialize)]
struct Report {
    bytes: u64,
    characters: u64,
    words: u64,
    scripts: BTreeMap<&'static str, ScriptReport>,
    tokenizers: Vec<TokenizerReport>,
}

#[derive(Serialize)]
struct ScriptReport {
    /// Share of all characters in words.
    share: f64,
    words: u64,
}

#[derive(Serialize)]
struct TokenizerReport {
    tokenizer: String,
    /// A short name for the table.
    #[serde(skip)]
    short: String,
    vocab_size: usize,
    tokens: u64,
    bytes_per_token: f64,
    characters_per_token: f64,
    tokens_per_word: f64,
    /// Tokens per word by script. `None` if the tokens do not decode to the original text.
    tokens_per_word_by_script: Option<BTreeMap<&'static str, f64>>,
    vocabulary_used: f64,
    unknown: f64,
    longest: Vec<String>,
}

/// Reads the texts once and prints the table.
pub(super) fn run(args: StatsArgs) -> Result<(), CliError> {
    let load = |choice: &TokenizerChoice| match choice {
        TokenizerChoice::Named(TokenizerKind::Char) => Err(CliError::new(
            "char has no fixed vocabulary to compare: it has one token per character",
        )),
        choice => Ok(Tokenizer::from_choice(choice)?),
    };
    let tokenizers: Vec<Tokenizer> = args.tokenizer.iter().map(load).collect::<Result<_, _>>()?;
    let mut sum = Statistics::new(&tokenizers);
    for_each_wave(&args.inputs, |texts| {
        // One chunk per thread, since each chunk needs tables as large as the vocabularies.
        let part = texts.len().div_ceil(rayon::current_num_threads()).max(1);
        let parts = texts.par_chunks(part).map(|texts| {
            let mut sum = Statistics::new(&tokenizers);
            let mut add = |text: &String| sum.add(&tokenizers, text);
            texts.iter().try_for_each(&mut add).map(|()| sum)
        });
        for part in parts.collect::<Result<Vec<_>, _>>()? {
            sum.merge(part);
        }
        Ok(())
    })?;
    let report = report(&args.tokenizer, &tokenizers, &sum);
    match args.json {
        true => print_json(&report),
        false => print(&table(&report)),
    }
}

fn report(choices: &[TokenizerChoice], tokenizers: &[Tokenizer], sum: &Statistics) -> Report {
    let visible: u64 = sum.scripts.values().map(|share| share.chars).sum();
    let scripts = sum.scripts.iter().map(|(name, share)| {
        let words = share.words;
        let share = ratio(share.chars, visible);
        (*name, ScriptReport { share, words })
    });
    let scripts: BTreeMap<_, _> = scripts
        .filter(|(_, script)| script.share >= MIN_SHARE)
        .collect();
    let tokenizer =
        |((choice, tokenizer), counts): ((&TokenizerChoice, &Tokenizer), &TokenCounts)| {
            let tokens = counts.total();
            let by_script = counts.scripts.as_ref().map(|tokens| {
                let of = |name: &'static str, words| {
                    (name, ratio(tokens.get(name).copied().unwrap_or(0), words))
                };
                scripts
                    .iter()
                    .map(|(name, script)| of(name, script.words))
                    .collect()
            });
            TokenizerReport {
                tokenizer: choice.to_string(),
                short: short_name(choice),
                vocab_size: tokenizer.vocab_size(),
                tokens,
                bytes_per_token: ratio(sum.bytes, tokens),
                characters_per_token: ratio(sum.chars, tokens),
                tokens_per_word: ratio(tokens, sum.words),
                tokens_per_word_by_script: by_script,
                vocabulary_used: ratio(counts.used() as u64, tokenizer.vocab_size() as u64),
                unknown: ratio(counts.unknown(tokenizer), tokens),
                longest: counts.longest(tokenizer, LONGEST),
            }
        };
    let tokenizers = choices
        .iter()
        .zip(tokenizers)
        .zip(&sum.tokens)
        .map(tokenizer)
        .collect();
    Report {
        bytes: sum.bytes,
        characters: sum.chars,
        words: sum.words,
        scripts,
        tokenizers,
    }
}

/// The name of a tokenizer file, or of its folder if the file has the default name.
fn short_name(choice: &TokenizerChoice) -> String {
    let TokenizerChoice::File(path) = choice else {
        return choice.to_string();
    };
    let parent = path.parent().filter(|_| path.ends_with(TOKENIZER_FILE));
    let name = parent.unwrap_or(path).file_name().or(path.file_name());
    name.unwrap_or_default().to_string_lossy().into_owned()
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn table(report: &Report) -> String {
    let columns = std::iter::repeat_n(Align::Right, report.tokenizers.len());
    let mut table = Table::new([Align::Left].into_iter().chain(columns).collect::<Vec<_>>());
    let mut row = |name: &str, cell: &dyn Fn(&TokenizerReport) -> String| {
        let cells = report.tokenizers.iter().map(cell);
        table.row([name.to_owned()].into_iter().chain(cells));
    };
    let count = |count: u64| HumanCount(count).to_string();
    row("", &|one| one.short.clone());
    row("vocabulary", &|one| count(one.vocab_size as u64));
    row("tokens", &|one| count(one.tokens));
    row("bytes per token", &|one| {
        format!("{:.3}", one.bytes_per_token)
    });
    row("characters per token", &|one| {
        format!("{:.3}", one.characters_per_token)
    });
    row("tokens per word", &|one| {
        format!("{:.3}", one.tokens_per_word)
    });
    for (name, script) in &report.scripts {
        let title = format!("  {name} ({:.0}% of the text)", 100.0 * script.share);
        row(&title, &|one| match &one.tokens_per_word_by_script {
            Some(by_script) => format!("{:.3}", by_script.get(name).copied().unwrap_or_default()),
            None => "-".to_owned(),
        });
    }
    row("vocabulary used", &|one| percent(one.vocabulary_used));
    row("unknown tokens", &|one| percent(one.unknown));
    let mut text = format!(
        "{} bytes, {} characters, {} words\n{}",
        count(report.bytes),
        count(report.characters),
        count(report.words),
        table.render(),
    );
    for one in &report.tokenizers {
        let longest: Vec<String> = one
            .longest
            .iter()
            .map(|token| format!("{token:?}"))
            .collect();
        text += &format!("Longest tokens of {}: {}\n", one.short, longest.join(" "));
    }
    text
}

fn percent(part: f64) -> String {
    format!("{:.2}%", 100.0 * part)
}

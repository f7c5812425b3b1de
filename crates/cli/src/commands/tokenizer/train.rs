//! `emberlm tokenizer train`: trains a byte-level BPE vocabulary.

use std::path::Path;

use emberlm_tokenizer::{BpeOptions, BpeTraining, PieceCounts, Tokenizer};
use indicatif::HumanCount;
use rayon::prelude::*;

use super::args::TrainArgs;
use super::waves::for_each_wave;
use super::{next_command, write};
use crate::error::CliError;
use crate::new_folder::NewFolder;
use crate::output::print;

/// Size of the sample whose token count the summary reports, in bytes from the start of the text.
const SAMPLE_BYTES: usize = 1 << 20;

/// Counts words, trains and writes the tokenizer, and prints a summary.
pub(super) fn run(args: TrainArgs) -> Result<(), CliError> {
    let training = BpeTraining::new(BpeOptions {
        vocab_size: args.vocab_size,
        min_frequency: args.min_frequency,
        pattern: args.pattern,
        special: args.special.clone(),
    })?;
    let folder = NewFolder::begin(&args.out, false, "a tokenizer", |_| false)?;
    let mut counts = PieceCounts::default();
    let mut sample = String::new();
    let mut bytes = 0;
    for_each_wave(&args.inputs, |texts| {
        for text in texts {
            bytes += text.len() as u64;
            if sample.len() < SAMPLE_BYTES {
                sample.push_str(text);
            }
        }
        let counted = texts.par_iter().map(|text| training.count(text));
        let add = |mut sum: PieceCounts, one| {
            sum.add(one);
            sum
        };
        counts.add(counted.reduce(PieceCounts::default, add));
        Ok(())
    })?;
    let pieces = counts.distinct() as u64;
    let tokenizer = training.train(counts)?;
    let summary = summary(&args, &tokenizer, &sample, [bytes, pieces])?;
    write(folder, &tokenizer)?;
    print(&summary)
}

fn summary(
    args: &TrainArgs,
    tokenizer: &Tokenizer,
    sample: &str,
    [bytes, pieces]: [u64; 2],
) -> Result<String, CliError> {
    let tokens = tokenizer.encode(sample)?.len().max(1);
    let vocab_size = tokenizer.vocab_size();
    let short = match vocab_size < args.vocab_size {
        true => format!(
            ": fewer than {}, since no more pairs occur {} times",
            HumanCount(args.vocab_size as u64),
            args.min_frequency.max(1)
        ),
        false => String::new(),
    };
    let first = args.inputs.first().map(|path| path.to_string_lossy());
    Ok(format!(
        "Trained {} with {} ids{short}\n  {} bytes of text, {} different pieces, {:.2} bytes per token\nNext: {}\n",
        args.out.display(),
        HumanCount(vocab_size as u64),
        HumanCount(bytes),
        HumanCount(pieces),
        sample.len() as f64 / tokens as f64,
        next_command(&first.unwrap_or_default(), Path::new(&args.out)),
    ))
}

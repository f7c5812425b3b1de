//! A summary of a dataset: enough to notice defects of a corpus before a model is trained on it.
//!
//! | file | what it holds |
//! |---|---|
//! | `documents` | the documents of a stream of tokens: position, length and hash of each |
//! | `lengths` | [`Lengths`]: their lengths' histogram, median and mean |
//! | `frequencies` | how often each id comes, and how a token is spelled |
//! | `choice` | a few documents, chosen by a seed |
//!
//! One pass over the tokens. Memory: 16 bytes for each document, and what a vocabulary takes.

mod choice;
mod documents;
mod frequencies;
mod lengths;

use rayon::prelude::*;
use serde::Serialize;

use self::choice::Choice;
use self::documents::{Cutter, Document};
use self::frequencies::Frequencies;
pub use self::frequencies::TokenCount;
pub use self::lengths::{Bin, Lengths};
use crate::{DataError, Dataset, Split};

/// The number of the most frequent tokens that are listed.
const FREQUENT: usize = 20;

/// The most tokens of a document that are shown.
const EXCERPT_TOKENS: u64 = 200;

/// The summary of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// The tokenizer's kind.
    pub tokenizer: String,
    /// The number of ids.
    pub vocab_size: usize,
    /// The training split.
    pub train: SplitInspection,
    /// The validation split.
    pub val: SplitInspection,
    /// The number of documents of the validation split that are in the training split too, token for token; none where documents
    /// cannot be separated.
    pub leaked: Option<u64>,
    /// The beginnings of a few documents, chosen by the seed, in their order.
    pub excerpts: Vec<Excerpt>,
}

/// The summary of a split.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SplitInspection {
    /// Files of tokens.
    pub shards: u64,
    /// Tokens in all, end-of-text tokens included.
    pub tokens: u64,
    /// Documents that begin in it, as the manifest says.
    pub documents: u64,
    /// Bytes of text, as the manifest says; none where it does not know them.
    pub bytes: Option<u64>,
    /// The number of its tokens that are targets, where it has masks.
    pub learnt: Option<u64>,
    /// The number of tokens that are the unknown token; none where the tokenizer has no such token.
    pub unknown: Option<u64>,
    /// The number of ids of the vocabulary that never occur.
    pub never_used: u64,
    /// The most frequent tokens.
    pub frequent: Vec<TokenCount>,
    /// Its documents; none where the tokenizer has no end-of-text token to separate them, or there are no tokens.
    pub found: Option<DocumentsFound>,
}

/// The documents of a split, as its index or the end-of-text tokens separate them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DocumentsFound {
    /// The number of documents: one more than begin in the split, where it begins within one.
    pub count: u64,
    /// The number of documents that equal an earlier one, token for token.
    pub duplicates: u64,
    /// Their lengths in tokens, without the end of text.
    pub lengths: Lengths,
}

/// The beginning of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Excerpt {
    /// The split's name.
    pub split: &'static str,
    /// Which of the split's documents, from 0.
    pub document: u64,
    /// Its length in tokens.
    pub tokens: u64,
    /// Its first tokens as text.
    pub text: String,
    /// True if that is all of it.
    pub whole: bool,
}

/// Reads all of `dataset`, and shows the beginnings of `excerpts` documents chosen by `seed`; `progress` receives how many
/// more bytes have been read.
///
/// # Errors
/// Fails if the dataset is damaged.
pub fn inspect(
    dataset: &Dataset,
    excerpts: usize,
    seed: u64,
    progress: &dyn Fn(u64),
) -> Result<Inspection, DataError> {
    let mut train = Pass::run(dataset, Split::Train, Choice::new(excerpts, seed), progress)?;
    // Those for validation are shown where there are too few for training.
    let rest = excerpts - train.chosen.len();
    let val = Pass::run(dataset, Split::Val, Choice::new(rest, seed), progress)?;
    let mut shown = Vec::new();
    for (split, pass) in [(Split::Train, &train), (Split::Val, &val)] {
        for (number, document) in &pass.chosen {
            shown.push(excerpt(dataset, split, *number, document)?);
        }
    }
    train.hashes.par_sort_unstable();
    let told_apart = Split::ALL.map(|split| tells_apart(dataset, split));
    let known = |hash: &&u128| train.hashes.binary_search(hash).is_ok();
    let leaked = val.hashes.par_iter().filter(known).count() as u64;
    let tokenizer = dataset.tokenizer();
    Ok(Inspection {
        tokenizer: tokenizer.kind().to_string(),
        vocab_size: tokenizer.vocab_size(),
        leaked: (!told_apart.contains(&false)).then_some(leaked),
        train: train.report(dataset, Split::Train),
        val: val.report(dataset, Split::Val),
        excerpts: shown,
    })
}

/// The results of one pass over a split.
struct Pass {
    frequencies: Frequencies,
    lengths: Lengths,
    hashes: Vec<u128>,
    /// Each with its number.
    chosen: Vec<(u64, Document)>,
}

impl Pass {
    fn run(
        dataset: &Dataset,
        split: Split,
        mut choice: Choice,
        progress: &dyn Fn(u64),
    ) -> Result<Self, DataError> {
        let tokenizer = dataset.tokenizer();
        let mut frequencies = Frequencies::new(tokenizer.vocab_size());
        let (mut lengths, mut hashes) = (Lengths::default(), Vec::new());
        let (tokens, end_of_text) = (dataset.split(split)?, tokenizer.end_of_text());
        let mut cutter = Cutter::new(end_of_text);
        let mut take = |documents: Vec<Document>| {
            for document in documents {
                choice.offer(hashes.len() as u64, &document);
                lengths.add(document.tokens);
                hashes.push(document.hash);
            }
        };
        dataset.each_block(split, progress, |ids| {
            frequencies.add(ids);
            let cuts = tokens.beginnings(cutter.position(), ids, end_of_text)?;
            take(cutter.add(ids, &cuts));
            Ok(())
        })?;
        take(cutter.finish().into_iter().collect());
        Ok(Self {
            frequencies,
            lengths,
            hashes,
            chosen: choice.finish(),
        })
    }

    fn report(mut self, dataset: &Dataset, split: Split) -> SplitInspection {
        let (tokenizer, manifest) = (dataset.tokenizer(), dataset.manifest().split(split));
        let counts = self.frequencies.counts();
        let count = self.hashes.len() as u64;
        self.hashes.par_sort_unstable();
        self.hashes.dedup();
        let duplicates = count - self.hashes.len() as u64;
        let told_apart = tells_apart(dataset, split) && count > 0;
        SplitInspection {
            shards: manifest.shards.len() as u64,
            tokens: manifest.tokens,
            documents: manifest.documents,
            bytes: (manifest.bytes > 0).then_some(manifest.bytes),
            learnt: manifest.is_masked().then(|| manifest.learnt()),
            unknown: tokenizer.unknown().map(|id| counts[id as usize]),
            never_used: counts.iter().filter(|&&count| count == 0).count() as u64,
            frequent: frequencies::most_frequent(&counts, FREQUENT, tokenizer),
            found: told_apart.then_some(DocumentsFound {
                count,
                duplicates,
                lengths: self.lengths,
            }),
        }
    }
}

/// Returns true if the documents of a split are separated by an index or by the ends of texts.
fn tells_apart(dataset: &Dataset, split: Split) -> bool {
    let indexed = dataset.manifest().split(split).indexes_documents();
    indexed || dataset.tokenizer().end_of_text().is_some()
}

fn excerpt(
    dataset: &Dataset,
    split: Split,
    number: u64,
    document: &Document,
) -> Result<Excerpt, DataError> {
    let shown = document.tokens.min(EXCERPT_TOKENS);
    let ids = dataset.split(split)?.read(document.start, shown)?;
    Ok(Excerpt {
        split: split.name(),
        document: number,
        tokens: document.tokens,
        text: dataset.tokenizer().decode(&ids)?,
        whole: shown == document.tokens,
    })
}

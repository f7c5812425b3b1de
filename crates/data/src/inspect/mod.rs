//! Statistics and excerpts of a dataset, to find defects of a corpus before training on it.
//!
//! | file | contents |
//! |---|---|
//! | `documents` | separates a token stream into documents with position, length and hash |
//! | `lengths` | [`Lengths`]: histogram, median and mean of the document lengths |
//! | `frequencies` | token frequencies and the spelling of tokens |
//! | `sample` | a seeded sample of documents |
//!
//! An inspection reads the tokens once. It needs 16 bytes of memory per document, plus a table of counts per thread.

mod documents;
mod frequencies;
mod lengths;
mod sample;

use rayon::prelude::*;
use serde::Serialize;

use self::documents::{Document, DocumentSplitter};
use self::frequencies::Frequencies;
pub use self::frequencies::TokenCount;
pub use self::lengths::{Bin, Lengths};
use self::sample::Sample;
use crate::{DataError, Dataset, Split};

/// The number of most frequent tokens listed.
const FREQUENT: usize = 20;

/// The maximum number of tokens in an excerpt.
const EXCERPT_TOKENS: u64 = 200;

/// The summary of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// The tokenizer's kind.
    pub tokenizer: String,
    /// The vocabulary size.
    pub vocab_size: usize,
    /// The training split.
    pub train: SplitInspection,
    /// The validation split.
    pub val: SplitInspection,
    /// The number of validation documents that also occur in the training split, token for token. `None` if documents
    /// cannot be separated.
    pub leaked: Option<u64>,
    /// The beginnings of a few documents sampled with the seed, in order.
    pub excerpts: Vec<Excerpt>,
}

/// The summary of a split.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SplitInspection {
    /// The number of shards.
    pub shards: u64,
    /// The number of tokens, including end-of-text tokens.
    pub tokens: u64,
    /// The number of documents that begin in the split, according to the manifest.
    pub documents: u64,
    /// The number of bytes of text, according to the manifest. `None` if the manifest does not state it.
    pub bytes: Option<u64>,
    /// The number of target tokens, if the split has masks.
    pub learnt: Option<u64>,
    /// The number of occurrences of the unknown token. `None` if the tokenizer has no such token.
    pub unknown: Option<u64>,
    /// The number of ids in the vocabulary that never occur.
    pub never_used: u64,
    /// The most frequent tokens.
    pub frequent: Vec<TokenCount>,
    /// Statistics of the documents. `None` if documents cannot be separated or there are no tokens.
    pub found: Option<DocumentsFound>,
}

/// The documents of a split, as separated by its index or by end-of-text tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DocumentsFound {
    /// The number of documents. If the split begins within a document, this is one more than the number of
    /// beginnings.
    pub count: u64,
    /// The number of documents that repeat an earlier one, token for token.
    pub duplicates: u64,
    /// Document lengths in tokens, without the end-of-text token.
    pub lengths: Lengths,
}

/// The beginning of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Excerpt {
    /// The split's name.
    pub split: &'static str,
    /// The index of the document in the split, from 0.
    pub document: u64,
    /// The length of the document in tokens.
    pub tokens: u64,
    /// The text of its first tokens.
    pub text: String,
    /// True if the text is the whole document.
    pub whole: bool,
}

/// Reads all of `dataset` and summarizes it, with the beginnings of up to `excerpts` documents sampled with `seed`.
/// `progress` receives the number of bytes read since the last call.
///
/// # Errors
/// Fails if the dataset is damaged.
pub fn inspect(
    dataset: &Dataset,
    excerpts: usize,
    seed: u64,
    progress: &dyn Fn(u64),
) -> Result<Inspection, DataError> {
    let mut train = Pass::run(dataset, Split::Train, Sample::new(excerpts, seed), progress)?;
    // Use validation documents if the training split has too few.
    let rest = excerpts - train.sampled.len();
    let val = Pass::run(dataset, Split::Val, Sample::new(rest, seed), progress)?;
    let mut shown = Vec::new();
    for (split, pass) in [(Split::Train, &train), (Split::Val, &val)] {
        for (number, document) in &pass.sampled {
            shown.push(excerpt(dataset, split, *number, document)?);
        }
    }
    train.hashes.par_sort_unstable();
    let separable = Split::ALL.map(|split| separates_documents(dataset, split));
    let in_train = |hash: &&u128| train.hashes.binary_search(hash).is_ok();
    let leaked = val.hashes.par_iter().filter(in_train).count() as u64;
    let tokenizer = dataset.tokenizer();
    Ok(Inspection {
        tokenizer: tokenizer.kind().to_string(),
        vocab_size: tokenizer.vocab_size(),
        leaked: (!separable.contains(&false)).then_some(leaked),
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
    /// The sampled documents with their indices.
    sampled: Vec<(u64, Document)>,
}

impl Pass {
    fn run(
        dataset: &Dataset,
        split: Split,
        mut sample: Sample,
        progress: &dyn Fn(u64),
    ) -> Result<Self, DataError> {
        let tokenizer = dataset.tokenizer();
        let mut frequencies = Frequencies::new(tokenizer.vocab_size());
        let (mut lengths, mut hashes) = (Lengths::default(), Vec::new());
        let (tokens, end_of_text) = (dataset.split(split)?, tokenizer.end_of_text());
        let mut splitter = DocumentSplitter::new(end_of_text);
        let mut take = |documents: Vec<Document>| {
            for document in documents {
                sample.consider(hashes.len() as u64, &document);
                lengths.add(document.tokens);
                hashes.push(document.hash);
            }
        };
        dataset.each_block(split, progress, |ids| {
            frequencies.add(ids);
            let cuts = tokens.beginnings(splitter.position(), ids, end_of_text)?;
            take(splitter.add(ids, &cuts));
            Ok(())
        })?;
        take(splitter.finish().into_iter().collect());
        Ok(Self {
            frequencies,
            lengths,
            hashes,
            sampled: sample.finish(),
        })
    }

    fn report(mut self, dataset: &Dataset, split: Split) -> SplitInspection {
        let (tokenizer, manifest) = (dataset.tokenizer(), dataset.manifest().split(split));
        let counts = self.frequencies.counts();
        let count = self.hashes.len() as u64;
        self.hashes.par_sort_unstable();
        self.hashes.dedup();
        let duplicates = count - self.hashes.len() as u64;
        let separable = separates_documents(dataset, split) && count > 0;
        SplitInspection {
            shards: manifest.shards.len() as u64,
            tokens: manifest.tokens,
            documents: manifest.documents,
            bytes: (manifest.bytes > 0).then_some(manifest.bytes),
            learnt: manifest.is_masked().then(|| manifest.learnt()),
            unknown: tokenizer.unknown().map(|id| counts[id as usize]),
            never_used: counts.iter().filter(|&&count| count == 0).count() as u64,
            frequent: frequencies::most_frequent(&counts, FREQUENT, tokenizer),
            found: separable.then_some(DocumentsFound {
                count,
                duplicates,
                lengths: self.lengths,
            }),
        }
    }
}

/// Returns true if an index or the tokenizer's end-of-text token separates the documents of the split.
fn separates_documents(dataset: &Dataset, split: Split) -> bool {
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

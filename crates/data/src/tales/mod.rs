//! Short tales from a seeded grammar, written for this project: a corpus whose exact entropy is known, so that a loss
//! has a floor to be compared with.
//!
//! A tale is eight sentences. Each is one of a few phrasings, and draws words from lists; what a later sentence says of
//! the hero, the helper, the place, the thing and the problem follows from what was drawn before, so that a model needs
//! its memory to do well. Every draw is independent with known odds, and no two sequences of draws make the same text
//! (`parse` finds the one behind a tale), so a tale's probability is the product of its draws' probabilities, and the
//! grammar's entropy the sum of theirs.
//!
//! | file | what it holds |
//! |---|---|
//! | `grammar` | what a grammar consists of, and its exact entropy and expected length |
//! | `words`, `sentences` | the tales' own grammar |
//! | `generate` | a tale as a function of seed and index |
//! | `parse` | a tale back into its draws, and so its exact probability |
//! | `dataset` | [`write_tales_dataset`] |

mod dataset;
mod generate;
mod grammar;
mod parse;
mod sentences;
mod words;

pub use dataset::write_tales_dataset;
pub use generate::{TalesConfig, tale};
pub use parse::nll_nats;

use sentences::SENTENCES;

/// The entropy of one tale, in nats.
pub fn entropy_nats_per_tale() -> f64 {
    SENTENCES
        .iter()
        .map(|sentence| sentence.entropy_nats())
        .sum()
}

/// The expected length of a tale, in characters (each is one byte).
pub fn expected_chars_per_tale() -> f64 {
    SENTENCES
        .iter()
        .map(|sentence| sentence.expected_chars())
        .sum()
}

/// The lowest mean loss that any model can have over endless tales, in nats per token of the char tokenizer.
pub fn floor_nats_per_token() -> f64 {
    entropy_nats_per_tale() / expected_chars_per_tale()
}

/// Every character that a tale can have, in the order of code points: the alphabet of the tales' char tokenizer, the
/// same for every seed and number of tales.
pub fn alphabet() -> Vec<char> {
    let texts = SENTENCES.iter().flat_map(|sentence| sentence.texts());
    let mut chars: Vec<char> = texts.flat_map(str::chars).collect();
    chars.sort_unstable();
    chars.dedup();
    chars
}

//! Short tales from a seeded grammar, written for this project. The exact entropy of this corpus is known, which
//! gives a lower bound to compare a loss with.
//!
//! A tale has eight sentences. Each is one of a few phrasings and draws words from lists. Later sentences refer to
//! the hero, the helper, the place, the thing and the problem drawn before, so a model must use its context to do
//! well. Every draw is independent with a known probability, and no two sequences of draws produce the same text
//! (`parse` recovers the sequence from a tale). The probability of a tale is therefore the product of the
//! probabilities of its draws, and the entropy of the grammar is the sum of their entropies.
//!
//! | file | contents |
//! |---|---|
//! | `grammar` | the elements of a grammar, its exact entropy and expected length |
//! | `words`, `sentences` | the grammar of the tales |
//! | `generate` | generates a tale from seed and index |
//! | `parse` | recovers the draws of a tale, and computes its exact probability |
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

/// The lowest mean loss that any model can reach on an infinite number of tales, in nats per token of the char
/// tokenizer.
pub fn floor_nats_per_token() -> f64 {
    entropy_nats_per_tale() / expected_chars_per_tale()
}

/// All characters that occur in tales, in the order of code points: the alphabet of the tales' char tokenizer. It is
/// the same for every seed and number of tales.
pub fn alphabet() -> Vec<char> {
    let texts = SENTENCES.iter().flat_map(|sentence| sentence.texts());
    let mut chars: Vec<char> = texts.flat_map(str::chars).collect();
    chars.sort_unstable();
    chars.dedup();
    chars
}

//! Generation of a tale, as a pure function of seed and index.

use emberlm_system::random::SplitMix64;

use super::grammar::{Drawn, PhrasePart, Phrasing, Sentence};
use super::sentences::SENTENCES;

/// The number of tales and their seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TalesConfig {
    /// The seed of all random draws.
    pub seed: u64,
    /// The number of tales, at least 2 because the validation split needs one.
    pub tales: u64,
}

impl Default for TalesConfig {
    /// About two megabytes of text.
    fn default() -> Self {
        Self {
            seed: 1,
            tales: 5_000,
        }
    }
}

/// The tale at `index` for `seed`: eight sentences in ASCII and a blank line.
pub fn tale(seed: u64, index: u64) -> String {
    let mut random = SplitMix64::stream(seed, index);
    let mut drawn = Drawn::default();
    let mut text = String::new();
    for sentence in SENTENCES {
        for part in phrasing(&mut random, sentence).parts {
            if let PhrasePart::Draw(word) = part {
                drawn.set(word.slot, random.index(word.texts.len()));
            }
            text += match part {
                PhrasePart::Text(text) => text,
                PhrasePart::Draw(word) | PhrasePart::Repeat(word) => drawn.text(word),
            };
        }
    }
    text
}

/// Draws a phrasing of the sentence in proportion to the weights.
fn phrasing(random: &mut SplitMix64, sentence: &Sentence) -> &'static Phrasing {
    let mut left = random.below(sentence.total_weight().into());
    let mut phrasings = sentence.phrasings.iter();
    loop {
        match phrasings.next() {
            Some(phrasing) if left < phrasing.weight.into() => return phrasing,
            Some(phrasing) => left -= u64::from(phrasing.weight),
            // Unreachable: `left` is below the sum of the weights.
            None => phrasings = sentence.phrasings.iter(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tale_is_a_function_of_seed_and_index() {
        assert_eq!(tale(1, 2), tale(1, 2));
        assert_ne!(tale(1, 2), tale(1, 3));
        assert_ne!(tale(1, 2), tale(2, 2));
        // Exact text, because recorded losses belong to these tales.
        assert_eq!(tale(1, 0), GOLDEN);
    }

    const GOLDEN: &str = "On a snowy Thursday, a piper called Hilda came to the well. There lay a rusty bell under a \
        stone, and she took it. \"The clockmaker lost that bell,\" said a brave raven named Sorrel. But the bridge had \
        fallen. So Sorrel laid a plank over the stream. Soon the clockmaker had it back, and flags were hung out. The \
        clockmaker gave them a sausage. The piper and the raven stayed friends through every winter.\n\n";

    #[test]
    fn tales_are_short_plain_paragraphs() {
        for index in 0..500 {
            let tale = tale(9, index);
            assert!(
                tale.is_ascii() && (250..=540).contains(&tale.len()),
                "{}: {tale}",
                tale.len()
            );
            let body = tale.strip_suffix(".\n\n").unwrap();
            assert!(!body.contains('\n') && !body.contains("  "), "{tale}");
            assert!(body.starts_with(|c: char| c.is_ascii_uppercase()));
        }
    }
}

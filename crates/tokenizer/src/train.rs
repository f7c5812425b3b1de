//! Trains a byte-level byte-pair vocabulary with the trainer of the `tokenizers` crate.
//!
//! The trainer needs only the frequency of each piece, not the text. The corpus is therefore streamed, and
//! memory holds only its distinct pieces. The result depends only on the counts: among the most frequent pairs,
//! the one with the lowest ids is merged first.

use ahash::AHashMap;
use compact_str::CompactString;
use tokenizers::AddedToken;
use tokenizers::models::bpe::{BPE, BpeTrainer};

use crate::fast_encoder::FastEncoder;
use crate::{Pattern, Tokenizer, TokenizerError, byte_level, export};

/// The end-of-text token, which every trained vocabulary has as id 0.
const END_OF_TEXT: &str = "<|endoftext|>";

/// The longest piece used for training, in bytes. Longer ones are runs of repeated characters, from which
/// shorter runs teach as much, and the trainer's time is quadratic in the length of a piece.
const MAX_PIECE: usize = 4096;

/// Options for training a byte-pair vocabulary.
#[derive(Clone, Debug)]
pub struct BpeOptions {
    /// The maximum number of ids, including the 256 bytes and the special tokens.
    pub vocab_size: usize,
    /// The minimum frequency of a pair to be merged.
    pub min_frequency: u64,
    /// The pattern that splits texts into pieces.
    pub pattern: Pattern,
    /// Special tokens in addition to `<|endoftext|>`. Their ids start at 1.
    pub special: Vec<String>,
}

impl BpeOptions {
    /// Options for at most `vocab_size` ids with GPT-4's pattern, merging pairs that occur at least twice.
    pub fn new(vocab_size: usize) -> Self {
        Self {
            vocab_size,
            min_frequency: 2,
            pattern: Pattern::Cl100k,
            special: Vec::new(),
        }
    }
}

/// Trains a byte-pair vocabulary: count the pieces of the texts first, then train on the counts.
///
/// ```
/// use emberlm_tokenizer::{BpeOptions, BpeTraining};
///
/// let training = BpeTraining::new(BpeOptions::new(300))?;
/// let tokenizer = training.train(training.count("the cat and the hat and the bat"))?;
/// // The word that occurs three times is one token with its space.
/// assert_eq!(tokenizer.encode(" the")?.len(), 1);
/// # Ok::<(), emberlm_tokenizer::TokenizerError>(())
/// ```
#[derive(Debug)]
pub struct BpeTraining {
    options: BpeOptions,
    special: Vec<String>,
    splitter: FastEncoder,
}

/// The frequencies of pieces.
#[derive(Clone, Debug, Default)]
pub struct PieceCounts(AHashMap<CompactString, u64>);

impl BpeTraining {
    /// Validates the options.
    ///
    /// # Errors
    /// [`TokenizerError::Training`] if the vocabulary is too small for the bytes and the special tokens, or if
    /// a special token's name has fewer than two characters or is repeated.
    pub fn new(options: BpeOptions) -> Result<Self, TokenizerError> {
        let mut special = vec![END_OF_TEXT.to_owned()];
        for name in &options.special {
            // A single character would be confused with the byte that it represents.
            if name.chars().count() < 2 {
                return Err(refuse(format!(
                    "the special token {name:?} needs two characters at least"
                )));
            }
            if special.contains(name) {
                return Err(refuse(format!("the special token {name} is repeated")));
            }
            special.push(name.clone());
        }
        let least = 256 + special.len();
        if !(least..=1 << 24).contains(&options.vocab_size) {
            return Err(refuse(format!(
                "`vocab_size` is {}, but must be from {least} (256 bytes and {} special) to 16,777,216",
                options.vocab_size,
                special.len(),
            )));
        }
        let splitter = FastEncoder::new(options.pattern.expression());
        let splitter = splitter.ok_or_else(|| refuse("the pattern has another form".to_owned()))?;
        Ok(Self {
            options,
            special,
            splitter,
        })
    }

    /// Counts the pieces of `text`.
    pub fn count(&self, text: &str) -> PieceCounts {
        let mut counts = PieceCounts::default();
        self.splitter.pieces(text, |piece| {
            if piece.len() <= MAX_PIECE {
                counts.add_piece(piece, 1);
            }
        });
        counts
    }

    /// Trains a vocabulary on the counts. It is smaller than requested if the texts run out of pairs.
    ///
    /// # Errors
    /// [`TokenizerError::Training`] if there are no counts, or if they overflow the trainer's counters.
    pub fn train(&self, counts: PieceCounts) -> Result<Tokenizer, TokenizerError> {
        if counts.0.is_empty() {
            return Err(refuse("there is no text".to_owned()));
        }
        // The trainer counts pairs in 32 bits. A pair of tokens is at most as frequent as the pair of bytes
        // where they meet.
        if counts.max_pair_frequency() > i32::MAX as u64 {
            return Err(refuse(format!(
                "two bytes follow each other more than {} times, which is as far as the trainer counts",
                i32::MAX
            )));
        }
        let spelled = counts.0.into_iter().map(|(piece, count)| {
            (
                CompactString::from(byte_level::spell(piece.as_bytes())),
                count,
            )
        });
        let spelled: AHashMap<CompactString, u64> = spelled.collect();
        let special = self
            .special
            .iter()
            .map(|name| AddedToken::from(name.as_str(), true));
        let trainer = BpeTrainer::builder()
            .show_progress(false)
            .vocab_size(self.options.vocab_size)
            .min_frequency(self.options.min_frequency)
            .initial_alphabet((0..=u8::MAX).map(byte_level::char_of).collect())
            .special_tokens(special.collect())
            .build();
        let mut model = BPE::default();
        trainer
            .do_train(&spelled, &mut model)
            .map_err(|error| refuse(error.to_string()))?;
        drop(spelled);
        let merges = export::merges_of(&model)
            .ok_or_else(|| refuse("the trainer's merges cannot be read".to_owned()))?;
        let mut vocab: Vec<(String, u32)> = model.get_vocab().into_iter().collect();
        vocab.sort_by_key(|(_, id)| *id);
        let special: Vec<_> = self.special.iter().cloned().zip(0..).collect();
        let expression = self.options.pattern.expression();
        Tokenizer::from_json(export::trained_json(expression, vocab, merges, &special))
    }
}

impl PieceCounts {
    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        let (mut many, few) = match self.0.len() < other.0.len() {
            true => (other, std::mem::take(self)),
            false => (std::mem::take(self), other),
        };
        for (piece, count) in few.0 {
            *many.0.entry(piece).or_default() += count;
        }
        *self = many;
    }

    /// The number of distinct pieces.
    pub fn distinct(&self) -> usize {
        self.0.len()
    }

    fn add_piece(&mut self, piece: &str, count: u64) {
        match self.0.get_mut(piece) {
            Some(known) => *known += count,
            None => {
                self.0.insert(piece.into(), count);
            }
        }
    }

    /// The frequency of the most common pair of neighbouring bytes.
    fn max_pair_frequency(&self) -> u64 {
        let mut pairs = vec![0_u64; 1 << 16];
        for (piece, count) in &self.0 {
            for pair in piece.as_bytes().windows(2) {
                pairs[usize::from(pair[0]) << 8 | usize::from(pair[1])] += count;
            }
        }
        pairs.into_iter().max().unwrap_or(0)
    }
}

fn refuse(reason: String) -> TokenizerError {
    TokenizerError::Training { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(vocab_size: usize) -> BpeOptions {
        BpeOptions {
            vocab_size,
            min_frequency: 0,
            pattern: Pattern::Cl100k,
            special: Vec::new(),
        }
    }

    fn refused(options: BpeOptions) -> String {
        BpeTraining::new(options).unwrap_err().to_string()
    }

    /// Worked out by hand: in `aab aab ab` the most common pair is `a b`, then `a ab`.
    #[test]
    fn the_most_frequent_pairs_are_merged_first() {
        let training = BpeTraining::new(options(257 + 2)).unwrap();
        let tokenizer = training.train(training.count("aab aab ab")).unwrap();
        assert_eq!(
            (tokenizer.vocab_size(), tokenizer.end_of_text()),
            (259, Some(0))
        );
        let tokens = [257, 258].map(|id| tokenizer.decode(&[id]).unwrap());
        assert_eq!(tokens, ["ab", "aab"]);
    }

    #[test]
    fn counts_in_parts_give_the_same_vocabulary() {
        let text =
            "It's the 1234th time that the cat sat on the mat,\n\tand the naïve 漢字 漢字.\n"
                .repeat(3);
        let training = BpeTraining::new(options(300)).unwrap();
        let whole = training.train(training.count(&text)).unwrap();
        let mut parts = PieceCounts::default();
        for line in text.split_inclusive('\n').rev() {
            parts.add(training.count(line));
        }
        assert!(parts.distinct() > 10);
        assert_eq!(training.train(parts).unwrap().spec(), whole.spec());
    }

    #[test]
    fn long_runs_of_one_letter_train_quickly() {
        let training = BpeTraining::new(options(300)).unwrap();
        let text = "word ".repeat(10) + &"a".repeat(1_000_000);
        let tokenizer = training.train(training.count(&text)).unwrap();
        assert_eq!(tokenizer.decode(&[259]).unwrap(), "word");
    }

    #[test]
    fn invalid_training_options_and_counts_are_rejected() {
        assert!(refused(options(256)).contains("`vocab_size` is 256, but must be from 257"));
        let with = |names: &[&str]| BpeOptions {
            special: names.iter().map(|name| (*name).to_owned()).collect(),
            ..options(300)
        };
        assert!(refused(with(&["a"])).contains("the special token \"a\" needs two characters"));
        assert!(refused(with(&["<a>", "<a>"])).contains("<a> is repeated"));
        assert!(refused(with(&["<|endoftext|>"])).contains("is repeated"));
        let training = BpeTraining::new(options(300)).unwrap();
        let nothing = training.train(PieceCounts::default()).unwrap_err();
        assert_eq!(
            nothing.to_string(),
            "cannot train a tokenizer: there is no text"
        );
        let mut counts = training.count("ab");
        counts.add_piece("cab", i32::MAX as u64);
        assert!(
            training
                .train(counts)
                .unwrap_err()
                .to_string()
                .contains("2147483647 times")
        );
    }
}

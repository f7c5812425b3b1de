//! Masked language modelling (Devlin et al. 2018, [1810.04805](https://arxiv.org/abs/1810.04805)), with masks that differ in
//! every epoch (Liu et al. 2019, [1907.11692](https://arxiv.org/abs/1907.11692)).
//!
//! ```text
//! chosen     with probability p, a token; with whole words, all tokens of a word
//! input      of a chosen token: the mask (80 %), a random token (10 %), the token itself (10 %)
//! target     the token, where it is chosen
//! ```
//!
//! Special tokens are never chosen. Each window has the special tokens of the tokenizer's template around it. The choice is a
//! function of the seed and of the number of the window.

mod open;

use emberlm_data::{Batch, IGNORED, SequenceEncoder, Tokenizer};
use emberlm_system::random::{SplitMix64, split_mix};

use super::HostBatch;
use crate::config::MlmConfig;
use crate::error::TrainError;

/// Distinguishes the random numbers of masks from those of the data order and of dropout.
const STREAM: u64 = 0x6d61_736b_6564_6c6d;

/// The names of mask tokens in published tokenizers.
const MASK_NAMES: [&str; 2] = ["[MASK]", "<mask>"];

/// The number of token ids that masking needs: the tokenizer's, and one for the mask if the tokenizer has none.
pub(crate) fn vocabulary(tokenizer: &Tokenizer) -> usize {
    tokenizer.vocab_size() + usize::from(mask_of(tokenizer).is_none())
}

fn mask_of(tokenizer: &Tokenizer) -> Option<u32> {
    MASK_NAMES
        .into_iter()
        .find_map(|name| tokenizer.special_id(name))
}

/// Replaces tokens of windows.
#[derive(Clone, Debug)]
pub(crate) struct MaskedLm {
    seed: u64,
    probability: f64,
    mask: u32,
    /// The ids that a random token is drawn from.
    ordinary: Vec<u32>,
    /// For each id, true if it may be chosen.
    can_be_chosen: Vec<bool>,
    /// For each id, true if it begins a word. `None` to choose tokens one by one.
    begins_word: Option<Vec<bool>>,
    /// The special tokens before and after a window.
    frame: [Vec<u32>; 2],
}

impl MaskedLm {
    /// The masks of `seed` for windows of a tokenizer's ids.
    ///
    /// # Errors
    /// Whole words are requested, and the tokenizer's tokens are characters or bytes.
    pub(crate) fn new(
        config: &MlmConfig,
        tokenizer: &Tokenizer,
        seed: u64,
    ) -> Result<Self, TrainError> {
        let mut can_be_chosen = vec![true; tokenizer.vocab_size()];
        for (_, id) in tokenizer.special_tokens() {
            if let Some(place) = can_be_chosen.get_mut(id as usize) {
                *place = false;
            }
        }
        let begins_word = match config.whole_words {
            false => None,
            true => {
                let setting = || TrainError::Setting {
                    table: "train.objective",
                    field: "whole_words",
                    value: "true".to_owned(),
                    rule: format!(
                        "must be false: the tokens of the {} tokenizer are no parts of words",
                        tokenizer.kind()
                    ),
                };
                Some(tokenizer.word_starts().ok_or_else(setting)?)
            }
        };
        let ids = (0..).zip(&can_be_chosen);
        let ordinary = ids.filter_map(|(id, ordinary)| ordinary.then_some(id));
        Ok(Self {
            seed: split_mix(seed ^ STREAM),
            probability: config.probability,
            mask: mask_of(tokenizer).unwrap_or(tokenizer.vocab_size() as u32),
            ordinary: ordinary.collect(),
            can_be_chosen,
            begins_word,
            frame: SequenceEncoder::new(tokenizer, usize::MAX).frame(),
        })
    }

    /// The same task with other random numbers, for the validation split.
    pub(crate) fn for_validation(&self) -> Self {
        Self {
            seed: split_mix(!self.seed),
            ..self.clone()
        }
    }

    /// The number of special tokens around a window.
    pub(crate) fn frame_tokens(&self) -> usize {
        self.frame.iter().map(Vec::len).sum()
    }

    /// The masked windows of a batch whose first window has the number `first`.
    pub(crate) fn batch(&self, batch: &Batch, first: u64) -> HostBatch {
        let seq = batch.seq + self.frame_tokens();
        let mut masked = HostBatch {
            inputs: Vec::with_capacity(batch.batch * seq),
            documents: None,
            segments: None,
            lengths: None,
            targets: Vec::with_capacity(batch.batch * seq),
            batch: batch.batch,
            seq,
            target_seq: seq,
            completions: None,
        };
        let [before, after] = &self.frame;
        for (window, row) in (first..).zip(batch.inputs.chunks(batch.seq.max(1))) {
            let mut random = SplitMix64::stream(self.seed, window);
            masked.inputs.extend(before);
            masked.targets.resize(masked.inputs.len(), IGNORED);
            self.push_masked(row, &mut random, &mut masked);
            masked.inputs.extend(after);
            masked.targets.resize(masked.inputs.len(), IGNORED);
        }
        masked
    }

    fn push_masked(&self, row: &[u32], random: &mut SplitMix64, masked: &mut HostBatch) {
        let (mut chosen, mut in_word) = (false, false);
        for &id in row {
            let flag = |flags: &[bool]| flags.get(id as usize).copied().unwrap_or(false);
            if !flag(&self.can_be_chosen) {
                in_word = false;
                masked.inputs.push(id);
                masked.targets.push(IGNORED);
                continue;
            }
            let begins = self.begins_word.as_deref().is_none_or(flag);
            if begins || !in_word {
                chosen = unit(random) < self.probability;
            }
            in_word = true;
            let (input, target) = match chosen {
                true => (self.replacement(id, random), id),
                false => (id, IGNORED),
            };
            masked.inputs.push(input);
            masked.targets.push(target);
        }
    }

    /// The input of a chosen token.
    fn replacement(&self, id: u32, random: &mut SplitMix64) -> u32 {
        match random.below(10) {
            0..8 => self.mask,
            8 => self.ordinary[random.index(self.ordinary.len())],
            _ => id,
        }
    }
}

/// A random number in `[0, 1)`.
fn unit(random: &mut SplitMix64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A WordPiece vocabulary of `[CLS]`, `[SEP]`, `[MASK]`, and the words `a#` with the continuations `##b`.
    fn tokenizer() -> Tokenizer {
        let special = |id: u32, content: &str| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true})
        };
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
            "added_tokens": [special(0, "[CLS]"), special(1, "[SEP]"), special(2, "[MASK]")],
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 1], "cls": ["[CLS]", 0]},
            "model": {"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 9,
                "vocab": {"[CLS]": 0, "[SEP]": 1, "[MASK]": 2, "a": 3, "##b": 4, "c": 5}},
        });
        Tokenizer::from_json(file.to_string()).unwrap()
    }

    fn task(probability: f64, whole_words: bool, seed: u64) -> MaskedLm {
        let config = MlmConfig {
            probability,
            whole_words,
        };
        MaskedLm::new(&config, &tokenizer(), seed).unwrap()
    }

    /// Windows of the words `a##b` and `c`, each with a special token in the middle.
    fn windows(count: usize) -> Batch {
        let row = [3, 4, 5, 1, 3, 4, 4, 5];
        Batch {
            inputs: row.repeat(count),
            targets: vec![0; row.len() * count],
            documents: None,
            batch: count,
            seq: row.len(),
        }
    }

    #[test]
    fn chosen_tokens_are_masked_replaced_or_kept() {
        let (task, windows) = (task(0.15, false, 1), windows(4000));
        let masked = task.batch(&windows, 0);
        assert_eq!((masked.seq, masked.target_seq), (10, 10));
        let (mut chosen, mut kept, mut mask, mut ordinary) = (0, 0, 0, 0.0);
        let rows = masked.inputs.chunks(10).zip(masked.targets.chunks(10));
        for ((inputs, targets), row) in rows.zip(windows.inputs.chunks(8)) {
            assert_eq!((inputs[0], inputs[9]), (0, 1), "the template");
            assert_eq!(
                (targets[0], targets[9], targets[4]),
                (IGNORED, IGNORED, IGNORED)
            );
            for ((&input, &target), &id) in inputs[1..9].iter().zip(&targets[1..9]).zip(row) {
                if target == IGNORED {
                    assert_eq!(input, id);
                    continue;
                }
                assert_eq!(target, id);
                assert!(input >= 2, "a special token");
                chosen += 1;
                mask += usize::from(input == 2);
                kept += usize::from(input == id);
                ordinary += 1.0 / 3.0;
            }
        }
        // 28,000 tokens that can be chosen; six standard deviations.
        assert!((3840..4560).contains(&chosen), "{chosen}");
        let share = |count: usize| count as f64 / chosen as f64;
        assert!((share(mask) - 0.8).abs() < 0.04, "{mask} of {chosen}");
        // A tenth is kept, and a third of another tenth is replaced by itself.
        assert!(
            (share(kept) - 0.1 - 0.1 / 3.0).abs() < 0.03,
            "{kept} of {ordinary}"
        );
    }

    #[test]
    fn masks_are_a_function_of_seed_and_window() {
        let (windows, first) = (windows(6), task(0.5, false, 7));
        let whole = first.batch(&windows, 40);
        let second_half = Batch {
            inputs: windows.inputs[24..].to_vec(),
            batch: 3,
            ..windows.clone()
        };
        assert_eq!(first.batch(&second_half, 43).inputs, whole.inputs[30..]);
        assert_ne!(
            first.batch(&windows, 46).inputs,
            whole.inputs,
            "another epoch"
        );
        assert_ne!(task(0.5, false, 8).batch(&windows, 40).inputs, whole.inputs);
        let validation = first.for_validation();
        assert_ne!(validation.batch(&windows, 40).inputs, whole.inputs);
    }

    #[test]
    fn whole_words_are_chosen_together() {
        let masked = task(0.4, true, 3).batch(&windows(300), 0);
        let mut partial = 0;
        for targets in masked.targets.chunks(10) {
            let is_chosen = |at: usize| targets[at] != IGNORED;
            assert_eq!(is_chosen(1), is_chosen(2));
            assert_eq!(is_chosen(5), is_chosen(6));
            assert_eq!(is_chosen(6), is_chosen(7));
            partial += usize::from(is_chosen(1) != is_chosen(3));
        }
        assert!(partial > 50, "words are chosen one by one: {partial}");
    }

    #[test]
    fn a_tokenizer_without_a_mask_gets_one_more_id() {
        let bytes = Tokenizer::builtin("byte".parse().unwrap()).unwrap();
        assert_eq!(vocabulary(&bytes), bytes.vocab_size() + 1);
        assert_eq!(vocabulary(&tokenizer()), 6);
        let config = MlmConfig {
            probability: 1.0 - 1e-9,
            whole_words: false,
        };
        let masked = MaskedLm::new(&config, &bytes, 1)
            .unwrap()
            .batch(&windows(20), 0);
        let mask = bytes.vocab_size() as u32;
        assert!(masked.inputs.iter().filter(|&&id| id == mask).count() > 100);
        let words = MlmConfig {
            whole_words: true,
            ..config
        };
        let error = MaskedLm::new(&words, &bytes, 1).unwrap_err().to_string();
        assert!(
            error.contains("whole_words = true: must be false"),
            "{error}"
        );
    }
}

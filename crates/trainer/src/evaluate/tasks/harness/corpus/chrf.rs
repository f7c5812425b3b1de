//! chrF (Popović 2015) and chrF++ (Popović 2017) of a corpus, as sacrebleu's `corpus_chrf` with its defaults.

use std::hash::Hash;

use super::ngrams::Ngrams;
use super::words::{is_space, words};

/// The longest n-grams of characters.
const CHARACTER_ORDERS: usize = 6;
/// The weight of recall against precision, squared.
const BETA_SQUARED: f64 = 4.0;

/// Of each order the n-grams of the answer and of the target, and the shared ones: of characters without blanks, and of words up to
/// `word_orders`.
pub(super) fn counts(answer: &str, target: &str, word_orders: usize) -> Vec<u64> {
    let characters = |text: &str| {
        text.chars()
            .filter(|&c| !is_space(c))
            .collect::<Vec<char>>()
    };
    let mut counts = Vec::with_capacity(3 * (CHARACTER_ORDERS + word_orders));
    let [of_answer, of_target] = [answer, target].map(characters);
    add(&mut counts, &of_answer, &of_target, CHARACTER_ORDERS);
    let [of_answer, of_target] = [answer, target].map(words_and_punctuation);
    add(&mut counts, &of_answer, &of_target, word_orders);
    counts
}

fn add<T: Eq + Hash>(counts: &mut Vec<u64>, answer: &[T], target: &[T], orders: usize) {
    for order in 1..=orders {
        let [answer, target] = [answer, target].map(|items| Ngrams::of(items, order));
        // Without an n-gram of the target the order does not count.
        let of_answer = if target.total > 0 { answer.total } else { 0 };
        counts.extend([of_answer, target.total, answer.shared(&target)]);
    }
}

/// The words of a text. A punctuation mark at the end of a word, otherwise one at its beginning, is a word itself.
fn words_and_punctuation(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for word in words(text) {
        let is_mark = |c: &char| c.is_ascii_punctuation();
        let last = word.chars().next_back().filter(is_mark).map(char::len_utf8);
        let first = word.chars().next().filter(is_mark).map(char::len_utf8);
        let cut = match (last, first) {
            (Some(last), _) => word.len() - last,
            (None, Some(first)) => first,
            (None, None) => word.len(),
        };
        let (before, after) = word.split_at(cut);
        parts.extend([before, after].into_iter().filter(|part| !part.is_empty()));
    }
    parts
}

/// The score, from 0 to 100: F-beta of the mean precision and the mean recall over the orders that both have n-grams of.
pub(super) fn score(counts: &[u64]) -> f64 {
    let (mut precision, mut recall, mut orders) = (0.0, 0.0, 0.0);
    for order in counts.chunks_exact(3) {
        let [answer, target, shared] = [order[0], order[1], order[2]].map(|count| count as f64);
        if answer > 0.0 && target > 0.0 {
            precision += shared / answer;
            recall += shared / target;
            orders += 1.0;
        }
    }
    if precision + recall == 0.0 {
        return 0.0;
    }
    let (precision, recall) = (precision / orders, recall / orders);
    100.0 * (1.0 + BETA_SQUARED) * precision * recall / (BETA_SQUARED * precision + recall)
}

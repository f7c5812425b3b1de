//! Parsing of a tale into its draws, to compute its exact probability.

use super::grammar::{Drawn, PhrasePart, Phrasing};
use super::sentences::SENTENCES;
use crate::DataError;

/// The exact negative log-probability of `text` in nats. The text must consist of complete tales of this generator.
///
/// # Errors
/// [`DataError::NotATale`] if the generator cannot have written `text`.
pub fn nll_nats(text: &str) -> Result<f64, DataError> {
    let mut nats = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        nats += take_tale(&mut rest).ok_or(DataError::NotATale {
            offset: text.len() - rest.len(),
        })?;
    }
    Ok(nats)
}

/// Parses one tale at the beginning of `rest` and returns its negative log-probability. If there is none, leaves
/// `rest` at the sentence that does not match.
fn take_tale(rest: &mut &str) -> Option<f64> {
    let mut nats = 0.0;
    let mut drawn = Drawn::default();
    for sentence in SENTENCES {
        let parsed = sentence.phrasings.iter().find_map(|phrasing| {
            let (drawn, after) = take_phrasing(phrasing, drawn, rest)?;
            Some((phrasing, drawn, after))
        });
        let (phrasing, now, after) = parsed?;
        nats += phrasing.draws_nats() - sentence.probability(phrasing).ln();
        (drawn, *rest) = (now, after);
    }
    Some(nats)
}

/// Parses `phrasing` at the beginning of `text`. Returns the draws including its own, and the remaining text.
fn take_phrasing<'a>(
    phrasing: &Phrasing,
    mut drawn: Drawn,
    text: &'a str,
) -> Option<(Drawn, &'a str)> {
    let mut rest = text;
    for part in phrasing.parts {
        let expected = match part {
            PhrasePart::Text(text) => text,
            PhrasePart::Draw(word) => {
                // At most one text matches, because no text in a list is a prefix of another.
                let value = word.texts.iter().position(|text| rest.starts_with(text))?;
                drawn.set(word.slot, value);
                word.texts[value]
            }
            PhrasePart::Repeat(word) => drawn.text(word),
        };
        rest = rest.strip_prefix(expected)?;
    }
    Some((drawn, rest))
}

#[cfg(test)]
mod tests {
    use super::super::grammar::{Sentence, Slot, Word};
    use super::super::{
        alphabet, entropy_nats_per_tale, expected_chars_per_tale, floor_nats_per_token, tale,
    };
    use super::*;

    /// The parts of all phrasings.
    fn parts() -> impl Iterator<Item = &'static PhrasePart> {
        SENTENCES
            .iter()
            .flat_map(|sentence| sentence.phrasings)
            .flat_map(|phrasing| phrasing.parts)
    }

    fn prefix_free(texts: &[&str]) -> bool {
        let clash = |i: usize, j: usize| i != j && texts[i].starts_with(texts[j]);
        !(0..texts.len()).any(|i| (0..texts.len()).any(|j| clash(i, j)))
    }

    #[test]
    fn drawn_lists_are_prefix_free() {
        for part in parts() {
            if let PhrasePart::Draw(word) = part {
                assert!(prefix_free(word.texts), "{word:?}");
            }
        }
    }

    #[test]
    fn lists_of_a_slot_have_equal_lengths() {
        let mut lengths = [None; Slot::COUNT];
        for part in parts() {
            if let PhrasePart::Draw(Word { slot, texts })
            | PhrasePart::Repeat(Word { slot, texts }) = part
            {
                let length = lengths[*slot as usize].get_or_insert(texts.len());
                assert_eq!(*length, texts.len(), "{slot:?}");
            }
        }
        assert!(lengths.iter().all(Option::is_some));
    }

    /// Returns true if the first difference between two phrasings always shows which one was used.
    fn distinguishable(a: &[PhrasePart], b: &[PhrasePart]) -> bool {
        match (a.first(), b.first()) {
            (Some(PhrasePart::Text(x)), Some(PhrasePart::Text(y))) if x != y => {
                prefix_free(&[x, y])
            }
            (Some(PhrasePart::Text(_)), Some(PhrasePart::Text(_))) => {
                distinguishable(&a[1..], &b[1..])
            }
            (Some(PhrasePart::Repeat(x)), Some(PhrasePart::Repeat(y))) => {
                x.texts == y.texts && distinguishable(&a[1..], &b[1..])
            }
            // A repeated word against a fixed text: the text must differ from the beginning of all texts of the word.
            (Some(PhrasePart::Repeat(word)), Some(PhrasePart::Text(text)))
            | (Some(PhrasePart::Text(text)), Some(PhrasePart::Repeat(word))) => word
                .texts
                .iter()
                .all(|expected| prefix_free(&[expected, text])),
            _ => false,
        }
    }

    #[test]
    fn phrasings_are_distinguishable_before_they_draw() {
        for Sentence { phrasings } in SENTENCES {
            for (i, a) in phrasings.iter().enumerate() {
                for b in &phrasings[..i] {
                    assert!(distinguishable(a.parts, b.parts), "{a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn words_are_drawn_once_and_before_they_are_repeated() {
        let mut known = [false; Slot::COUNT];
        for sentence in SENTENCES {
            let mut after = Vec::new();
            for phrasing in sentence.phrasings {
                let mut now = known;
                for part in phrasing.parts {
                    match part {
                        PhrasePart::Text(_) => {}
                        PhrasePart::Draw(word) => {
                            assert!(!std::mem::replace(&mut now[word.slot as usize], true))
                        }
                        PhrasePart::Repeat(word) => assert!(now[word.slot as usize], "{word:?}"),
                    }
                }
                after.push(now);
            }
            known = std::array::from_fn(|slot| after.iter().all(|now| now[slot]));
        }
    }

    /// The grammar guarantees that every sentence parses in exactly one way.
    #[test]
    fn every_tale_parses_uniquely() {
        for index in 0..2_000 {
            let tale = tale(5, index);
            let (mut rest, mut drawn) = (tale.as_str(), Drawn::default());
            for sentence in SENTENCES {
                let readings: Vec<_> = sentence
                    .phrasings
                    .iter()
                    .filter_map(|phrasing| take_phrasing(phrasing, drawn, rest))
                    .collect();
                assert_eq!(readings.len(), 1, "{tale}");
                (drawn, rest) = readings[0];
            }
            assert_eq!(rest, "");
        }
    }

    #[test]
    fn entropy_and_length_match_a_large_sample() {
        let count = 20_000;
        let (mut nats, mut nats_squared, mut chars, mut chars_squared) = (0.0, 0.0, 0.0, 0.0);
        for index in 0..count {
            let tale = tale(77, index);
            let (nll, len) = (nll_nats(&tale).unwrap(), tale.len() as f64);
            nats += nll;
            nats_squared += nll * nll;
            chars += len;
            chars_squared += len * len;
        }
        let check = |exact: f64, sum: f64, squares: f64| {
            let n = count as f64;
            let mean = sum / n;
            let error = ((squares / n - mean * mean) / n).sqrt();
            // Four standard errors. A correct grammar would fail for one seed in ten thousand, and the seed is fixed.
            assert!(
                (exact - mean).abs() < 4.0 * error,
                "{exact} against {mean} ± {error}"
            );
        };
        check(entropy_nats_per_tale(), nats, nats_squared);
        check(expected_chars_per_tale(), chars, chars_squared);
    }

    #[test]
    fn floor_is_low_but_positive() {
        let floor = floor_nats_per_token();
        assert!((0.10..0.35).contains(&floor), "{floor}");
        assert!(
            (250.0..450.0).contains(&expected_chars_per_tale()),
            "{}",
            expected_chars_per_tale()
        );
    }

    #[test]
    fn invalid_tale_error_states_the_offset() {
        let (first, second) = (tale(1, 0), tale(1, 1));
        let two = format!("{first}{second}");
        let sum = nll_nats(&first).unwrap() + nll_nats(&second).unwrap();
        assert!((nll_nats(&two).unwrap() - sum).abs() < 1e-9);
        assert_eq!(nll_nats("").unwrap(), 0.0);

        let offset = |text: &str| match nll_nats(text) {
            Err(DataError::NotATale { offset }) => offset,
            other => panic!("{other:?}"),
        };
        assert_eq!(offset("Once upon a time"), 0);
        assert_eq!(offset(&format!("{first}One")), first.len());
        let broken = two.trim_end().to_owned();
        assert!(offset(&broken) > first.len() && offset(&broken) < two.len());
    }

    #[test]
    fn alphabet_is_the_set_of_characters_in_tales() {
        let alphabet = alphabet();
        assert!(alphabet.is_sorted() && alphabet.contains(&'\n') && alphabet.len() < 65);
        assert!((0..2_000).all(|index| tale(3, index).chars().all(|c| alphabet.contains(&c))));
    }
}

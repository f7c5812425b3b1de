//! Span corruption (Raffel et al. 2020, [1910.10683](https://arxiv.org/abs/1910.10683)): the source has a sentinel in the place
//! of each removed span, the target has each sentinel followed by its span, and both end with the end-of-text token.
//!
//! ```text
//! window   Thank you for inviting me to your party last week
//! source   Thank you <0> me to your party <1> week </s>
//! target   <0> for inviting <1> last </s>
//! ```
//!
//! Lengths are those of `random_spans_helper` in the T5 paper's code: a window has as many tokens as fill the source exactly,
//! so that neither source nor target has padding. The spans are a function of the seed and of the number of the window.

mod open;

use emberlm_data::{Batch, Tokenizer};
use emberlm_system::random::{SplitMix64, split_mix};

use super::HostBatch;
use crate::config::SpanCorruptionConfig;
use crate::error::TrainError;

/// Distinguishes the random numbers of spans from those of the data order and of dropout.
const STREAM: u64 = 0x7370_616e_636f_7272;

/// The number of sentinels that are added to a tokenizer without any, as many as T5 has.
const ADDED_SENTINELS: usize = 100;

/// The number of token ids that span corruption needs: the tokenizer's, and sentinels if the tokenizer has none.
pub(crate) fn vocabulary(tokenizer: &Tokenizer) -> usize {
    match named_sentinels(tokenizer).is_empty() {
        true => tokenizer.vocab_size() + ADDED_SENTINELS,
        false => tokenizer.vocab_size(),
    }
}

/// The ids of `<extra_id_0>`, `<extra_id_1>` and so on.
fn named_sentinels(tokenizer: &Tokenizer) -> Vec<u32> {
    (0..)
        .map_while(|number| tokenizer.special_id(&format!("<extra_id_{number}>")))
        .collect()
}

/// The lengths of windows, sources and targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lengths {
    /// Tokens of a window.
    window: usize,
    /// Removed tokens.
    noise: usize,
    /// Removed spans.
    spans: usize,
}

impl Lengths {
    /// The lengths for windows of `window` tokens, at least 2.
    fn of_window(window: usize, density: f64, mean_span: f64) -> Self {
        let noise = (window as f64 * density).round_ties_even() as usize;
        let noise = noise.clamp(1, window - 1);
        let spans = (noise as f64 / mean_span).round_ties_even() as usize;
        let spans = spans.clamp(1, noise.min(window - noise));
        Self {
            window,
            noise,
            spans,
        }
    }

    /// The lengths of the longest windows whose sources have at most `source` tokens. `None` if there are none.
    fn of_source(source: usize, density: f64, mean_span: f64) -> Option<Self> {
        let lengths = |window| Self::of_window(window, density, mean_span);
        let mut longest = lengths(2);
        if longest.source() > source {
            return None;
        }
        loop {
            let longer = lengths(longest.window + 1);
            if longer.source() > source {
                return Some(longest);
            }
            longest = longer;
        }
    }

    /// Tokens of a source: those that stay, a sentinel per span, the end.
    fn source(&self) -> usize {
        self.window - self.noise + self.spans + 1
    }

    /// Tokens of a target: those that are removed, a sentinel per span, the end.
    fn target(&self) -> usize {
        self.noise + self.spans + 1
    }
}

/// The tokens of a target whose source has `source` tokens.
///
/// # Errors
/// The source is too short.
pub(crate) fn target_tokens(
    config: &SpanCorruptionConfig,
    source: usize,
) -> Result<usize, TrainError> {
    Ok(lengths(config, source)?.target())
}

fn lengths(config: &SpanCorruptionConfig, source: usize) -> Result<Lengths, TrainError> {
    let SpanCorruptionConfig { density, mean_span } = *config;
    Lengths::of_source(source, density, mean_span).ok_or_else(|| TrainError::Setting {
        table: "train",
        field: "seq_len",
        value: source.to_string(),
        rule: "must be at least 3, with objective = span_corruption".to_owned(),
    })
}

/// Removes spans from windows.
#[derive(Clone, Debug)]
pub(crate) struct SpanCorruption {
    seed: u64,
    lengths: Lengths,
    sentinels: Vec<u32>,
    end: u32,
}

impl SpanCorruption {
    /// The spans of `seed` for windows of a tokenizer's ids and sources of `source` tokens. A model of `vocab_size` ids
    /// uses its last ones as sentinels if the tokenizer has none.
    ///
    /// # Errors
    /// The tokenizer has no end-of-text token, the sources are too short, or there are fewer sentinels than spans.
    pub(crate) fn new(
        config: &SpanCorruptionConfig,
        tokenizer: &Tokenizer,
        vocab_size: usize,
        source: usize,
        seed: u64,
    ) -> Result<Self, TrainError> {
        let refuse = |table, field, value: String, rule: String| TrainError::Setting {
            table,
            field,
            value,
            rule,
        };
        let end = tokenizer.end_of_text().ok_or_else(|| {
            let rule = "must be next_token: the tokenizer has no end-of-text token";
            let kind = "span_corruption".to_owned();
            refuse("train.objective", "kind", kind, rule.to_owned())
        })?;
        let mean_span = config.mean_span;
        let lengths = lengths(config, source)?;
        let mut sentinels = named_sentinels(tokenizer);
        if sentinels.is_empty() {
            // As in T5, whose first sentinel is the last id.
            sentinels = (tokenizer.vocab_size() as u32..vocab_size as u32)
                .rev()
                .collect();
        }
        if sentinels.len() < lengths.spans {
            let rule = format!(
                "must be larger: windows of {} tokens have {} removed spans, and the model has {} sentinels",
                lengths.window,
                lengths.spans,
                sentinels.len()
            );
            let value = mean_span.to_string();
            return Err(refuse("train.objective", "mean_span", value, rule));
        }
        Ok(Self {
            seed: split_mix(seed ^ STREAM),
            lengths,
            sentinels,
            end,
        })
    }

    /// The same task with other random numbers, for the validation split.
    pub(crate) fn for_validation(&self) -> Self {
        Self {
            seed: split_mix(!self.seed),
            ..self.clone()
        }
    }

    /// Tokens of a window.
    pub(crate) fn window(&self) -> usize {
        self.lengths.window
    }

    /// Tokens of a target.
    pub(crate) fn target(&self) -> usize {
        self.lengths.target()
    }

    /// The sources and targets of a batch whose first window has the number `first`. `None` for windows of another length,
    /// such as the last one of a split.
    pub(crate) fn batch(&self, batch: &Batch, first: u64) -> Option<HostBatch> {
        let lengths = self.lengths;
        if batch.seq != lengths.window {
            return None;
        }
        let mut corrupted = HostBatch {
            inputs: Vec::with_capacity(batch.batch * lengths.source()),
            documents: None,
            segments: None,
            lengths: None,
            targets: Vec::with_capacity(batch.batch * lengths.target()),
            batch: batch.batch,
            seq: lengths.source(),
            target_seq: lengths.target(),
            completions: None,
        };
        for (window, row) in (first..).zip(batch.inputs.chunks(batch.seq)) {
            let mut random = SplitMix64::stream(self.seed, window);
            self.push(row, &mut random, &mut corrupted);
        }
        Some(corrupted)
    }

    /// Adds the source and the target of a window, which begins with tokens that stay.
    fn push(&self, row: &[u32], random: &mut SplitMix64, corrupted: &mut HostBatch) {
        let Lengths {
            window,
            noise,
            spans,
        } = self.lengths;
        let removed = segments(noise, spans, random);
        let kept = segments(window - noise, spans, random);
        let mut rest = row;
        for ((kept, removed), &sentinel) in kept.into_iter().zip(removed).zip(&self.sentinels) {
            let (stays, after) = rest.split_at(kept);
            let (span, after) = after.split_at(removed);
            rest = after;
            corrupted.inputs.extend(stays);
            corrupted.inputs.push(sentinel);
            corrupted.targets.push(sentinel);
            corrupted.targets.extend(span);
        }
        corrupted.inputs.push(self.end);
        corrupted.targets.push(self.end);
    }
}

/// Divides `items` into `count` segments of at least one item; every division is equally probable.
fn segments(items: usize, count: usize, random: &mut SplitMix64) -> Vec<usize> {
    // Chooses `count - 1` of the `items - 1` boundaries, one after another (Knuth's algorithm S).
    let mut lengths = Vec::with_capacity(count);
    let (mut begun, mut left) = (0, count - 1);
    for boundary in 1..items {
        if random.index(items - boundary) < left {
            lengths.push(boundary - begun);
            (begun, left) = (boundary, left - 1);
        }
    }
    lengths.push(items - begun);
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(source: usize, seed: u64) -> SpanCorruption {
        let bytes = Tokenizer::builtin("byte".parse().unwrap()).unwrap();
        let config = SpanCorruptionConfig::default();
        SpanCorruption::new(&config, &bytes, vocabulary(&bytes), source, seed).unwrap()
    }

    fn windows(task: &SpanCorruption, count: usize) -> Batch {
        let ids = |row: usize| (0..task.window()).map(move |at| ((at + row) % 251) as u32);
        Batch {
            inputs: (0..count).flat_map(ids).collect(),
            targets: vec![0; count * task.window()],
            documents: None,
            batch: count,
            seq: task.window(),
        }
    }

    /// The lengths that `random_spans_helper` of the T5 paper's code computes.
    #[test]
    fn lengths_are_those_of_the_paper() {
        for (source, density, mean_span, window, target) in [
            (512, 0.15, 3.0, 568, 114),
            (1024, 0.15, 3.0, 1137, 229),
            (128, 0.15, 3.0, 141, 29),
            (64, 0.15, 3.0, 70, 14),
            (100, 0.3, 4.0, 127, 49),
        ] {
            let lengths = Lengths::of_source(source, density, mean_span).unwrap();
            assert_eq!(
                (lengths.window, lengths.target()),
                (window, target),
                "{source}"
            );
            assert!(lengths.source() <= source);
        }
        assert_eq!(Lengths::of_source(2, 0.15, 3.0), None);
    }

    #[test]
    fn source_and_target_together_are_the_window() {
        let task = task(64, 5);
        let batch = windows(&task, 50);
        let corrupted = task.batch(&batch, 11).unwrap();
        assert_eq!(corrupted.inputs.len(), 50 * corrupted.seq);
        assert_eq!(corrupted.targets.len(), 50 * corrupted.target_seq);
        let rows = corrupted.inputs.chunks(corrupted.seq);
        let rows = rows.zip(corrupted.targets.chunks(corrupted.target_seq));
        for ((source, target), window) in rows.zip(batch.inputs.chunks(task.window())) {
            let (Some((&256, source)), Some((&256, mut target))) =
                (source.split_last(), target.split_last())
            else {
                panic!("no end of text");
            };
            let mut joined = Vec::new();
            for &id in source {
                if id <= 256 {
                    joined.push(id);
                    continue;
                }
                assert_eq!(target[0], id, "the sentinels are in the same order");
                let end = target[1..].iter().position(|&id| id > 256);
                let end = end.map_or(target.len(), |end| end + 1);
                assert!(end > 1, "no span is empty");
                joined.extend(&target[1..end]);
                target = &target[end..];
            }
            assert_eq!(joined, window);
            assert!(target.is_empty());
        }
        // The first sentinel is the last id, as in T5.
        assert!(
            corrupted
                .targets
                .chunks(corrupted.target_seq)
                .all(|row| row[0] == 356)
        );
    }

    #[test]
    fn spans_are_a_function_of_seed_and_window() {
        let task = task(64, 5);
        let batch = windows(&task, 4);
        let whole = task.batch(&batch, 8).unwrap();
        let last = Batch {
            inputs: batch.inputs[3 * task.window()..].to_vec(),
            batch: 1,
            ..batch.clone()
        };
        let alone = task.batch(&last, 11).unwrap();
        assert_eq!(alone.inputs, whole.inputs[3 * whole.seq..]);
        assert_ne!(task.batch(&batch, 12).unwrap().inputs, whole.inputs);
        assert_ne!(
            task.for_validation().batch(&batch, 8).unwrap().inputs,
            whole.inputs
        );
        let shorter = Batch {
            inputs: vec![1; 9],
            batch: 1,
            seq: 9,
            ..batch
        };
        assert_eq!(task.batch(&shorter, 0), None);
    }

    #[test]
    fn every_division_into_segments_is_equally_probable() {
        let mut random = SplitMix64::new(1);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..10_000 {
            let found = segments(5, 3, &mut random);
            assert_eq!(found.iter().sum::<usize>(), 5);
            *counts.entry(found).or_insert(0) += 1;
        }
        // There are six divisions.
        assert_eq!(counts.len(), 6);
        assert!(
            counts.values().all(|count| (1450..1900).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn unusable_settings_are_refused() {
        let bytes = Tokenizer::builtin("byte".parse().unwrap()).unwrap();
        let config = SpanCorruptionConfig::default();
        let new = |vocab_size, source| {
            let task = SpanCorruption::new(&config, &bytes, vocab_size, source, 1);
            task.unwrap_err().to_string()
        };
        assert!(new(357, 2).contains("train.seq_len = 2: must be at least 3"));
        assert!(new(260, 512).contains("mean_span = 3: must be larger"));
        let chars = Tokenizer::char_from_alphabet("abc".chars()).unwrap();
        let error = SpanCorruption::new(&config, &chars, 103, 64, 1).unwrap_err();
        assert!(
            error.to_string().contains("no end-of-text token"),
            "{error}"
        );
    }
}

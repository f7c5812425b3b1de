//! Translation edit rate of a corpus (Snover et al. 2006), as sacrebleu's `corpus_ter` with its defaults.
//!
//! The edits of an answer are those of words (insertions, deletions and replacements) after shifts of sequences of words,
//! each of which is an edit as well. Shifts are chosen greedily, within the limits of Tercom.

use std::cmp::Reverse;

use super::words::words;

/// Longest sequence of words that is shifted.
const SHIFT_WORDS: usize = 10;
/// Largest distance between the places of a sequence in the answer and in the target.
const SHIFT_DISTANCE: usize = 50;
/// Shifts that are tried for an answer.
const CANDIDATES: usize = 1000;
/// Cells of the table that are computed on each side of its diagonal.
const BEAM: usize = 25;
/// The cost of a cell outside of the beam.
const FAR: usize = usize::MAX / 2;

/// The edits of the answer, and the words of the target.
pub(super) fn counts(answer: &str, target: &str) -> Vec<u64> {
    let [answer, target] = [answer, target].map(str::to_lowercase);
    let [answer, target] = [&answer, &target].map(|text| words(text).collect::<Vec<&str>>());
    vec![edits(answer, &target) as u64, target.len() as u64]
}

/// The score: edits per hundred words of the targets. Lower is better.
pub(super) fn score(counts: &[u64]) -> f64 {
    match counts {
        [0, 0] => 0.0,
        [_, 0] => 100.0,
        [edits, words] => 100.0 * (*edits as f64 / *words as f64),
        _ => 0.0,
    }
}

fn edits<'a>(mut answer: Vec<&'a str>, target: &[&'a str]) -> usize {
    if target.is_empty() {
        return answer.len();
    }
    let (mut shifts, mut tried) = (0, 0);
    while let Some(shifted) = best_shift(&answer, target, &mut tried) {
        shifts += 1;
        answer = shifted;
    }
    shifts + distance(&answer, target)
}

/// The last step to a cell of the table.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Keep,
    Replace,
    /// Of a word of the answer.
    Delete,
    /// Of a word of the target.
    Insert,
    None,
}

/// The fewest edits from the first words of the answer (rows) to the first words of the target, without shifts.
fn table(answer: &[&str], target: &[&str]) -> Vec<Vec<(usize, Step)>> {
    let width = target.len() + 1;
    let mut rows: Vec<Vec<(usize, Step)>> = Vec::with_capacity(answer.len() + 1);
    rows.push((0..width).map(|at| (at, Step::Insert)).collect());
    let slope = target.len() as f64 / answer.len().max(1) as f64;
    let beam = match BEAM as f64 {
        beam if beam < slope / 2.0 => (slope / 2.0 + beam).ceil() as usize,
        _ => BEAM,
    };
    for (at, word) in answer.iter().enumerate() {
        let above = &rows[at];
        let mut row = vec![(FAR, Step::None); width];
        let diagonal = ((at + 1) as f64 * slope).floor() as usize;
        let end = match at + 1 == answer.len() {
            true => width,
            false => width.min(diagonal + beam),
        };
        for column in diagonal.saturating_sub(beam)..end {
            let delete = (above[column].0 + 1, Step::Delete);
            row[column] = match column.checked_sub(1) {
                None => delete,
                Some(before) => {
                    let replace = match *word == target[before] {
                        true => (above[before].0, Step::Keep),
                        false => (above[before].0 + 1, Step::Replace),
                    };
                    let insert = (row[before].0 + 1, Step::Insert);
                    // Of equal costs the first one.
                    let first = |one: (usize, Step), other: (usize, Step)| match other.0 < one.0 {
                        true => other,
                        false => one,
                    };
                    first(first(replace, delete), insert)
                }
            };
        }
        rows.push(row);
    }
    rows
}

/// The rank of a shift: the edits after it, then the longest sequence, then its first place, then the first place to shift it to.
type Rank = (usize, Reverse<usize>, usize, usize);

/// The fewest edits without shifts.
fn distance(answer: &[&str], target: &[&str]) -> usize {
    table(answer, target)[answer.len()][target.len()].0
}

/// The words that the fewest edits leave in place.
struct Alignment {
    edits: usize,
    /// True for the words of the answer that are edited.
    of_answer: Vec<bool>,
    /// True for the words of the target that are edited.
    of_target: Vec<bool>,
    /// The end of the answer's words that belong to those of the target, up to each of these.
    ends: Vec<usize>,
}

impl Alignment {
    fn of(answer: &[&str], target: &[&str]) -> Self {
        let table = table(answer, target);
        let (mut row, mut column) = (answer.len(), target.len());
        let mut this = Self {
            edits: table[row][column].0,
            of_answer: vec![true; row],
            of_target: vec![true; column],
            ends: vec![0; column],
        };
        while row > 0 || column > 0 {
            match table[row][column].1 {
                step @ (Step::Keep | Step::Replace) => {
                    this.ends[column - 1] = row;
                    (row, column) = (row - 1, column - 1);
                    this.of_answer[row] = step == Step::Replace;
                    this.of_target[column] = step == Step::Replace;
                }
                Step::Delete => row -= 1,
                Step::Insert => {
                    column -= 1;
                    this.ends[column] = row;
                }
                Step::None => break,
            }
        }
        this
    }
}

/// The answer after the shift that saves the most edits. `None` if none saves any, or too many were tried.
fn best_shift<'a>(
    answer: &[&'a str],
    target: &[&'a str],
    tried: &mut usize,
) -> Option<Vec<&'a str>> {
    let alignment = Alignment::of(answer, target);
    let mut best: Option<(Rank, Vec<&str>)> = None;
    for (start, at, length) in sequences(answer, target) {
        let is_edited = |edited: &[bool], from: usize| edited[from..from + length].contains(&true);
        let own_end = alignment.ends[at];
        if !is_edited(&alignment.of_answer, start)
            || !is_edited(&alignment.of_target, at)
            || (start < own_end && own_end <= start + length)
        {
            continue;
        }
        let mut last = None;
        for before in at..=at + length {
            let place = match before.checked_sub(1) {
                None => 0,
                Some(word) => match alignment.ends.get(word) {
                    Some(end) => *end,
                    None => break,
                },
            };
            if last == Some(place) {
                continue;
            }
            last = Some(place);
            let shifted = shifted(answer, start, length, place);
            *tried += 1;
            let rank = (distance(&shifted, target), Reverse(length), start, place);
            if best.as_ref().is_none_or(|(other, _)| rank < *other) {
                best = Some((rank, shifted));
            }
        }
        if *tried >= CANDIDATES {
            return None;
        }
    }
    let (rank, shifted) = best?;
    (rank.0 < alignment.edits).then_some(shifted)
}

/// The sequences of words that both have, with their places in the answer and in the target and their lengths.
fn sequences(answer: &[&str], target: &[&str]) -> impl Iterator<Item = (usize, usize, usize)> {
    let places = (0..answer.len()).flat_map(|start| (0..target.len()).map(move |at| (start, at)));
    let near = places.filter(|(start, at)| start.abs_diff(*at) <= SHIFT_DISTANCE);
    near.flat_map(|(start, at)| {
        let pairs = answer[start..].iter().zip(&target[at..]);
        let equal = pairs.take_while(|(one, other)| one == other).count();
        (1..=equal.min(SHIFT_WORDS)).map(move |length| (start, at, length))
    })
}

/// The words with a sequence moved to `place`; within or behind the sequence that is `place` words further.
fn shifted<'a>(words: &[&'a str], start: usize, length: usize, place: usize) -> Vec<&'a str> {
    let end = start + length;
    let (from, to) = match place < start {
        true => (place, start),
        false if place > end => (end, place),
        false => (end, (place + length).min(words.len())),
    };
    let moved = &words[start..end];
    let passed = &words[from..to];
    let parts = match place < start {
        true => [&words[..place], moved, passed, &words[end..]],
        false => [&words[..start], passed, moved, &words[to..]],
    };
    parts.concat()
}

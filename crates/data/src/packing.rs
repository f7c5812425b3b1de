//! Packing of whole documents into rows.
//!
//! Documents are packed next-fit in the dataset's order: a document that does not fit into the rest of a row begins
//! the next row. A document longer than a row is cut into rows, and its last part shares a row with the documents
//! that follow. The rows therefore tile the split, and the index stores only the start of each row: 8 bytes per row.
//! The target of each token is the token after it, in the same row or the next. Every token of the split except the
//! first is predicted once. The end-of-text token that begins a document is predicted by the previous document, which
//! thereby learns where to end.

use std::fmt;
use std::str::FromStr;

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{DataError, TokenSplit};

/// The packing of documents into windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Packing {
    /// Windows of continuous text across document boundaries.
    #[default]
    Stream,
    /// Rows of whole documents. Attention does not cross document boundaries.
    Isolated,
}

impl Packing {
    /// Both packings.
    pub const ALL: [Self; 2] = [Self::Stream, Self::Isolated];

    /// The name that [`FromStr`] parses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Isolated => "isolated",
        }
    }

    /// Returns true for the default packing.
    pub fn is_stream(&self) -> bool {
        *self == Self::Stream
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Packing {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        let named = Self::ALL.into_iter().find(|packing| packing.name() == name);
        named.ok_or_else(|| DataError::UnknownPacking {
            name: name.to_owned(),
        })
    }
}

/// The number of tokens that a thread scans at a time.
const SCANNED: u64 = 1 << 20;

/// The row index of a split.
#[derive(Debug)]
pub(crate) struct PackedRows {
    /// The token that every document begins with.
    pub(crate) end_of_text: u32,
    /// The position at which each row begins, followed by the end of the split.
    starts: Vec<u64>,
    seq_len: u64,
    documents: u64,
}

impl PackedRows {
    /// Packs `split` into rows of `seq_len` positions; every document begins with `end_of_text`. Reads the whole split
    /// on all threads.
    ///
    /// # Errors
    /// As [`TokenSplit::read`] and [`TokenSplit::beginnings`].
    pub(crate) fn new(
        split: &TokenSplit,
        seq_len: u64,
        end_of_text: u32,
    ) -> Result<Self, DataError> {
        let total = split.len();
        let mut packer = Packer {
            starts: Vec::new(),
            capacity: seq_len,
            document: 0,
            documents: 0,
        };
        // A few blocks at a time, to limit the memory for document positions.
        let at_once = SCANNED * 4 * rayon::current_num_threads() as u64;
        for from in (0..total).step_by(at_once as usize) {
            let blocks: Vec<u64> = (from..total.min(from + at_once))
                .step_by(SCANNED as usize)
                .collect();
            let scan = |&start: &u64| -> Result<Vec<u64>, DataError> {
                let ids = split.read(start, SCANNED.min(total - start))?;
                let begins = split.beginnings(start, &ids, Some(end_of_text))?;
                let positions = (start..).zip(begins);
                Ok(positions
                    .filter(|(_, begins)| *begins)
                    .map(|(at, _)| at)
                    .collect())
            };
            let found: Result<Vec<Vec<u64>>, DataError> = blocks.par_iter().map(scan).collect();
            for begin in found?.into_iter().flatten() {
                packer.begin(begin);
            }
        }
        packer.begin(total);
        let mut starts = packer.starts;
        starts.push(total);
        Ok(Self {
            end_of_text,
            starts,
            seq_len,
            documents: packer.documents,
        })
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    /// The number of documents.
    pub(crate) fn documents(&self) -> u64 {
        self.documents
    }

    /// The number of rows that begin before the position `token`.
    pub(crate) fn rows_before(&self, token: u64) -> u64 {
        let starts = &self.starts[..self.starts.len() - 1];
        starts.partition_point(|&start| start < token) as u64
    }

    /// The position of a row's first token, and the number of tokens in the row, at most `seq_len`.
    pub(crate) fn span(&self, row: u64) -> (u64, u64) {
        let [start, end] = [row, row + 1].map(|at| self.starts[at as usize]);
        (start, end - start)
    }

    /// The fraction of positions that are padding, 0 to 1.
    pub(crate) fn padding(&self) -> f64 {
        let tokens = self.starts.last().copied().unwrap_or(0);
        match self.rows() * self.seq_len {
            0 => 0.0,
            positions => 1.0 - tokens as f64 / positions as f64,
        }
    }
}

/// The state of packing documents into rows.
struct Packer {
    starts: Vec<u64>,
    /// The maximum number of tokens in a row.
    capacity: u64,
    /// The position at which the current document begins.
    document: u64,
    documents: u64,
}

impl Packer {
    /// Ends the current document at `end`, where the next one begins.
    fn begin(&mut self, end: u64) {
        let begin = std::mem::replace(&mut self.document, end);
        if begin == end {
            // Empty: the first document begins at the start of the split.
            return;
        }
        self.documents += 1;
        let fits = |row: Option<&u64>| row.is_some_and(|row| end - row <= self.capacity);
        if !fits(self.starts.last()) {
            self.starts.push(begin);
        }
        while let Some(&row) = self.starts.last().filter(|&row| end - row > self.capacity) {
            self.starts.push(row + self.capacity);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dataset::tests::split_of;

    /// Documents of the given lengths. Each begins with 0, followed by consecutive numbers.
    pub(crate) fn documents(lengths: &[usize]) -> Vec<u32> {
        let mut next = 1;
        let mut ids = Vec::new();
        for &len in lengths {
            ids.push(0);
            for _ in 1..len {
                ids.push(next);
                next += 1;
            }
        }
        ids
    }

    fn spans(lengths: &[usize], seq_len: u64) -> Vec<(u64, u64)> {
        let ids = documents(lengths);
        let split = split_of(&ids, &[ids.len()], 70_000);
        let rows = PackedRows::new(&split, seq_len, 0).unwrap();
        (0..rows.rows()).map(|row| rows.span(row)).collect()
    }

    #[test]
    fn rows_of_small_examples() {
        // The second document does not fit into the first row. The third fits into the second.
        assert_eq!(spans(&[3, 2, 2], 4), [(0, 3), (3, 4)]);
        assert_eq!(spans(&[2, 3, 2], 4), [(0, 2), (2, 3), (5, 2)]);
        // A document that fills two rows and part of a third, then a short one.
        assert_eq!(spans(&[1, 8, 1], 3), [(0, 1), (1, 3), (4, 3), (7, 3)]);
        // A document that ends at the last position of a row is not cut.
        assert_eq!(spans(&[4, 4, 1], 4), [(0, 4), (4, 4), (8, 1)]);
        assert_eq!(spans(&[], 3), []);
    }

    proptest! {
        #[test]
        fn rows_tile_the_split(
            lengths in prop::collection::vec(1usize..40, 1..60), seq_len in 1u64..30, headless: bool,
        ) {
            let mut ids = documents(&lengths);
            if headless && lengths[0] > 1 {
                // As if the split began within a document.
                ids.remove(0);
            }
            let split = split_of(&ids, &[ids.len() / 2, ids.len() - ids.len() / 2], 70_000);
            let rows = PackedRows::new(&split, seq_len, 0).unwrap();
            prop_assert_eq!(rows.documents(), lengths.len() as u64);
            let mut end = 0;
            for row in 0..rows.rows() {
                let (start, len) = rows.span(row);
                prop_assert_eq!(start, end);
                prop_assert!(len >= 1 && len <= seq_len);
                end += len;
            }
            prop_assert_eq!(end, ids.len() as u64);
            let positions = (rows.rows() * seq_len) as f64;
            prop_assert!((rows.padding() - (1.0 - ids.len() as f64 / positions)).abs() < 1e-12);
        }

        #[test]
        fn only_documents_longer_than_a_row_are_cut(
            lengths in prop::collection::vec(1usize..40, 1..60), seq_len in 1u64..30,
        ) {
            let mut begin = 0;
            let mut whole = Vec::new();
            for &len in &lengths {
                whole.push((begin, begin + len as u64));
                begin += len as u64;
            }
            for (start, len) in spans(&lengths, seq_len) {
                for &(from, to) in whole.iter().filter(|(from, to)| to - from <= seq_len) {
                    let inside = from >= start && to <= start + len;
                    let outside = to <= start || from >= start + len;
                    prop_assert!(inside || outside, "{from}..{to} and the row {start} of {len}");
                }
            }
        }
    }

    #[test]
    fn names_parse_and_unknown_names_are_rejected() {
        for packing in Packing::ALL {
            assert_eq!(packing.to_string().parse::<Packing>().unwrap(), packing);
        }
        let message = "padded".parse::<Packing>().unwrap_err().to_string();
        assert_eq!(
            message,
            "unknown packing `padded`: choose stream or isolated"
        );
    }

    #[test]
    fn out_of_range_token_is_an_error() {
        let split = split_of(&[0, 1, 9], &[3], 5);
        assert!(PackedRows::new(&split, 2, 0).is_err());
    }
}

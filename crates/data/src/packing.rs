//! Packing of whole documents into rows.
//!
//! A row is a list of pieces, each of consecutive tokens of the split. Two packings fill rows:
//!
//! - Next fit ([`next_fit`]) keeps the dataset's order, so each row is one piece.
//! - Best fit ([`best_fit`]) puts each document into the row that it fills best, which leaves less padding.
//!
//! A document longer than a row is cut, and only its last part shares a row with other documents. The pieces tile the
//! split. The target of each token is the token after it in the split, in the same piece or the next one. Every token of
//! the split except the first is predicted once. The end-of-text token that begins a document is predicted by the
//! previous document, which thereby learns where to end.

mod best_fit;
mod next_fit;

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::best_fit::BestFit;
use self::next_fit::NextFit;
use crate::{DataError, TokenSplit};

emberlm_system::named! {
    /// The packing of documents into windows.
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Packing {
        /// Windows of continuous text across document boundaries.
        #[default]
        Stream = "stream",
        /// Rows of whole documents in the dataset's order. Attention does not cross document boundaries.
        Isolated = "isolated",
        /// Rows of whole documents that are combined for the least padding. Attention does not cross document boundaries.
        BestFit = "best_fit",
    }
}

impl Packing {
    /// Returns true for the default packing.
    pub fn is_stream(&self) -> bool {
        *self == Self::Stream
    }

    /// Returns true if attention does not cross document boundaries.
    pub fn isolates_documents(self) -> bool {
        match self {
            Self::Stream => false,
            Self::Isolated | Self::BestFit => true,
        }
    }

    /// The packing that evaluates a model trained with this one. It keeps the dataset's order, so that a limit selects
    /// the first tokens. The loss of isolated documents does not depend on the rows that they are in.
    pub fn for_evaluation(self) -> Self {
        match self {
            Self::BestFit => Self::Isolated,
            in_order => in_order,
        }
    }
}

/// The number of tokens that a thread scans at a time.
const SCANNED: u64 = 1 << 20;

/// Consecutive tokens of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The position of the first token.
    pub(crate) start: u64,
    /// The number of tokens.
    pub(crate) len: u64,
}

/// The row index of a split.
#[derive(Debug)]
pub(crate) struct PackedRows {
    /// The token that every document begins with.
    pub(crate) end_of_text: u32,
    rows: Rows,
    tokens: u64,
    seq_len: u64,
    documents: u64,
    /// Documents that are longer than a row.
    cut: u64,
}

/// Documents packed into rows.
#[derive(Debug)]
enum Rows {
    NextFit(NextFit),
    BestFit(BestFit),
}

impl PackedRows {
    /// Packs `split` into rows of `seq_len` positions in the dataset's order; every document begins with `end_of_text`.
    /// Reads the whole split on all threads.
    ///
    /// # Errors
    /// As [`TokenSplit::read`] and [`TokenSplit::beginnings`].
    pub(crate) fn next_fit(
        split: &TokenSplit,
        seq_len: u64,
        end_of_text: u32,
    ) -> Result<Self, DataError> {
        let (mut rows, mut cut) = (NextFit::new(seq_len), 0);
        let documents = scan(split, end_of_text, |document| {
            cut += u64::from(document.len > seq_len);
            rows.push(document);
        })?;
        rows.end(split.len());
        Ok(Self {
            end_of_text,
            rows: Rows::NextFit(rows),
            tokens: split.len(),
            seq_len,
            documents,
            cut,
        })
    }

    /// Packs `split` like [`PackedRows::next_fit`], but for the least padding.
    ///
    /// # Errors
    /// As [`PackedRows::next_fit`].
    pub(crate) fn best_fit(
        split: &TokenSplit,
        seq_len: u64,
        end_of_text: u32,
    ) -> Result<Self, DataError> {
        let mut found = Vec::new();
        let documents = scan(split, end_of_text, |document| found.push(document))?;
        let cut = found.iter().filter(|document| document.len > seq_len);
        let cut = cut.count() as u64;
        Ok(Self {
            end_of_text,
            rows: Rows::BestFit(BestFit::pack(found, seq_len)),
            tokens: split.len(),
            seq_len,
            documents,
            cut,
        })
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> u64 {
        match &self.rows {
            Rows::NextFit(rows) => rows.rows(),
            Rows::BestFit(rows) => rows.rows(),
        }
    }

    /// The number of documents.
    pub(crate) fn documents(&self) -> u64 {
        self.documents
    }

    /// The number of documents that are longer than a row, and therefore cut.
    pub(crate) fn cut(&self) -> u64 {
        self.cut
    }

    /// The packing of documents into rows.
    pub(crate) fn packing(&self) -> Packing {
        match self.rows {
            Rows::NextFit(_) => Packing::Isolated,
            Rows::BestFit(_) => Packing::BestFit,
        }
    }

    /// The number of rows that begin before the position `token`. `None` if the rows are not in the split's order.
    pub(crate) fn rows_before(&self, token: u64) -> Option<u64> {
        match &self.rows {
            Rows::NextFit(rows) => Some(rows.rows_before(token)),
            Rows::BestFit(_) => None,
        }
    }

    /// The pieces of a row, together at most `seq_len` tokens.
    pub(crate) fn pieces(&self, row: u64) -> Vec<Piece> {
        match &self.rows {
            Rows::NextFit(rows) => vec![rows.piece(row)],
            Rows::BestFit(rows) => rows.pieces(row).to_vec(),
        }
    }

    /// The fraction of positions that are padding, 0 to 1.
    pub(crate) fn padding(&self) -> f64 {
        match self.rows() * self.seq_len {
            0 => 0.0,
            positions => 1.0 - self.tokens as f64 / positions as f64,
        }
    }
}

/// The length in tokens of the longest document of a split; every document begins with `end_of_text`. Reads the whole
/// split on all threads.
///
/// # Errors
/// As [`PackedRows::next_fit`].
pub(crate) fn longest_document(split: &TokenSplit, end_of_text: u32) -> Result<u64, DataError> {
    let mut longest = 0;
    scan(split, end_of_text, |document| {
        longest = longest.max(document.len);
    })?;
    Ok(longest)
}

/// Calls `visit` for each document of a split, in order, and returns their number. A split that begins within a document
/// has a part of it first.
fn scan(
    split: &TokenSplit,
    end_of_text: u32,
    mut visit: impl FnMut(Piece),
) -> Result<u64, DataError> {
    let total = split.len();
    let (mut start, mut documents) = (0, 0);
    let mut begin = |at: u64| {
        let len = at - std::mem::replace(&mut start, at);
        // Empty if the first document begins at the start of the split.
        if len > 0 {
            documents += 1;
            visit(Piece {
                start: at - len,
                len,
            });
        }
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
        found?.into_iter().flatten().for_each(&mut begin);
    }
    begin(total);
    Ok(documents)
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

    /// The start and the length of the pieces of each row.
    fn rows_of(packed: &PackedRows) -> Vec<Vec<(u64, u64)>> {
        let pieces = |row| packed.pieces(row).into_iter();
        let rows = 0..packed.rows();
        rows.map(|row| pieces(row).map(|piece| (piece.start, piece.len)).collect())
            .collect()
    }

    fn spans(lengths: &[usize], seq_len: u64) -> Vec<(u64, u64)> {
        let ids = documents(lengths);
        let split = split_of(&ids, &[ids.len()], 70_000);
        let rows = PackedRows::next_fit(&split, seq_len, 0).unwrap();
        rows_of(&rows).concat()
    }

    fn best_fit(lengths: &[usize], seq_len: u64) -> Vec<Vec<(u64, u64)>> {
        let ids = documents(lengths);
        let split = split_of(&ids, &[ids.len()], 70_000);
        rows_of(&PackedRows::best_fit(&split, seq_len, 0).unwrap())
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

    #[test]
    fn best_fit_combines_documents_from_different_places() {
        // Next fit needs three rows: 3, 3 + 1, 1.
        assert_eq!(
            best_fit(&[3, 3, 1, 1], 4),
            [vec![(0, 3), (7, 1)], vec![(3, 3), (6, 1)]]
        );
        // The last document fills the second row rather than the emptier first one.
        assert_eq!(
            best_fit(&[2, 3, 1], 4),
            [vec![(0, 2)], vec![(2, 3), (5, 1)]]
        );
        // The rest of a long document is packed like a document.
        assert_eq!(best_fit(&[5, 3], 4), [vec![(0, 4)], vec![(4, 1), (5, 3)]]);
        assert_eq!(best_fit(&[], 3), Vec::<Vec<_>>::new());
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
            let [next, best] = [PackedRows::next_fit, PackedRows::best_fit]
                .map(|pack| pack(&split, seq_len, 0).unwrap());
            prop_assert!(best.rows() <= next.rows());
            for rows in [next, best] {
                prop_assert_eq!(rows.documents(), lengths.len() as u64);
                let packed = rows_of(&rows);
                for row in &packed {
                    prop_assert!(row.iter().map(|(_, len)| len).sum::<u64>() <= seq_len);
                }
                let mut pieces = packed.concat();
                pieces.sort();
                let mut end = 0;
                for (start, len) in pieces {
                    prop_assert_eq!(start, end);
                    prop_assert!(len >= 1);
                    end += len;
                }
                prop_assert_eq!(end, ids.len() as u64);
                let positions = (rows.rows() * seq_len) as f64;
                prop_assert!((rows.padding() - (1.0 - ids.len() as f64 / positions)).abs() < 1e-12);
            }
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
            for (start, len) in [spans(&lengths, seq_len), best_fit(&lengths, seq_len).concat()].concat() {
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
            "unknown packing `padded`: choose stream, isolated or best_fit"
        );
    }

    #[test]
    fn out_of_range_token_is_an_error() {
        let split = split_of(&[0, 1, 9], &[3], 5);
        assert!(PackedRows::next_fit(&split, 2, 0).is_err());
    }
}

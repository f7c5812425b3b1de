//! Best fit, decreasing: documents combined for the least padding.
//!
//! From the longest to the shortest, each document goes into the row with the least remaining space that is enough for
//! it (Ding et al., "Fewer Truncations Improve Language Modeling", 2024). A document longer than a row is cut first:
//! its full parts are rows, and its rest is packed like a document. The index takes 24 bytes per piece.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Piece;

/// Rows of documents from different places of the split.
#[derive(Debug)]
pub(super) struct BestFit {
    /// The pieces of all rows, row by row; those of a row in the split's order.
    pieces: Vec<Piece>,
    /// The index of each row's first piece, followed by the number of pieces.
    rows: Vec<usize>,
}

impl BestFit {
    /// Packs documents into rows of `capacity` tokens. The rows are in the order of their first pieces.
    pub(super) fn pack(documents: Vec<Piece>, capacity: u64) -> Self {
        let parts: Vec<Piece> = documents
            .into_iter()
            .flat_map(|document| cut(document, capacity))
            .collect();
        let rows = rows_of(&parts, capacity);
        let mut numbers = BTreeMap::new();
        let mut placed: Vec<(usize, Piece)> = parts
            .into_iter()
            .zip(rows)
            .map(|(part, row)| {
                let next = numbers.len();
                (*numbers.entry(row).or_insert(next), part)
            })
            .collect();
        placed.sort_by_key(|&(row, part)| (row, part.start));
        let starts = (0..=numbers.len()).map(|row| placed.partition_point(|&(of, _)| of < row));
        Self {
            rows: starts.collect(),
            pieces: placed.iter().map(|&(_, part)| part).collect(),
        }
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> u64 {
        self.rows.len() as u64 - 1
    }

    /// The pieces of a row.
    pub(super) fn pieces(&self, row: u64) -> &[Piece] {
        let row = row as usize;
        &self.pieces[self.rows[row]..self.rows[row + 1]]
    }
}

/// Cuts a document into parts of `capacity` tokens and a shorter rest.
fn cut(document: Piece, capacity: u64) -> impl Iterator<Item = Piece> {
    let end = document.start + document.len;
    let starts = (document.start..end).step_by(capacity as usize);
    starts.map(move |start| Piece {
        start,
        len: capacity.min(end - start),
    })
}

/// The row of each part, by best fit from the longest part to the shortest.
fn rows_of(parts: &[Piece], capacity: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    // Stable, so parts of one length stay in the split's order.
    order.sort_by_key(|&part| Reverse(parts[part].len));
    let mut rows = vec![0; parts.len()];
    // The rows by their remaining space.
    let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut count = 0;
    for part in order {
        let len = parts[part].len;
        let best = open.range_mut(len..).next();
        let found = best.and_then(|(&space, rows)| {
            let row = rows.pop()?;
            Some((row, space, rows.is_empty()))
        });
        let (row, space) = match found {
            Some((row, space, was_last)) => {
                if was_last {
                    open.remove(&space);
                }
                (row, space)
            }
            None => {
                count += 1;
                (count - 1, capacity)
            }
        };
        rows[part] = row;
        if space > len {
            open.entry(space - len).or_default().push(row);
        }
    }
    rows
}

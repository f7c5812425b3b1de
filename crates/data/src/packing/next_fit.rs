//! Next fit: documents in the dataset's order.
//!
//! A document that does not fit into the rest of a row begins the next row. A document longer than a row is cut into
//! rows, and its last part shares a row with the documents that follow. The rows therefore tile the split, and the
//! start of each row, 8 bytes, is its whole index.

use super::Piece;

/// Rows of consecutive documents.
#[derive(Debug)]
pub(super) struct NextFit {
    /// The position at which each row begins, followed by the end of the split.
    starts: Vec<u64>,
    /// The maximum number of tokens in a row.
    capacity: u64,
}

impl NextFit {
    /// No rows yet.
    pub(super) fn new(capacity: u64) -> Self {
        Self {
            starts: Vec::new(),
            capacity,
        }
    }

    /// Appends the document after the previous one.
    pub(super) fn push(&mut self, document: Piece) {
        let end = document.start + document.len;
        let fits = |row: Option<&u64>| row.is_some_and(|row| end - row <= self.capacity);
        if !fits(self.starts.last()) {
            self.starts.push(document.start);
        }
        while let Some(&row) = self.starts.last().filter(|&row| end - row > self.capacity) {
            self.starts.push(row + self.capacity);
        }
    }

    /// Ends the last row at the end of the split.
    pub(super) fn end(&mut self, tokens: u64) {
        self.starts.push(tokens);
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    /// The number of rows that begin before the position `token`.
    pub(super) fn rows_before(&self, token: u64) -> u64 {
        let starts = &self.starts[..self.starts.len() - 1];
        starts.partition_point(|&start| start < token) as u64
    }

    /// The tokens of a row.
    pub(super) fn piece(&self, row: u64) -> Piece {
        let [start, end] = [row, row + 1].map(|at| self.starts[at as usize]);
        let len = end - start;
        Piece { start, len }
    }
}

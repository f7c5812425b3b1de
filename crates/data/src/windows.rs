//! A split in windows: stretches of its text, or rows of whole documents.

use std::sync::Arc;

use crate::order::check_seq_len;
use crate::packing::PackedRows;
use crate::{Batch, DataError, Packing, TokenSplit};

/// A split and the windows that it is read in. Cheap to clone and to share between threads.
#[derive(Clone)]
pub struct Windows {
    split: TokenSplit,
    seq_len: u64,
    rows: Option<Arc<PackedRows>>,
}

impl Windows {
    /// Windows of `seq_len` positions, wherever documents begin.
    ///
    /// # Errors
    /// [`DataError::Value`] where `seq_len` is 0.
    pub fn stream(split: TokenSplit, seq_len: usize) -> Result<Self, DataError> {
        let seq_len = seq_len as u64;
        check_seq_len(seq_len)?;
        Ok(Self {
            split,
            seq_len,
            rows: None,
        })
    }

    /// Rows of whole documents, of `seq_len` positions each: every document begins with `end_of_text`, and one longer than
    /// a row is cut. Reads the whole split once; the index takes 8 bytes per row.
    ///
    /// # Errors
    /// [`DataError::Value`] where `seq_len` is 0; where the tokens cannot be read.
    pub fn isolated(
        split: TokenSplit,
        seq_len: usize,
        end_of_text: u32,
    ) -> Result<Self, DataError> {
        let mut this = Self::stream(split, seq_len)?;
        let rows = PackedRows::new(&this.split, this.seq_len, end_of_text)?;
        this.rows = Some(Arc::new(rows));
        Ok(this)
    }

    /// The tokens.
    pub fn split(&self) -> &TokenSplit {
        &self.split
    }

    /// Positions of a window.
    pub fn seq_len(&self) -> usize {
        self.seq_len as usize
    }

    /// How documents come into windows.
    pub fn packing(&self) -> Packing {
        match self.rows {
            Some(_) => Packing::Isolated,
            None => Packing::Stream,
        }
    }

    /// Of rows of whole documents: how many rows and documents there are, and the part of all positions that hold no
    /// token, 0 to 1.
    pub fn packed(&self) -> Option<Packed> {
        self.rows.as_ref().map(|rows| Packed {
            rows: rows.rows(),
            documents: rows.documents(),
            padding: rows.padding(),
        })
    }

    pub(crate) fn rows(&self) -> Option<&PackedRows> {
        self.rows.as_deref()
    }

    /// No windows yet.
    pub(crate) fn empty_batch(&self, seq: u64) -> Batch {
        Batch::empty(seq as usize, self.rows.is_some())
    }

    /// Appends the window of the batch's positions that begins at a token.
    pub(crate) fn push_from(&self, start: u64, batch: &mut Batch) -> Result<(), DataError> {
        let len = batch.seq as u64 + 1;
        let ids = self.split.read(start, len)?;
        let learnt = self.split.learnt(start, len)?;
        batch.push(&ids, learnt.as_deref());
        Ok(())
    }

    /// Appends a row, without what comes after the split's first `tokens` tokens.
    pub(crate) fn push_row(
        &self,
        rows: &PackedRows,
        row: u64,
        tokens: u64,
        batch: &mut Batch,
    ) -> Result<(), DataError> {
        let (start, len) = rows.span(row);
        let len = len.min(tokens.saturating_sub(start));
        let ids = self.split.read(start, len)?;
        let learnt = self.split.learnt(start, len)?;
        batch.push_documents(&ids, learnt.as_deref(), rows.end_of_text);
        Ok(())
    }
}

/// What came of packing documents into rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packed {
    /// How many rows there are.
    pub rows: u64,
    /// How many documents.
    pub documents: u64,
    /// The part of all positions that hold no token, 0 to 1.
    pub padding: f64,
}

//! A split in windows: contiguous text, or rows of whole documents.

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

    /// Rows of whole documents, of `seq_len` positions each: every document begins with `end_of_text`, which the one before
    /// it predicts at its end, and one longer than a row is cut. Where masks index documents, a document begins where they
    /// say. Where there are other masks, an `end_of_text` that is to be learnt begins nothing: it ends a turn or an
    /// answer within a document. Reads the whole split once; the index takes 8
    /// bytes per row.
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

    /// The packing of documents into windows.
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

    pub(crate) fn rows(&self) -> Option<&Arc<PackedRows>> {
        self.rows.as_ref()
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

    /// Appends a row of the text that the split's first `tokens` tokens are.
    pub(crate) fn push_row(
        &self,
        rows: &PackedRows,
        row: u64,
        tokens: u64,
        batch: &mut Batch,
    ) -> Result<(), DataError> {
        let (start, len) = rows.span(row);
        let left = tokens.min(self.split.len()).saturating_sub(start);
        let ids = self.split.read(start, left.min(len + 1))?;
        let learnt = self.split.learnt(start, ids.len() as u64)?;
        let filled = &ids[..left.min(len) as usize];
        let begins = self
            .split
            .beginnings(start, filled, Some(rows.end_of_text))?;
        batch.push_documents(&ids, &begins, learnt.as_deref(), rows.end_of_text);
        Ok(())
    }
}

/// The statistics of documents packed into rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packed {
    /// The number of rows.
    pub rows: u64,
    /// The number of documents.
    pub documents: u64,
    /// The part of all positions that hold no token, 0 to 1.
    pub padding: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::tests::masked_split;
    use crate::{EvalBatches, IGNORED};

    #[test]
    fn a_conversation_whose_turns_end_with_the_end_of_text_is_one_document() {
        const X: u32 = IGNORED;
        // 0 ends a text, 5 asks, 6 and 7 answer: a conversation of two turns, one of one, and the beginning of a third.
        let ids = [0, 5, 6, 0, 5, 7, 7, 0, 0, 5, 6, 0, 0];
        let learnt = [0, 0, 1, 1, 0, 1, 1, 1, 0, 0, 1, 1, 0].map(|l| l == 1);
        let windows = |unmasked, seq_len| {
            let split = masked_split(&ids, &learnt, unmasked);
            Windows::isolated(split, seq_len, 0).unwrap()
        };
        let batch = |windows: &Windows| {
            let mut batches = EvalBatches::new(windows, 9, None).unwrap();
            batches.next().unwrap().unwrap()
        };
        let whole = windows(0, 13);
        assert_eq!(whole.packed().unwrap().documents, 3);
        let row = batch(&whole);
        assert_eq!(row.inputs, ids);
        assert_eq!(row.targets, [X, 6, 0, X, 7, 7, 0, X, X, 6, 0, X, X]);
        let documents = [[0; 8].as_slice(), &[8; 4], &[12]].concat();
        assert_eq!(row.documents.unwrap(), documents);
        // Rows begin where conversations do.
        let rows = windows(0, 8);
        assert_eq!(rows.packed().unwrap().rows, 2);
        assert_eq!(batch(&rows).inputs[8..], [0, 5, 6, 0, 0, 0, 0, 0]);
        // A shard without a mask is plain text: its ends of text all begin something.
        let row = batch(&windows(4, 13));
        let documents = [[0; 3].as_slice(), &[3; 5], &[8; 4], &[12]].concat();
        assert_eq!(row.documents.unwrap(), documents);
    }
}

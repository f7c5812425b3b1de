//! A split divided into windows: continuous text, or rows of whole documents.

use std::sync::Arc;

use crate::order::check_seq_len;
use crate::packing::{PackedRows, Piece};
use crate::{Batch, DataError, Dataset, Packing, Split, TokenSplit};

/// A split divided into windows. Cheap to clone and to share between threads.
#[derive(Clone)]
pub struct Windows {
    split: TokenSplit,
    seq_len: u64,
    rows: Option<Arc<PackedRows>>,
}

impl Windows {
    /// Windows of `seq_len` positions of continuous text, regardless of document boundaries.
    ///
    /// # Errors
    /// [`DataError::Value`] if `seq_len` is 0.
    pub fn stream(split: TokenSplit, seq_len: usize) -> Result<Self, DataError> {
        let seq_len = seq_len as u64;
        check_seq_len(seq_len)?;
        Ok(Self {
            split,
            seq_len,
            rows: None,
        })
    }

    /// Rows of `seq_len` positions with whole documents. Every document begins with `end_of_text`, which the previous
    /// document predicts at its end. A document longer than a row is cut. If masks index documents, their marks
    /// decide where documents begin. With other masks, an `end_of_text` that is a target begins no document: it ends
    /// a turn or an answer.
    ///
    /// Reads the whole split once. The row index takes 8 bytes per row.
    ///
    /// # Errors
    /// [`DataError::Value`] if `seq_len` is 0. Fails if the tokens cannot be read.
    pub fn isolated(
        split: TokenSplit,
        seq_len: usize,
        end_of_text: u32,
    ) -> Result<Self, DataError> {
        Self::in_rows(split, seq_len, end_of_text, PackedRows::next_fit)
    }

    /// Rows like those of [`Windows::isolated`], with documents combined for the least padding. For training only, since
    /// the rows are not in the order of the split. The row index takes 24 bytes per document.
    ///
    /// # Errors
    /// As [`Windows::isolated`].
    pub fn best_fit(
        split: TokenSplit,
        seq_len: usize,
        end_of_text: u32,
    ) -> Result<Self, DataError> {
        Self::in_rows(split, seq_len, end_of_text, PackedRows::best_fit)
    }

    fn in_rows(
        split: TokenSplit,
        seq_len: usize,
        end_of_text: u32,
        pack: impl FnOnce(&TokenSplit, u64, u32) -> Result<PackedRows, DataError>,
    ) -> Result<Self, DataError> {
        let mut this = Self::stream(split, seq_len)?;
        let rows = pack(&this.split, this.seq_len, end_of_text)?;
        this.rows = Some(Arc::new(rows));
        Ok(this)
    }

    /// The split.
    pub fn split(&self) -> &TokenSplit {
        &self.split
    }

    /// The number of positions in a window.
    pub fn seq_len(&self) -> usize {
        self.seq_len as usize
    }

    /// The packing of documents into windows.
    pub fn packing(&self) -> Packing {
        match &self.rows {
            Some(rows) => rows.packing(),
            None => Packing::Stream,
        }
    }

    /// Statistics of the rows, if documents are packed into rows.
    pub fn packed(&self) -> Option<Packed> {
        self.rows.as_ref().map(|rows| Packed {
            rows: rows.rows(),
            documents: rows.documents(),
            cut: rows.cut(),
            padding: rows.padding(),
        })
    }

    pub(crate) fn rows(&self) -> Option<&Arc<PackedRows>> {
        self.rows.as_ref()
    }

    /// A batch without windows, for rows of `seq` positions.
    pub(crate) fn empty_batch(&self, seq: u64) -> Batch {
        Batch::empty(seq as usize, self.rows.is_some())
    }

    /// Appends the window that begins at the token `start`.
    pub(crate) fn push_from(&self, start: u64, batch: &mut Batch) -> Result<(), DataError> {
        let len = batch.seq as u64 + 1;
        let ids = self.split.read(start, len)?;
        let learnt = self.split.learnt(start, len)?;
        batch.push(&ids, learnt.as_deref());
        Ok(())
    }

    /// Appends a row, limited to the first `tokens` tokens of the split.
    pub(crate) fn push_row(
        &self,
        rows: &PackedRows,
        row: u64,
        tokens: u64,
        batch: &mut Batch,
    ) -> Result<(), DataError> {
        for Piece { start, len } in rows.pieces(row) {
            let left = tokens.min(self.split.len()).saturating_sub(start);
            let ids = self.split.read(start, left.min(len + 1))?;
            let learnt = self.split.learnt(start, ids.len() as u64)?;
            let filled = &ids[..left.min(len) as usize];
            let begins = self
                .split
                .beginnings(start, filled, Some(rows.end_of_text))?;
            batch.push_documents(&ids, &begins, learnt.as_deref());
        }
        batch.end_row(rows.end_of_text);
        Ok(())
    }
}

impl Dataset {
    /// Divides one split into windows of `seq_len` positions.
    ///
    /// # Errors
    /// As [`Dataset::split`] and [`Windows::stream`], or [`Windows::isolated`] for isolated documents. If the masks
    /// do not index documents, isolation also fails with [`DataError::NoEndOfText`] if the tokenizer has no
    /// end-of-text token, and with [`DataError::EndOfTextWithin`] if the masks cannot separate document starts from
    /// other end-of-text tokens.
    pub fn windows(
        &self,
        split: Split,
        seq_len: usize,
        packing: Packing,
    ) -> Result<Windows, DataError> {
        let tokens = self.split(split)?;
        let indexed = self.manifest().split(split).indexes_documents();
        let pack = match packing {
            Packing::Stream => return Windows::stream(tokens, seq_len),
            Packing::Isolated => Windows::isolated,
            Packing::BestFit => Windows::best_fit,
        };
        match self.tokenizer().end_of_text() {
            // Padding is never a target, and no document attends to it.
            end_of_text if indexed => pack(tokens, seq_len, end_of_text.unwrap_or(0)),
            Some(end_of_text) => {
                let windows = pack(tokens, seq_len, end_of_text)?;
                self.check_documents_separable(split, &windows)?;
                Ok(windows)
            }
            None => Err(DataError::NoEndOfText {
                path: self.folder().to_owned(),
                tokenizer: self.tokenizer().kind().to_string(),
            }),
        }
    }

    /// Checks that the end-of-text tokens found in a masked split are document starts. A chat template may end user
    /// turns, which are not targets, with the same token. The mask cannot distinguish the two cases, but the manifest
    /// has the number of documents counted during writing.
    fn check_documents_separable(&self, split: Split, windows: &Windows) -> Result<(), DataError> {
        let manifest = self.manifest().split(split);
        let found = windows.packed().map_or(0, |packed| packed.documents);
        match manifest.documents {
            stated if manifest.is_masked() && found > stated => Err(DataError::EndOfTextWithin {
                path: self.folder().to_owned(),
                split,
                found,
                stated,
            }),
            _ => Ok(()),
        }
    }
}

/// Statistics of documents packed into rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packed {
    /// The number of rows.
    pub rows: u64,
    /// The number of documents.
    pub documents: u64,
    /// The number of documents that are longer than a row. They are cut, and the rest of each has no context before it.
    pub cut: u64,
    /// The fraction of positions that are padding, 0 to 1.
    pub padding: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::tests::masked_split;
    use crate::{EvalBatches, IGNORED};

    #[test]
    fn end_of_text_within_a_conversation_begins_no_document() {
        const X: u32 = IGNORED;
        // Id 0 is the end-of-text token, 5 a question, 6 and 7 answers: a conversation with two turns, one with one
        // turn, and the beginning of a third.
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
        // Rows begin where conversations begin.
        let rows = windows(0, 8);
        assert_eq!(rows.packed().unwrap().rows, 2);
        assert_eq!(batch(&rows).inputs[8..], [0, 5, 6, 0, 0, 0, 0, 0]);
        // Without a mask a shard is plain text, and each end-of-text token begins a document.
        let row = batch(&windows(4, 13));
        let documents = [[0; 3].as_slice(), &[3; 5], &[8; 4], &[12]].concat();
        assert_eq!(row.documents.unwrap(), documents);
    }
}

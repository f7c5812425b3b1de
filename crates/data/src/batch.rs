//! Batches of token ids for training and evaluation.

use std::iter::repeat_n;

/// Marks a target that is excluded from the loss. No vocabulary has an id this large.
pub const IGNORED: u32 = u32::MAX;

/// Token ids and the ids that follow them, row-major `[batch, seq]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Input ids: `[batch, seq]`.
    pub inputs: Vec<u32>,
    /// Target ids, `[batch, seq]`: the next token at every position, or [`IGNORED`].
    pub targets: Vec<u32>,
    /// For each position, the index in its row at which its document begins, `[batch, seq]`. `None` for windows of
    /// continuous text, which ignore document boundaries.
    pub documents: Option<Vec<u32>>,
    /// The number of rows.
    pub batch: usize,
    /// The number of positions in a row.
    pub seq: usize,
}

impl Batch {
    /// An empty batch for rows of `seq` positions. `isolated` rows hold whole documents.
    pub(crate) fn empty(seq: usize, isolated: bool) -> Self {
        Self {
            inputs: Vec::new(),
            targets: Vec::new(),
            documents: isolated.then(Vec::new),
            batch: 0,
            seq,
        }
    }

    /// The number of targets that contribute to the loss.
    pub fn learnt(&self) -> usize {
        self.targets.iter().filter(|&&id| id != IGNORED).count()
    }

    /// Appends the window `ids` of `seq + 1` tokens. Each token predicts its successor unless the mask excludes it.
    pub(crate) fn push(&mut self, ids: &[u32], learnt: Option<&[bool]>) {
        debug_assert_eq!(ids.len(), self.seq + 1);
        self.inputs.extend_from_slice(&ids[..self.seq]);
        match learnt {
            None => self.targets.extend_from_slice(&ids[1..]),
            Some(learnt) => {
                let next = ids.iter().zip(learnt).skip(1);
                let target = |(&id, &learnt)| if learnt { id } else { IGNORED };
                self.targets.extend(next.map(target));
            }
        }
        self.batch += 1;
    }

    /// Appends documents to the current row. `begins` marks the tokens at which a document begins, in addition to the first.
    /// The last element of `ids` is the token after them in the split, if there is one. Each token predicts its successor
    /// unless the mask excludes it. The last token of a document predicts the end-of-text token that begins the next one
    /// in the split.
    pub(crate) fn push_documents(&mut self, ids: &[u32], begins: &[bool], learnt: Option<&[bool]>) {
        let first = self.filled() as u32;
        let documents = self.documents.get_or_insert_default();
        let is_learnt = |at: usize| learnt.is_none_or(|learnt| learnt[at]);
        let mut begin = first;
        for (at, &begins) in begins.iter().enumerate() {
            if begins {
                begin = first + at as u32;
            }
            documents.push(begin);
            let next = ids.get(at + 1).filter(|_| is_learnt(at + 1));
            self.targets.push(next.copied().unwrap_or(IGNORED));
        }
        self.inputs.extend_from_slice(&ids[..begins.len()]);
    }

    /// The number of filled positions of the current row of documents.
    fn filled(&self) -> usize {
        self.inputs.len() - self.batch * self.seq
    }

    /// Ends a row of documents. The rest of it is filled with `padding`, which forms a separate document.
    pub(crate) fn end_row(&mut self, padding: u32) {
        let filled = self.filled();
        let left = self.seq - filled;
        let documents = self.documents.get_or_insert_default();
        documents.extend(repeat_n(filled as u32, left));
        self.inputs.extend(repeat_n(padding, left));
        self.targets.extend(repeat_n(IGNORED, left));
        self.batch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: u32 = IGNORED;

    #[test]
    fn masked_tokens_are_not_targets() {
        let mut batch = Batch::empty(3, false);
        batch.push(&[5, 6, 7, 8], Some(&[true, false, true, true]));
        assert_eq!(
            (&*batch.inputs, &*batch.targets),
            (&[5, 6, 7][..], &[X, 7, 8][..])
        );
        assert_eq!((batch.learnt(), batch.documents), (2, None));
    }

    /// A batch with one row of `seq` positions, `positions` of them filled. Id 0 is the end-of-text token.
    fn row(seq: usize, ids: &[u32], positions: usize, learnt: Option<&[bool]>) -> Batch {
        let begins: Vec<bool> = ids[..positions].iter().map(|&id| id == 0).collect();
        let mut batch = Batch::empty(seq, true);
        batch.push_documents(ids, &begins, learnt);
        batch.end_row(0);
        batch
    }

    #[test]
    fn documents_predict_their_end() {
        // Documents of 3, 1 and 2 tokens, then the first token of the next row.
        let batch = row(6, &[0, 4, 5, 0, 0, 6, 0], 6, None);
        assert_eq!(batch.inputs, [0, 4, 5, 0, 0, 6]);
        assert_eq!(batch.targets, [4, 5, 0, 0, 6, 0]);
        assert_eq!(batch.documents.unwrap(), [0, 0, 0, 3, 4, 4]);
        // The last token of the split predicts nothing.
        let batch = row(3, &[0, 4, 5], 3, None);
        assert_eq!(batch.targets, [4, 5, X]);
        // Part of a document with one masked target.
        let batch = row(2, &[4, 5, 6], 2, Some(&[true, false, true]));
        assert_eq!(
            (batch.targets, batch.documents.unwrap()),
            (vec![X, 6], vec![0, 0])
        );
    }

    #[test]
    fn padding_is_a_document_without_targets() {
        // With the first token of the next row, then at the end of the split.
        for (ids, last) in [(&[0, 4, 0][..], 0), (&[0, 4], X)] {
            let batch = row(4, ids, 2, None);
            assert_eq!(batch.inputs, [0, 4, 0, 0]);
            assert_eq!(batch.targets, [4, last, X, X]);
            assert_eq!(batch.documents.unwrap(), [0, 0, 2, 2]);
        }
    }
}

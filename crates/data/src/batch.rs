//! What a model is fed.

/// A target that is not to be predicted: no vocabulary has so large an id.
pub const IGNORED: u32 = u32::MAX;

/// Token ids and the ids that follow them, row-major `[batch, seq]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// What the model sees: `[batch, seq]`.
    pub inputs: Vec<u32>,
    /// What it is to predict, for every position the token after it or [`IGNORED`]: `[batch, seq]`.
    pub targets: Vec<u32>,
    /// For every position the place in its row where its document begins, `[batch, seq]`; none where a row is one
    /// stretch of text, whatever documents are in it.
    pub documents: Option<Vec<u32>>,
    /// How many rows there are.
    pub batch: usize,
    /// How many positions a row has.
    pub seq: usize,
}

impl Batch {
    /// No rows yet, of `seq` positions each, which are whole documents or stretches of text.
    pub(crate) fn empty(seq: usize, isolated: bool) -> Self {
        Self {
            inputs: Vec::new(),
            targets: Vec::new(),
            documents: isolated.then(Vec::new),
            batch: 0,
            seq,
        }
    }

    /// How many targets are to be predicted.
    pub fn learnt(&self) -> usize {
        self.targets.iter().filter(|&&id| id != IGNORED).count()
    }

    /// Appends the window of `ids`, which are `seq + 1`: each predicts its successor, where that is to be learnt.
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

    /// Appends the row of whole documents `ids`, at most `seq + 1`, each beginning with `end_of_text`; what is left of
    /// the row is padding, a document of its own. No document predicts another's beginning.
    pub(crate) fn push_documents(
        &mut self,
        ids: &[u32],
        learnt: Option<&[bool]>,
        end_of_text: u32,
    ) {
        let documents = self.documents.get_or_insert_default();
        let is_learnt = |at: usize| learnt.is_none_or(|learnt| learnt[at]);
        let mut begin = 0;
        for at in 0..self.seq {
            let id = ids.get(at).copied();
            if id == Some(end_of_text) || at == ids.len() {
                begin = at as u32;
            }
            documents.push(begin);
            self.inputs.push(id.unwrap_or(end_of_text));
            let next = ids.get(at + 1).copied();
            let target = next.filter(|&next| next != end_of_text && is_learnt(at + 1));
            self.targets.push(target.unwrap_or(IGNORED));
        }
        self.batch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: u32 = IGNORED;

    #[test]
    fn masked_tokens_are_no_targets() {
        let mut batch = Batch::empty(3, false);
        batch.push(&[5, 6, 7, 8], Some(&[true, false, true, true]));
        assert_eq!(
            (&*batch.inputs, &*batch.targets),
            (&[5, 6, 7][..], &[X, 7, 8][..])
        );
        assert_eq!((batch.learnt(), batch.documents), (2, None));
    }

    #[test]
    fn documents_predict_themselves_alone() {
        let mut batch = Batch::empty(6, true);
        // 0 is the end of text: documents of 3, 1 and 2 tokens, full but for the target of the last position.
        batch.push_documents(&[0, 4, 5, 0, 0, 6], None, 0);
        assert_eq!(batch.inputs, [0, 4, 5, 0, 0, 6]);
        assert_eq!(batch.targets, [4, 5, X, X, 6, X]);
        assert_eq!(batch.documents.unwrap(), [0, 0, 0, 3, 4, 4]);
        // The part of a cut document, with one token more than there are positions, of which one is masked.
        let mut batch = Batch::empty(2, true);
        batch.push_documents(&[4, 5, 6], Some(&[true, false, true]), 0);
        assert_eq!(
            (batch.targets, batch.documents.unwrap()),
            (vec![X, 6], vec![0, 0])
        );
        // Padding is a document after the last.
        let mut batch = Batch::empty(4, true);
        batch.push_documents(&[0, 4], None, 0);
        assert_eq!(
            (batch.inputs, batch.targets),
            (vec![0, 4, 0, 0], vec![4, X, X, X])
        );
        assert_eq!(batch.documents.unwrap(), [0, 0, 2, 2]);
    }
}

//! What a model is fed.

/// Token ids and the ids that follow them, both row-major `[batch, seq]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// What the model sees: `[batch, seq]`.
    pub inputs: Vec<u32>,
    /// What it is to predict, for every position the token after it: `[batch, seq]`.
    pub targets: Vec<u32>,
    /// How many windows there are.
    pub batch: usize,
    /// How many positions a window has.
    pub seq: usize,
}

impl Batch {
    /// No windows yet, of `seq` positions each.
    pub(crate) fn empty(seq: usize) -> Self {
        Self {
            inputs: Vec::new(),
            targets: Vec::new(),
            batch: 0,
            seq,
        }
    }

    /// Appends the window of `ids`, which are `seq + 1`: each predicts its successor.
    pub(crate) fn push(&mut self, ids: &[u32]) {
        debug_assert_eq!(ids.len(), self.seq + 1);
        self.inputs.extend_from_slice(&ids[..self.seq]);
        self.targets.extend_from_slice(&ids[1..]);
        self.batch += 1;
    }
}

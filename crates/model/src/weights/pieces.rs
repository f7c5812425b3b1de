//! The order of the outputs of a tensor that several parameters share.

use std::ops::Range;

/// Outputs of a tensor in groups of pieces. A parameter has some of the pieces: the first one of every group, then the next one
/// of every group, and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pieces {
    /// Number of groups, one after another in the tensor.
    pub(crate) groups: usize,
    /// Outputs of each piece of a group.
    pub(crate) sizes: Vec<usize>,
    /// The pieces of the parameter.
    pub(crate) own: Range<usize>,
}

impl Pieces {
    /// Outputs of a group.
    fn of_group(&self) -> usize {
        self.sizes.iter().sum()
    }

    /// Outputs of all groups.
    pub(super) fn outputs(&self) -> usize {
        self.groups * self.of_group()
    }

    /// The parameter's column for an output; `None` for that of another parameter.
    pub(super) fn column(&self, output: usize) -> Option<usize> {
        let (group, mut within) = (output / self.of_group(), output % self.of_group());
        let mut before = 0;
        for (piece, &size) in self.sizes.iter().enumerate() {
            let is_own = self.own.contains(&piece);
            if within < size {
                return is_own.then_some(before + group * size + within);
            }
            within -= size;
            before += if is_own { self.groups * size } else { 0 };
        }
        None
    }

    /// True if other parameters have some of the pieces.
    pub(super) fn is_part(&self) -> bool {
        self.own != (0..self.sizes.len())
    }
}

/// One of several parameters of the same shape whose outputs are in one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EqualPart {
    /// Index of the parameter.
    pub index: usize,
    /// Number of parameters.
    pub count: usize,
}

impl EqualPart {
    /// The only parameter of a tensor.
    pub(super) const WHOLE: Self = Self { index: 0, count: 1 };
}

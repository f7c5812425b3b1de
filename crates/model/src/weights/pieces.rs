//! The order of the outputs of a tensor that several parameters share.

use std::ops::Range;

/// Outputs of a tensor in groups of pieces. A parameter has the outputs before them and some of the pieces: the first one of every
/// group, then the next one of every group, and so on. The inputs of a tensor can have such an order as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pieces {
    /// Outputs before the groups, in the parameter's order.
    pub(crate) before: usize,
    /// Number of groups, one after another in the tensor.
    pub(crate) groups: usize,
    /// Outputs of each piece of a group.
    pub(crate) sizes: Vec<usize>,
    /// The pieces of the parameter.
    pub(crate) own: Range<usize>,
}

impl Pieces {
    /// Groups of pieces that all belong to the parameter.
    pub(crate) fn in_groups(groups: usize, sizes: Vec<usize>) -> Self {
        Self {
            before: 0,
            groups,
            own: 0..sizes.len(),
            sizes,
        }
    }

    /// Outputs of a group.
    fn of_group(&self) -> usize {
        self.sizes.iter().sum()
    }

    /// Outputs of the tensor.
    pub(super) fn outputs(&self) -> usize {
        self.before + self.groups * self.of_group()
    }

    /// The parameter's column for an output; `None` for that of another parameter.
    pub(super) fn column(&self, output: usize) -> Option<usize> {
        let Some(output) = output.checked_sub(self.before) else {
            return Some(output);
        };
        let (group, mut within) = (output / self.of_group(), output % self.of_group());
        let mut before = self.before;
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

    /// The place of each piece in the parameter, in the order of the tensor. Returns `None` unless the tensor consists of pieces of
    /// one size, a multiple of `unit`.
    pub(super) fn places(&self, unit: usize) -> Option<Vec<usize>> {
        let &size = self.sizes.first()?;
        let is_even = self.sizes.iter().all(|&other| other == size);
        if !is_even || self.before > 0 || size == 0 || !size.is_multiple_of(unit) {
            return None;
        }
        let firsts = (0..self.outputs()).step_by(size);
        firsts
            .map(|first| Some(self.column(first)? / size))
            .collect()
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

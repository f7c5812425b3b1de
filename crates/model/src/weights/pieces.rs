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

    /// The place in the parameter of each of the equal chunks of a tensor that only this parameter has. Returns `None` if chunks of a
    /// multiple of `unit` have no places, because pieces are smaller.
    pub(super) fn places(&self, unit: usize) -> Option<Vec<usize>> {
        if self.groups == 1 || self.sizes.len() == 1 {
            return Some(vec![0]);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_follow_what_is_before_them() {
        // Two tiles of three pieces of two elements, after one element.
        let pieces = Pieces {
            before: 1,
            ..Pieces::in_groups(2, vec![2; 3])
        };
        assert_eq!(pieces.outputs(), 13);
        let columns: Vec<_> = (0..13).filter_map(|output| pieces.column(output)).collect();
        assert_eq!(columns, [0, 1, 2, 5, 6, 9, 10, 3, 4, 7, 8, 11, 12]);
        assert_eq!(pieces.places(1), None);
    }

    #[test]
    fn pieces_have_places_if_they_are_whole_units() {
        let pieces = Pieces::in_groups(2, vec![64; 3]);
        assert_eq!(pieces.places(32), Some(vec![0, 2, 4, 1, 3, 5]));
        assert_eq!(pieces.places(256), None);
        assert_eq!(Pieces::in_groups(2, vec![64, 32]).places(1), None);
        // In the parameter's order.
        for (groups, sizes) in [(1, vec![64; 3]), (3, vec![64])] {
            assert_eq!(Pieces::in_groups(groups, sizes).places(256), Some(vec![0]));
        }
    }
}

//! Vectors that are divided among ranks.

use std::collections::VecDeque;
use std::ops::Range;

use super::Rank;

/// The elements of a vector that belong to one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The index of the rank.
    pub owner: usize,
    /// The elements of the vector.
    pub elements: Range<usize>,
}

/// A vector `[n]` that is divided among ranks, or a rank's part of it.
#[derive(Clone, Debug)]
pub struct Divided<T> {
    /// The vector.
    pub value: T,
    /// Pieces that are not empty and cover the vector, in order, at most one of each rank.
    pub pieces: Vec<Piece>,
}

/// Elements of a vector within a slice of the elements that are exchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// The index of the vector.
    pub(super) vector: usize,
    /// Elements of the vector.
    pub(super) elements: Range<usize>,
    /// Their place in the slice.
    pub(super) place: Range<usize>,
}

/// A rank's pieces of several vectors as one sequence, read slice by slice.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    /// The elements that were not read, by the index of the vector.
    left: VecDeque<(usize, Range<usize>)>,
}

impl Cursor {
    /// The pieces of the rank `owner`.
    pub(super) fn new<T>(owner: usize, vectors: &[Divided<T>]) -> Self {
        let pieces = vectors.iter().enumerate().flat_map(|(vector, divided)| {
            let own = divided.pieces.iter().filter(|piece| piece.owner == owner);
            own.map(move |piece| (vector, piece.elements.clone()))
        });
        Self {
            left: pieces.collect(),
        }
    }

    /// The pieces of each rank except for `rank`, in rank order.
    pub(super) fn of_others<T>(rank: Rank, vectors: &[Divided<T>]) -> Vec<Self> {
        let others = (0..rank.world_size()).filter(|&index| index != rank.index());
        others.map(|index| Self::new(index, vectors)).collect()
    }

    /// The elements that were not read, by the index of their vector.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        self.left.iter().cloned()
    }

    /// The number of elements that were not read.
    pub(super) fn remaining(&self) -> usize {
        self.left.iter().map(|(_, elements)| elements.len()).sum()
    }

    /// Reads the next `count` elements, or those that are left.
    pub(super) fn next(&mut self, count: usize) -> Vec<Segment> {
        let (mut segments, mut read) = (Vec::new(), 0);
        while read < count
            && let Some((vector, left)) = self.left.front_mut()
        {
            let length = left.len().min(count - read);
            let elements = left.start..left.start + length;
            left.start = elements.end;
            segments.push(Segment {
                vector: *vector,
                elements,
                place: read..read + length,
            });
            read += length;
            if left.start == left.end {
                self.left.pop_front();
            }
        }
        segments
    }
}

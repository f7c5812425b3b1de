//! The division of the trained parameters among ranks, for the sharded optimizer (ZeRO-1).
//!
//! ```text
//! parameters    [ tokens            | qkv       | … | head              ]   flattened, in the model's order
//! shards        [ rank 0        | rank 1        | … | rank N-1          ]   about 1/N of the elements each
//! ```
//!
//! A shard is a range of the flattened parameters, so a parameter has at most one piece per rank. Boundaries lie
//! between parameters, or within one at a multiple of [`SQUARES_CHUNK`] elements: the squares of a gradient are
//! summed per chunk, so the norm has the bits of the undivided gradient. A parameter whose update needs all of it
//! (Muon's matrices) is not cut.

use std::collections::HashMap;
use std::ops::Range;

use emberlm_kernels::SQUARES_CHUNK;

use super::Rank;

/// The division of the trained parameters among ranks. It depends only on the model, the optimizer and the world
/// size.
#[derive(Debug)]
pub(crate) struct Shards {
    rank: Rank,
    parameters: Vec<DividedParameter>,
    by_path: HashMap<String, usize>,
}

/// A trained parameter and its pieces.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DividedParameter {
    pub(crate) path: String,
    pub(crate) shape: Vec<usize>,
    /// Pieces that are not empty, in order.
    pub(crate) pieces: Vec<Piece>,
}

/// The part of a parameter that one rank updates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The index of the rank.
    pub(crate) owner: usize,
    /// The elements of the flattened parameter.
    pub(crate) elements: Range<usize>,
}

impl DividedParameter {
    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The elements that `owner` updates; `None` if there are none.
    pub(crate) fn piece_of(&self, owner: usize) -> Option<Range<usize>> {
        let mut pieces = self.pieces.iter();
        let own = pieces.find(|piece| piece.owner == owner)?;
        Some(own.elements.clone())
    }
}

impl Shards {
    /// Divides parameters, given in the model's order by path, shape, and true if they may be cut.
    pub(crate) fn new(
        rank: Rank,
        parameters: impl IntoIterator<Item = (String, Vec<usize>, bool)>,
    ) -> Self {
        let parameters: Vec<_> = parameters.into_iter().collect();
        let length = |shape: &[usize]| shape.iter().product::<usize>();
        let total: usize = parameters.iter().map(|(_, shape, _)| length(shape)).sum();
        let (ranks, mut owner, mut before) = (rank.world_size(), 0, 0);
        let divided = parameters.into_iter().map(|(path, shape, may_cut)| {
            let length = length(&shape);
            let (mut pieces, mut start) = (Vec::new(), 0);
            let mut add = |owner, elements: Range<usize>| {
                if !elements.is_empty() {
                    pieces.push(Piece { owner, elements });
                }
            };
            while owner + 1 < ranks {
                // Not `total * (owner + 1)`, which could overflow on 32-bit targets.
                let boundary = (total as u128 * (owner as u128 + 1) / ranks as u128) as usize;
                if boundary >= before + length {
                    break;
                }
                let wanted = boundary.saturating_sub(before);
                let cut = cut_near(wanted, length, may_cut).max(start);
                add(owner, start..cut);
                start = cut;
                owner += 1;
            }
            add(owner, start..length);
            before += length;
            DividedParameter {
                path,
                shape,
                pieces,
            }
        });
        let parameters: Vec<DividedParameter> = divided.collect();
        let places = (0..).zip(&parameters);
        Self {
            by_path: places.map(|(at, it)| (it.path.clone(), at)).collect(),
            rank,
            parameters,
        }
    }

    /// The rank of this process.
    pub(crate) fn rank(&self) -> Rank {
        self.rank
    }

    /// The parameters, in the model's order.
    pub(crate) fn parameters(&self) -> &[DividedParameter] {
        &self.parameters
    }

    /// The index of a parameter; `None` if it is not trained.
    pub(crate) fn index_of(&self, path: &str) -> Option<usize> {
        self.by_path.get(path).copied()
    }

    /// The elements of a parameter that this rank updates; `None` if there are none.
    pub(crate) fn own_piece(&self, path: &str) -> Option<Range<usize>> {
        let parameter = self.parameters.get(self.index_of(path)?)?;
        parameter.piece_of(self.rank.index())
    }

    /// The lengths of each rank's pieces of the parameters that `are_present`, in order.
    pub(crate) fn lengths(&self, are_present: &[bool]) -> Vec<Vec<usize>> {
        let mut lengths = vec![Vec::new(); self.rank.world_size()];
        for (parameter, _) in present(&self.parameters, are_present) {
            for piece in &parameter.pieces {
                lengths[piece.owner].push(piece.elements.len());
            }
        }
        lengths
    }
}

/// The parameters that are present, with their indices.
pub(crate) fn present<'a>(
    parameters: &'a [DividedParameter],
    are_present: &'a [bool],
) -> impl Iterator<Item = (&'a DividedParameter, usize)> {
    let indexed = parameters.iter().zip(0..).zip(are_present);
    indexed.filter_map(|(parameter, present)| present.then_some(parameter))
}

/// The place nearest to `wanted` at which a parameter of `length` elements may be cut.
fn cut_near(wanted: usize, length: usize, may_cut: bool) -> usize {
    match may_cut {
        true => ((wanted + SQUARES_CHUNK / 2) / SQUARES_CHUNK * SQUARES_CHUNK).min(length),
        false if wanted < length.div_ceil(2) => 0,
        false => length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(world_size: usize, parameters: &[(&str, usize, bool)]) -> Shards {
        let list = parameters
            .iter()
            .map(|&(path, length, may_cut)| (path.to_owned(), vec![length], may_cut));
        Shards::new(Rank::new(0, world_size).unwrap(), list)
    }

    fn sums(shards: &Shards) -> Vec<usize> {
        let all = vec![true; shards.parameters().len()];
        let lengths = shards.lengths(&all).into_iter();
        lengths.map(|own| own.into_iter().sum()).collect()
    }

    #[test]
    fn shards_are_balanced_and_cover_every_element_once() {
        for ranks in [1, 2, 3, 4, 7, 64] {
            let shards = divided(
                ranks,
                &[
                    ("tokens", 1_000_003, true),
                    ("gain", 64, true),
                    ("weight", 300_000, true),
                ],
            );
            for parameter in shards.parameters() {
                let mut at = 0;
                for piece in &parameter.pieces {
                    assert_eq!(piece.elements.start, at);
                    let end = piece.elements.end;
                    assert!(end.is_multiple_of(SQUARES_CHUNK) || end == parameter.len());
                    at = end;
                }
                assert_eq!(at, parameter.len());
            }
            let share = 1_300_067 / ranks;
            assert!(
                sums(&shards)
                    .iter()
                    .all(|&sum| sum.abs_diff(share) <= 2 * SQUARES_CHUNK),
                "{ranks}: {:?}",
                sums(&shards)
            );
        }
    }

    #[test]
    fn matrices_that_may_not_be_cut_have_one_owner() {
        let matrices = ["a", "b", "c", "d", "e"].map(|path| (path, 10_000, false));
        let shards = divided(2, &matrices);
        assert!(shards.parameters().iter().all(|it| it.pieces.len() == 1));
        assert_eq!(sums(&shards), [30_000, 20_000]);
        // More ranks than matrices: some ranks update nothing.
        assert_eq!(sums(&divided(8, &matrices)).iter().sum::<usize>(), 50_000);
    }
}

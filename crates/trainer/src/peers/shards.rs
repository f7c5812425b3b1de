//! The division of the trained parameters among ranks, for the sharded optimizer (ZeRO-1).
//!
//! ```text
//! parameters    [ tokens │ block 1 │ … │ block n-1 │ block n │ head ]   flattened, in the model's order
//! buckets       [   m          │    …     │    2      │      1      ]   in the order of the backward pass
//! shards        [ 0 │ 1 │ … │N-1│   …     │ 0 │ … │N-1│ 0 │ … │ N-1 ]   of each bucket, about 1/N for each rank
//! ```
//!
//! A bucket is exchanged when its gradients are complete, while the backward pass continues with earlier blocks. Every
//! rank has a part of each bucket, so all ranks send and receive at the same time.
//!
//! A rank's part of a bucket is a range of its flattened parameters, so a parameter has at most one piece per rank.
//! Boundaries lie between parameters, or within one at a multiple of [`SQUARES_CHUNK`] elements: the squares of a
//! gradient are summed per chunk, so the norm has the bits of the undivided gradient. A parameter whose update needs all
//! of it (Muon's matrices) is not cut. A bucket is as large as its balanced division requires ([`Bucketing`]).

use std::collections::HashMap;
use std::ops::Range;

use emberlm_kernels::SQUARES_CHUNK;

use super::{Piece, Rank};

/// The division of the trained parameters among ranks. It depends only on the model, the optimizer and the world
/// size.
#[derive(Debug)]
pub(crate) struct Shards {
    rank: Rank,
    parameters: Vec<DividedParameter>,
    /// Ranges of parameters, in the order of their exchange.
    buckets: Vec<Range<usize>>,
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

/// The rule that ends a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucketing {
    /// The fewest elements.
    pub(crate) least: usize,
    /// The most elements that a rank's part may have, relative to the mean of all ranks.
    pub(crate) imbalance: f64,
}

impl Default for Bucketing {
    /// 4 MiB, whose exchange takes long compared with its latency, and 5 % more than the mean.
    fn default() -> Self {
        Self {
            least: 1 << 20,
            imbalance: 1.05,
        }
    }
}

/// A parameter's path, shape, and true if it may be cut.
type Undivided = (String, Vec<usize>, bool);

impl Shards {
    /// Divides parameters, given in the model's order by path, shape, and true if they may be cut.
    pub(crate) fn new(
        rank: Rank,
        bucketing: Bucketing,
        parameters: impl IntoIterator<Item = Undivided>,
    ) -> Self {
        let parameters: Vec<_> = parameters.into_iter().collect();
        let ranks = rank.world_size();
        let buckets = buckets(ranks, bucketing, &parameters);
        let mut pieces = vec![Vec::new(); parameters.len()];
        for bucket in &buckets {
            let divided = divide(ranks, &parameters[bucket.clone()]);
            for (to, divided) in pieces[bucket.clone()].iter_mut().zip(divided) {
                *to = divided;
            }
        }
        let divided = parameters.into_iter().zip(pieces);
        let divided = divided.map(|((path, shape, _), pieces)| DividedParameter {
            path,
            shape,
            pieces,
        });
        let parameters: Vec<DividedParameter> = divided.collect();
        let places = (0..).zip(&parameters);
        Self {
            by_path: places.map(|(at, it)| (it.path.clone(), at)).collect(),
            rank,
            parameters,
            buckets,
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

    /// Ranges of parameters, in the order of their exchange.
    pub(crate) fn buckets(&self) -> &[Range<usize>] {
        &self.buckets
    }

    /// The elements of the longest slice of each bucket, added up: a rank exchanges as many of gradients, and of
    /// parameters, with every other rank.
    pub(crate) fn longest_slices(&self) -> usize {
        let of_bucket = |bucket: &Range<usize>| {
            let parameters = self.parameters[bucket.clone()].iter();
            longest_part(self.rank.world_size(), parameters.map(|it| &it.pieces))
        };
        self.buckets.iter().map(of_bucket).sum()
    }

    /// The index of a parameter; `None` if it is not trained.
    pub(crate) fn index_of(&self, path: &str) -> Option<usize> {
        self.by_path.get(path).copied()
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

/// Ranges of parameters, from the last one on, that can be divided equally by [`divide`].
fn buckets(ranks: usize, bucketing: Bucketing, parameters: &[Undivided]) -> Vec<Range<usize>> {
    let mut buckets: Vec<Range<usize>> = Vec::new();
    let (mut end, mut length, mut next_try) = (parameters.len(), 0, bucketing.least);
    for start in (0..parameters.len()).rev() {
        length += length_of(&parameters[start]);
        if length < next_try {
            continue;
        }
        let longest = longest_part(ranks, &divide(ranks, &parameters[start..end]));
        if (longest * ranks) as f64 <= bucketing.imbalance * length as f64 {
            buckets.push(start..end);
            (end, length, next_try) = (start, 0, bucketing.least);
        } else {
            // So that the time of all tries grows like the number of parameters.
            next_try = length + length / 8;
        }
    }
    match buckets.last_mut() {
        // The first parameters are not enough for a bucket.
        Some(last) => last.start = 0,
        None => buckets.push(0..end),
    }
    buckets
}

/// The pieces of each parameter of a bucket.
fn divide(ranks: usize, parameters: &[Undivided]) -> Vec<Vec<Piece>> {
    let total: usize = parameters.iter().map(length_of).sum();
    let (mut owner, mut before) = (0, 0);
    let pieces = parameters.iter().map(|parameter| {
        let (length, may_cut) = (length_of(parameter), parameter.2);
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
        pieces
    });
    pieces.collect()
}

fn length_of((_, shape, _): &Undivided) -> usize {
    shape.iter().product()
}

/// The elements of the rank with the most.
fn longest_part<'a>(ranks: usize, pieces: impl IntoIterator<Item = &'a Vec<Piece>>) -> usize {
    let mut lengths = vec![0; ranks];
    for piece in pieces.into_iter().flatten() {
        lengths[piece.owner] += piece.elements.len();
    }
    lengths.into_iter().max().unwrap_or_default()
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
        divided_by(Bucketing::default(), world_size, parameters)
    }

    fn divided_by(
        bucketing: Bucketing,
        world_size: usize,
        parameters: &[(&str, usize, bool)],
    ) -> Shards {
        let list = parameters
            .iter()
            .map(|&(path, length, may_cut)| (path.to_owned(), vec![length], may_cut));
        Shards::new(Rank::new(0, world_size).unwrap(), bucketing, list)
    }

    fn sums(shards: &Shards) -> Vec<usize> {
        let pieces = shards.parameters().iter().flat_map(|it| &it.pieces);
        let mut sums = vec![0; shards.rank().world_size()];
        pieces.for_each(|piece| sums[piece.owner] += piece.elements.len());
        sums
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

    fn ends(shards: &Shards) -> Vec<(usize, usize)> {
        let buckets = shards.buckets().iter();
        buckets.map(|bucket| (bucket.start, bucket.end)).collect()
    }

    #[test]
    fn buckets_follow_the_backward_pass_and_are_divided_equally() {
        let blocks = ["tokens", "one", "two", "three", "head"];
        let blocks = blocks.map(|path| (path, 1 << 20, true));
        assert_eq!(
            divided(2, &blocks).buckets(),
            [4..5, 3..4, 2..3, 1..2, 0..1]
        );
        // 100 ranks cannot divide a block at multiples of 4,096 elements so that each part is within 5 % of the mean.
        assert_eq!(ends(&divided(100, &blocks)), [(0, 5)]);
        let loose = Bucketing {
            least: 1 << 21,
            imbalance: 2.0,
        };
        // The first block is too short for a bucket.
        assert_eq!(ends(&divided_by(loose, 100, &blocks)), [(3, 5), (0, 3)]);
        // The matrix of a block cannot be divided, those of two blocks can.
        let matrices = blocks.map(|(path, length, _)| (path, length, false));
        assert_eq!(ends(&divided(2, &matrices)), [(3, 5), (0, 3)]);
        assert_eq!(ends(&divided(7, &matrices)), [(0, 5)]);
    }
}

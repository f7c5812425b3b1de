//! The exchange of a step with a sharded optimizer (ZeRO-1):
//!
//! ```text
//! reduce_scatter    gradients, bucket by bucket during the backward pass ─► sums over all ranks for this rank's shard
//! sum_squares       squares of each chunk of the shards ─► the global norm, the same bits on all ranks
//!                   the optimizer updates this rank's shard
//! gather            updated pieces of all ranks ─► parameters (`gather.rs`)
//! ```

use std::collections::HashMap;
use std::io;

use burn::module::{Module, ParamId};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Tensor, TensorPrimitive};
use emberlm_kernels::{Backend, SQUARES_CHUNK, TrainingBackend, ops};
use emberlm_model::weights::visit_param_ids;

use super::shards::{Shards, present};
use super::{Divided, Peers, PeersError};
use crate::read::host_read;

/// The gradients of this rank's shard, summed over all ranks.
pub(crate) struct ShardGradients<B: BurnBackend> {
    /// True for each divided parameter that has a gradient on any rank. Others, such as those of experts without tokens,
    /// are neither exchanged nor updated.
    pub(crate) are_present: Vec<bool>,
    /// The gradients of this rank's pieces of these parameters, `[n]` each, in order.
    pub(crate) pieces: Vec<FloatTensor<B>>,
}

/// The gradients of some parameters, by index in the [`Shards`], which parameters that are not trained lack; `None` where
/// the loss does not depend on a parameter.
pub(crate) type IndexedGradients<B> = Vec<(Option<usize>, Option<FloatTensor<B>>)>;

/// The indices of a module's parameters in the shards. Parameters that are not trained have none.
pub(crate) fn indices<B: TrainingBackend, M: Module<B>>(
    shards: &Shards,
    module: &M,
) -> HashMap<ParamId, usize> {
    let mut indices = HashMap::new();
    visit_param_ids(module, |path, id| {
        indices.extend(shards.index_of(path).map(|index| (id, index)));
    });
    indices
}

/// Sums the gradients of all ranks for each rank's shard. Each bucket is exchanged when its gradients have arrived, in the
/// order of the buckets.
pub(crate) fn reduce_scatter<B: Backend>(
    peers: &dyn Peers<B>,
    shards: &Shards,
    arriving: impl IntoIterator<Item = IndexedGradients<B>>,
    device: &Device<B>,
) -> Result<ShardGradients<B>, PeersError> {
    let count = shards.parameters().len();
    let mut arriving = arriving.into_iter();
    let mut gradients = vec![None; count];
    let mut are_present = vec![false; count];
    let mut pieces = vec![None; count];
    for bucket in shards.buckets() {
        while gradients[bucket.clone()].iter().any(Option::is_none) {
            let Some(arrived) = arriving.next() else {
                let reason = "the backward pass ended early".to_owned();
                return Err(error(shards, "gradients", reason));
            };
            for (index, gradient) in arrived {
                let Some(index) = index else {
                    if gradient.is_some() {
                        return Err(untrained(shards));
                    }
                    continue;
                };
                // An incomplete gradient was handed over before.
                if index >= bucket.end || gradients[index].is_some() {
                    return Err(incomplete(shards, index));
                }
                gradients[index] = Some(gradient);
            }
        }
        let own: Vec<_> = gradients[bucket.clone()]
            .iter_mut()
            .map(|gradient| gradient.take().flatten())
            .collect();
        let counts: Vec<u64> = own.iter().map(|grad| u64::from(grad.is_some())).collect();
        for (present, ranks) in are_present[bucket.clone()]
            .iter_mut()
            .zip(peers.sum_counts(&counts)?)
        {
            *present = ranks > 0;
        }
        let mut vectors = Vec::new();
        let mut summed = Vec::new();
        for (index, grad) in bucket.clone().zip(own) {
            if !are_present[index] {
                continue;
            }
            let parameter = &shards.parameters()[index];
            // Ranks may have gradients for different parameters, but all must exchange the same vectors. Adding -0 leaves
            // every value as it is, while adding +0 would change -0.
            let grad = match grad {
                Some(grad) => typed::<B>(grad).reshape([parameter.len()]),
                None => Tensor::full([parameter.len()], -0.0, device),
            };
            vectors.push(Divided {
                value: primitive(grad),
                pieces: parameter.pieces.clone(),
            });
            if parameter.piece_of(shards.rank().index()).is_some() {
                summed.push(index);
            }
        }
        let sums = peers.reduce_scatter(vectors)?;
        if sums.len() != summed.len() {
            let reason = format!("{} vectors came back for {}", sums.len(), summed.len());
            return Err(error(shards, "gradients", reason));
        }
        for (index, sum) in summed.into_iter().zip(sums) {
            pieces[index] = Some(sum);
        }
    }
    for (index, gradient) in arriving.flatten() {
        match index {
            Some(index) => return Err(incomplete(shards, index)),
            None if gradient.is_some() => return Err(untrained(shards)),
            None => {}
        }
    }
    Ok(ShardGradients {
        are_present,
        pieces: pieces.into_iter().flatten().collect(),
    })
}

/// The error of a parameter that has a gradient, but is not divided among ranks.
fn untrained(shards: &Shards) -> PeersError {
    let reason = "a parameter that is not trained has a gradient".to_owned();
    error(shards, "gradients", reason)
}

/// The error of a gradient that was exchanged before it was complete.
fn incomplete(shards: &Shards, index: usize) -> PeersError {
    let path = &shards.parameters()[index].path;
    let reason = format!("{path} has a gradient in a later part of the backward pass");
    error(shards, "gradients", reason)
}

/// This rank's loss `[1]`, followed by the sums of squares of the chunks of its shard's gradients.
pub(crate) fn own_figures<B: Backend>(
    loss: Tensor<B, 1>,
    gradients: &ShardGradients<B>,
) -> Vec<f64> {
    let sums = gradients
        .pieces
        .iter()
        .map(|piece| ops::chunk_sums_of_squares::<B>(typed(piece.clone())));
    let figures = Tensor::cat(std::iter::once(loss).chain(sums).collect(), 0);
    host_read(figures).iter::<f64>().collect()
}

/// Sums over all ranks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SummedFigures {
    pub(crate) loss: f32,
    /// The global gradient norm; `None` without gradients.
    pub(crate) norm: Option<f32>,
    /// The sum of squares of each present parameter's gradient, in order.
    pub(crate) squares: Vec<f32>,
}

/// The sums of [`own_figures`] of all ranks.
///
/// They have the bits of one process on flex: losses are added in rank order, and squares of each parameter in f64 and
/// in f32 over the parameters.
pub(crate) fn sum_figures(
    shards: &Shards,
    are_present: &[bool],
    all: &[Vec<f64>],
) -> Result<SummedFigures, PeersError> {
    let missing = || error(shards, "norms", "a rank has too few numbers".to_owned());
    let mut ranks: Vec<_> = all.iter().map(|figures| figures.iter()).collect();
    let mut loss = None;
    for figures in &mut ranks {
        let own = *figures.next().ok_or_else(missing)? as f32;
        loss = Some(loss.map_or(own, |sum: f32| sum + own));
    }
    let mut all_squares = Vec::new();
    for (parameter, _) in present(shards.parameters(), are_present) {
        let mut squares = 0.0;
        for piece in &parameter.pieces {
            let figures = ranks.get_mut(piece.owner).ok_or_else(missing)?;
            for _ in 0..piece.elements.len().div_ceil(SQUARES_CHUNK) {
                squares += figures.next().ok_or_else(missing)?;
            }
        }
        all_squares.push(squares as f32);
    }
    let total = all_squares.iter().copied().reduce(|sum, of| sum + of);
    Ok(SummedFigures {
        loss: loss.ok_or_else(missing)?,
        norm: total.map(f32::sqrt),
        squares: all_squares,
    })
}

/// The error of a rank whose system does not start a thread for `what`.
pub(crate) fn no_thread(shards: &Shards, what: &'static str, source: &io::Error) -> PeersError {
    error(
        shards,
        what,
        format!("no thread to exchange them: {source}"),
    )
}

pub(super) fn error(shards: &Shards, what: &'static str, reason: String) -> PeersError {
    PeersError {
        rank: shards.rank(),
        what,
        reason,
    }
}

pub(super) fn typed<B: Backend>(vector: FloatTensor<B>) -> Tensor<B, 1> {
    Tensor::from_primitive(TensorPrimitive::Float(vector))
}

fn primitive<B: Backend>(tensor: Tensor<B, 1>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;
    use burn_ndarray::NdArray;

    use super::*;
    use crate::peers::Rank;
    use crate::peers::shards::Bucketing;

    const LENGTH: usize = 10_000;

    /// Integers, whose squares are summed without rounding.
    fn element(index: usize) -> u32 {
        (index % 7) as u32
    }

    fn squares(elements: std::ops::Range<usize>) -> f64 {
        let squares = elements.map(|index| element(index).pow(2));
        f64::from(squares.sum::<u32>())
    }

    fn figures_match_integers<B: Backend>() {
        let device = Default::default();
        let values: Vec<f32> = (0..LENGTH).map(|index| element(index) as f32).collect();
        let vector = Tensor::<B, 1>::from_floats(values.as_slice(), &device);
        let loss = |x: f32| Tensor::<B, 1>::from_floats([x], &device);
        let parameter = ("weight".to_owned(), vec![100, 100], true);
        let rank = Rank::new(0, 2).unwrap();
        let shards = Shards::new(rank, Bucketing::default(), [parameter]);
        let pieces = shards.parameters()[0].pieces.iter();
        let all = pieces.map(|piece| {
            let elements = piece.elements.clone();
            let own = vector.clone().narrow(0, elements.start, elements.len());
            let gradients = ShardGradients {
                are_present: vec![true],
                pieces: vec![primitive(own)],
            };
            own_figures(loss(0.25), &gradients)
        });
        let all: Vec<_> = all.collect();
        // The boundary nearest to the middle.
        let (first, rest) = (squares(0..4096), [4096..8192, 8192..LENGTH].map(squares));
        assert_eq!(all, [vec![0.25, first], vec![0.25, rest[0], rest[1]]]);
        let sums = sum_figures(&shards, &[true], &all).unwrap();
        let expected = squares(0..LENGTH).sqrt() as f32;
        assert_eq!((sums.loss, sums.norm), (0.5, Some(expected)));
        assert_eq!(sums.squares, [squares(0..LENGTH) as f32]);
        assert_eq!(sum_figures(&shards, &[false], &all).unwrap().norm, None);
        let short = [all[0].clone(), vec![0.25]];
        assert!(sum_figures(&shards, &[true], &short).is_err());
    }

    #[test]
    fn losses_and_norms_of_shards_are_exact_on_integers() {
        figures_match_integers::<Flex>();
        figures_match_integers::<NdArray>();
    }
}

//! The sharded optimizer (ZeRO-1): each rank updates its shard of the parameters, and holds only the state of the shard.
//!
//! A checkpoint does not depend on the number of ranks: each writes its pieces into the file of a single process, and a
//! restored optimizer takes the shard of its rank.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use burn::module::{AutodiffModule, ParamId};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Shape, Tensor, TensorData, TensorMetadata};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::Parameter;
use emberlm_model::weights::{HostTensor, ParamVisitor, visit_params};

use super::snapshot::{Snapshot, StateTensor};
use super::state::StateKind;
use super::updates::Updates;
use super::{Guard, Optimizer, StepFactor, typed};
use crate::peers::exchange::ShardGradients;
use crate::peers::shards::{Bucketing, DividedParameter, Shards, present};
use crate::peers::{Peers, PeersError, Piece, Rank};

impl<B: Backend> Optimizer<B> {
    /// Divides the parameters among ranks. Has no effect for a single process.
    pub(crate) fn sharded(self, rank: Rank) -> Self {
        self.sharded_in_buckets(rank, Bucketing::default())
    }

    /// [`Optimizer::sharded`] with a rule for the buckets of the exchange.
    pub(crate) fn sharded_in_buckets(mut self, rank: Rank, bucketing: Bucketing) -> Self {
        if rank.world_size() > 1 {
            let trained = self.parameters.iter().filter(|it| it.trainable);
            let divided = trained.map(|parameter| {
                let may_cut = self.settings.rule(&parameter.role).is_elementwise();
                (parameter.path.clone(), parameter.shape.clone(), may_cut)
            });
            self.shards = Some(Arc::new(Shards::new(rank, bucketing, divided)));
        }
        self
    }

    /// The division of the parameters among ranks; `None` for a single process.
    pub(crate) fn shards(&self) -> Option<&Arc<Shards>> {
        self.shards.as_ref()
    }

    /// The memory and the exchanges of the rank with the longest shard; `None` for a single process.
    pub(crate) fn rank_cost(&self) -> Option<RankCost> {
        let shards = self.shards.as_ref()?;
        let world_size = shards.rank().world_size();
        let mut state = vec![0; world_size];
        for parameter in shards.parameters() {
            let rule = self
                .settings
                .rule(&self.role(&parameter.path, parameter.shape.len()));
            for kind in rule.state_kinds().of(&parameter.shape) {
                for piece in state_pieces(kind, parameter) {
                    state[piece.owner] += 4 * piece.elements.len() as u64;
                }
            }
        }
        Some(RankCost {
            world_size,
            weights: 4 * self.parameters.iter().map(elements_of).sum::<u64>(),
            all_state: state.iter().sum(),
            state: state.into_iter().max().unwrap_or_default(),
            exchanged: 2 * 4 * (world_size as u64 - 1) * shards.longest_slices() as u64,
        })
    }

    /// Updates this rank's shard, as [`Optimizer::guarded_update`] updates a module. Returns the updated pieces `[n]`, in
    /// the order of the gradients.
    pub(crate) fn update_shard<A, M>(
        &mut self,
        shards: &Shards,
        module: &M,
        gradients: ShardGradients<B>,
        factor: Option<Tensor<B, 1>>,
        rate: f64,
        guard: Option<&Guard<B>>,
    ) -> Vec<FloatTensor<B>>
    where
        A: TrainingBackend + AutodiffBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        self.updates += 1;
        let own = own_pieces(shards, &gradients.are_present);
        let paths: Vec<&str> = own.iter().map(|(it, _)| it.path.as_str()).collect();
        let pieces = own.iter().zip(gradients.pieces);
        let mut update = UpdatePieces {
            pieces: pieces
                .map(|((parameter, elements), grad)| {
                    (parameter.path.as_str(), (elements.clone(), grad))
                })
                .collect(),
            updates: Updates::new(self, StepFactor::new(factor, guard), rate),
        };
        visit_params::<A, M>(module, &mut update);
        let updated = update.updates.finish().into_iter();
        let flat = |of: FloatTensor<B>| {
            let elements = of.shape().num_elements();
            B::float_reshape(of, Shape::new([elements]))
        };
        let mut updated: HashMap<String, _> = updated.map(|(path, of)| (path, flat(of))).collect();
        let in_order = paths.into_iter().filter_map(|path| updated.remove(path));
        in_order.collect()
    }

    /// The state of all ranks, of which this one holds its pieces. All ranks must call this.
    ///
    /// # Errors
    /// A peer cannot be reached.
    pub(super) fn shard_snapshot(
        &self,
        shards: &Shards,
        peers: &dyn Peers<B>,
    ) -> Result<Snapshot<B>, PeersError> {
        // Only updated parameters have a state.
        let parameters = shards.parameters();
        let held = parameters
            .iter()
            .map(|parameter| u64::from(self.moments.contains_key(&parameter.path)));
        let held = peers.sum_counts(&held.collect::<Vec<_>>())?;
        let are_present: Vec<bool> = held.iter().map(|&ranks| ranks > 0).collect();
        let rank = shards.rank();
        let mut tensors = Vec::new();
        for (parameter, _) in present(parameters, &are_present) {
            let DividedParameter { path, shape, .. } = parameter;
            let moments = self.moments.get(path);
            let rule = self.settings.rule(&self.role(path, shape.len()));
            for kind in rule.state_kinds().of(shape) {
                let held = moments.and_then(|moments| moments.get(kind));
                if held.is_none() && parameter.piece_of(rank.index()).is_some() {
                    let reason = format!("{path} has no state here, but on another rank");
                    let what = "optimizer states";
                    return Err(PeersError { rank, what, reason });
                }
                tensors.push(StateTensor {
                    path,
                    kind,
                    shape: kind.shape(shape),
                    pieces: state_pieces(kind, parameter),
                    held: held.cloned(),
                });
            }
        }
        Ok(Snapshot::new(self.updates, rank, tensors))
    }

    /// The part of a restored tensor that this process holds; `None` if there is none.
    pub(super) fn own_state(
        &self,
        path: &str,
        tensor: HostTensor,
        device: &Device<B>,
    ) -> Option<FloatTensor<B>> {
        let HostTensor { shape, values } = tensor;
        let data = match &self.shards {
            None => TensorData::new(values, shape),
            Some(shards) => {
                let parameter = shards.parameters().get(shards.index_of(path)?)?;
                let elements = parameter.piece_of(shards.rank().index())?;
                match elements.len() == parameter.len() {
                    true => TensorData::new(values, shape),
                    false => {
                        let own = values.get(elements)?.to_vec();
                        let length = own.len();
                        TensorData::new(own, [length])
                    }
                }
            }
        };
        Some(B::float_from_data(data, device))
    }
}

/// The memory of a rank and its exchanges, in bytes, from the shapes of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankCost {
    /// The number of ranks.
    pub(crate) world_size: usize,
    /// All parameters, which every rank holds.
    pub(crate) weights: u64,
    /// The optimizer's state of the longest shard.
    pub(crate) state: u64,
    /// The optimizer's state of all shards.
    pub(crate) all_state: u64,
    /// The bytes that each rank sends per step, and receives: to every other rank a slice of the gradients and one of the
    /// parameters of each bucket, as long as the longest one.
    pub(crate) exchanged: u64,
}

/// The pieces of a tensor of a parameter's state. A tensor of another shape is of a parameter that is not cut.
fn state_pieces(kind: StateKind, parameter: &DividedParameter) -> Vec<Piece> {
    let length = kind.elements(&parameter.shape);
    let pieces = parameter.pieces.iter().map(|piece| Piece {
        owner: piece.owner,
        elements: match piece.elements.len() == parameter.len() {
            true => 0..length,
            false => piece.elements.clone(),
        },
    });
    pieces.collect()
}

fn elements_of(parameter: &Parameter) -> u64 {
    parameter.shape.iter().map(|&size| size as u64).product()
}

/// This rank's pieces of the parameters that are present.
fn own_pieces<'a>(
    shards: &'a Shards,
    are_present: &'a [bool],
) -> Vec<(&'a DividedParameter, Range<usize>)> {
    let own = shards.rank().index();
    present(shards.parameters(), are_present)
        .filter_map(|(parameter, _)| Some((parameter, parameter.piece_of(own)?)))
        .collect()
}

struct UpdatePieces<'a, B: Backend> {
    /// The elements and the gradient of each piece, by the parameter's path.
    pieces: HashMap<&'a str, (Range<usize>, FloatTensor<B>)>,
    updates: Updates<'a, B, String>,
}

impl<B, A> ParamVisitor<A> for UpdatePieces<'_, B>
where
    B: Backend,
    A: TrainingBackend + AutodiffBackend<InnerBackend = B>,
{
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<A, D>) {
        let Some((elements, grad)) = self.pieces.remove(path) else {
            return;
        };
        let value = value.inner();
        let grad: Tensor<B, 1> = typed(grad);
        let role = self.updates.optimizer.role(path, D);
        let key = path.to_owned();
        let shape = value.shape();
        match elements.len() == shape.num_elements() {
            // Muon needs the matrix.
            true => self
                .updates
                .add(key, path, &role, value, grad.reshape(shape)),
            false => {
                let vector: Tensor<B, 1> = value.reshape([-1]);
                let piece = vector.narrow(0, elements.start, elements.len());
                // A copy in one pass: updating a view would copy the whole parameter.
                self.updates
                    .add(key, path, &role, piece.mul_scalar(1.0), grad);
            }
        }
    }
}

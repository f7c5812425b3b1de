//! The sharded optimizer (ZeRO-1): each rank updates its shard of the parameters, and holds only the state of the shard.
//!
//! A snapshot is that of a single process. Ranks send their state to rank 0, in parts of bounded size, and a restored
//! optimizer takes the shard of its rank. A checkpoint therefore does not depend on the number of ranks.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use burn::module::{AutodiffModule, ParamId};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Tensor, TensorData};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::Parameter;
use emberlm_model::weights::{DeviceTensor, HostTensor, ParamVisitor, visit_params};

use super::state::{StateKind, StateTensor};
use super::{Guard, Optimizer, Snapshot, UpdateStep, primitive, typed};
use crate::peers::exchange::ShardGradients;
use crate::peers::shards::{Bucketing, DividedParameter, Shards, present};
use crate::peers::{Peers, PeersError, Rank};

/// The most bytes of optimizer state that all ranks together send at a time.
const GATHERED: usize = 16 << 20;

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
        let mut elements = vec![0; world_size];
        let mut state = vec![0; world_size];
        for parameter in shards.parameters() {
            let rule = self
                .settings
                .rule(&self.role(&parameter.path, parameter.shape.len()));
            for piece in &parameter.pieces {
                let length = piece.elements.len() as u64;
                elements[piece.owner] += length;
                state[piece.owner] += 4 * length * rule.state_kinds().len() as u64;
            }
        }
        let longest = elements.into_iter().max().unwrap_or_default();
        let slices = shards.longest_slices() as u64 + longest;
        Some(RankCost {
            world_size,
            weights: 4 * self.parameters.iter().map(elements_of).sum::<u64>(),
            all_state: state.iter().sum(),
            state: state.into_iter().max().unwrap_or_default(),
            exchanged: 4 * (world_size as u64 - 1) * slices,
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
            optimizer: self,
            pieces: pieces
                .map(|((parameter, elements), grad)| {
                    (parameter.path.as_str(), (elements.clone(), grad))
                })
                .collect(),
            factor,
            rate,
            guard,
            updated: HashMap::new(),
        };
        visit_params::<A, M>(module, &mut update);
        let mut updated = update.updated;
        let in_order = paths.into_iter().filter_map(|path| updated.remove(path));
        in_order.collect()
    }

    /// The state of all ranks, on rank 0; `None` on the others. All ranks must call this.
    ///
    /// # Errors
    /// A peer cannot be reached.
    pub(crate) fn gathered_snapshot(
        &self,
        peers: &dyn Peers<B>,
    ) -> Result<Option<Snapshot<B>>, PeersError> {
        let Some(shards) = &self.shards else {
            return Ok(Some(self.snapshot()));
        };
        // Only updated parameters have a state.
        let parameters = shards.parameters();
        let held = parameters
            .iter()
            .map(|parameter| u64::from(self.moments.contains_key(&parameter.path)));
        let held = peers.sum_counts(&held.collect::<Vec<_>>())?;
        let are_present: Vec<bool> = held.iter().map(|&ranks| ranks > 0).collect();
        let mut tensors = Vec::new();
        for (parameter, _) in present(parameters, &are_present) {
            let rule = self
                .settings
                .rule(&self.role(&parameter.path, parameter.shape.len()));
            for &kind in rule.state_kinds() {
                tensors.push((parameter, kind));
            }
        }
        let own = tensors.iter().filter_map(|(parameter, kind)| {
            let state = kind.of(self.moments.get(&parameter.path)?)?;
            Some(DeviceTensor::<B>::new(state.clone()))
        });
        let mut own = StateReader {
            left: own.collect::<Vec<_>>().into_iter(),
            bytes: Vec::new(),
        };
        let rank = shards.rank();
        let mut collected = Collected::new(rank, &tensors);
        let part = (GATHERED / 4 / rank.world_size()).max(1) * 4;
        for _ in 0..collected.longest().div_ceil(part) {
            let all = peers.gather_bytes(&own.next(part))?;
            if rank.is_zero() {
                collected.add(&all);
            }
        }
        Ok(rank.is_zero().then(|| {
            let values = collected.values.into_iter();
            let tensors = tensors.iter().zip(values);
            let tensors = tensors.map(|(&(parameter, kind), values)| StateTensor {
                path: parameter.path.clone(),
                kind,
                tensor: HostTensor {
                    shape: parameter.shape.clone(),
                    values,
                },
            });
            Snapshot::of_host(self.updates, tensors.collect())
        }))
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
            Some(shards) => match shards.own_piece(path)? {
                elements if elements.len() == values.len() => TensorData::new(values, shape),
                elements => {
                    let own = values.get(elements)?.to_vec();
                    let length = own.len();
                    TensorData::new(own, [length])
                }
            },
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
    /// The bytes that each rank sends per step, and receives: to every other rank a slice of the gradients of each bucket,
    /// as long as the longest one, and of the parameters, as long as the longest shard.
    pub(crate) exchanged: u64,
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
    optimizer: &'a mut Optimizer<B>,
    /// The elements and the gradient of each piece, by the parameter's path.
    pieces: HashMap<&'a str, (Range<usize>, FloatTensor<B>)>,
    factor: Option<Tensor<B, 1>>,
    rate: f64,
    guard: Option<&'a Guard<B>>,
    updated: HashMap<String, FloatTensor<B>>,
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
        let role = self.optimizer.role(path, D);
        let step = UpdateStep {
            factor: self.factor.clone(),
            rate: self.rate,
            guard: self.guard,
        };
        let shape = value.shape();
        let updated: Tensor<B, 1> = match elements.len() == shape.num_elements() {
            // Muon needs the matrix.
            true => {
                let grad = grad.reshape(shape);
                let updated = self.optimizer.updated(path, &role, value, grad, step);
                updated.reshape([-1])
            }
            false => {
                let vector: Tensor<B, 1> = value.reshape([-1]);
                let piece = vector.narrow(0, elements.start, elements.len());
                // A copy: updating a view would copy the whole parameter.
                let place = Tensor::empty([elements.len()], &piece.device());
                let piece = place.slice_assign(.., piece);
                self.optimizer.updated(path, &role, piece, grad, step)
            }
        };
        self.updated.insert(path.to_owned(), primitive(updated));
    }
}

/// Reads the bytes of tensors, one after another. Each is copied to the host when it is reached.
struct StateReader<B: Backend> {
    left: std::vec::IntoIter<DeviceTensor<B>>,
    bytes: Vec<u8>,
}

impl<B: Backend> StateReader<B> {
    /// The next `count` bytes, or all that are left.
    fn next(&mut self, count: usize) -> Vec<u8> {
        while self.bytes.len() < count
            && let Some(tensor) = self.left.next()
        {
            let values = tensor.on_host().values;
            self.bytes
                .extend(values.iter().flat_map(|x| x.to_le_bytes()));
        }
        let rest = self.bytes.split_off(count.min(self.bytes.len()));
        std::mem::replace(&mut self.bytes, rest)
    }
}

/// The state of all ranks as it arrives on rank 0.
struct Collected {
    /// The tensors. Empty on other ranks.
    values: Vec<Vec<f32>>,
    /// For each rank, the places of its next bytes: tensor and elements.
    places: Vec<VecDeque<(usize, Range<usize>)>>,
}

impl Collected {
    fn new(rank: Rank, tensors: &[(&DividedParameter, StateKind)]) -> Self {
        let mut places = vec![VecDeque::new(); rank.world_size()];
        let mut values = Vec::new();
        for (number, (parameter, _)) in tensors.iter().enumerate() {
            if rank.is_zero() {
                values.push(vec![0.0; parameter.len()]);
            }
            for piece in &parameter.pieces {
                places[piece.owner].push_back((number, piece.elements.clone()));
            }
        }
        Self { values, places }
    }

    /// The bytes of the rank with the most.
    fn longest(&self) -> usize {
        let lengths = self.places.iter().map(|of_rank| {
            let elements = of_rank.iter().map(|(_, elements)| elements.len());
            4 * elements.sum::<usize>()
        });
        lengths.max().unwrap_or_default()
    }

    /// Adds the next bytes of each rank.
    fn add(&mut self, all: &[Vec<u8>]) {
        for (places, bytes) in self.places.iter_mut().zip(all) {
            let (numbers, _) = bytes.as_chunks::<4>();
            let mut numbers = numbers;
            while let (false, Some((tensor, elements))) = (numbers.is_empty(), places.front_mut()) {
                let count = numbers.len().min(elements.len());
                let (own, rest) = numbers.split_at(count);
                let to = &mut self.values[*tensor][elements.start..elements.start + count];
                for (to, &number) in to.iter_mut().zip(own) {
                    *to = f32::from_le_bytes(number);
                }
                numbers = rest;
                elements.start += count;
                if elements.start == elements.end {
                    places.pop_front();
                }
            }
        }
    }
}

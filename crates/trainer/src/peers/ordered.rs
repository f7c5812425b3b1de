//! Sums over all ranks in rank order, from two exchanges of equal slices.
//!
//! ```text
//! bucket of rank r      [ slice 0 | slice 1 | … | slice N-1 ]
//! all-to-all            rank i receives slice i of every rank
//! local sum             ((slice of rank 0 + slice of rank 1) + slice of rank 2) + …
//! all-gather            every rank receives all sums
//! ```
//!
//! The first two lines are a reduce-scatter. MPI's own reductions may add in any order, and in another one
//! each time. Here the order is that of one process that accumulates the same micro-batches. Each rank sends
//! and receives `2 · (N-1)/N` of the gradients' bytes per step, as with a ring.
//!
//! Gradients are exchanged in buckets of bounded length, so the exchange's memory does not grow with the model.

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{TensorData, TensorMetadata, read_sync};

use super::{Peers, PeersError, Rank};

/// The length of a bucket in numbers of f32: 16 MiB.
const BUCKET: usize = 1 << 22;

/// Exchanges of host memory between all ranks. All ranks must call the functions in the same order, with the
/// same lengths.
pub trait Transport: Send + Sync {
    /// The rank of this process.
    fn rank(&self) -> Rank;

    /// Sends the `i`-th of `world_size` equal slices of `sent` to rank `i`, and receives the slices for this rank
    /// in rank order. Both lengths are the same multiple of the world size.
    ///
    /// # Errors
    /// The reason that the exchange failed.
    fn all_to_all(&self, sent: &[f32], received: &mut [f32]) -> Result<(), String>;

    /// Receives the slices of all ranks, in rank order. `received` has `world_size` times the length of `own`.
    ///
    /// # Errors
    /// The reason that the exchange failed.
    fn all_gather(&self, own: &[f32], received: &mut [f32]) -> Result<(), String>;

    /// The bytes of all ranks, in rank order. Lengths may differ.
    ///
    /// # Errors
    /// The reason that the exchange failed.
    fn all_gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String>;
}

/// Peers that sum in rank order over a [`Transport`].
#[derive(Clone, Debug)]
pub struct OrderedPeers<T> {
    transport: T,
    bucket: usize,
}

impl<T: Transport> OrderedPeers<T> {
    /// Peers over `transport`.
    pub fn new(transport: T) -> Self {
        Self {
            transport,
            bucket: BUCKET,
        }
    }

    /// Replaces the bucket length, for tests.
    #[cfg(test)]
    pub(crate) fn with_bucket(mut self, bucket: usize) -> Self {
        self.bucket = bucket;
        self
    }

    fn error(&self, what: &'static str) -> impl Fn(String) -> PeersError + use<T> {
        let rank = self.transport.rank();
        move |reason| PeersError { rank, what, reason }
    }

    /// Replaces `values` with their sums over all ranks. At most one bucket.
    fn sum_bucket(&self, values: &mut [f32], buffers: &mut Buffers) -> Result<(), String> {
        let world_size = self.transport.rank().world_size();
        let slice = values.len().div_ceil(world_size);
        buffers.resize(slice, world_size);
        let Buffers {
            whole,
            received,
            sums,
        } = buffers;
        whole[..values.len()].copy_from_slice(values);
        whole[values.len()..].fill(0.0);
        self.transport.all_to_all(whole, received)?;
        sums.copy_from_slice(&received[..slice]);
        for of_rank in received[slice..].chunks_exact(slice) {
            for (sum, value) in sums.iter_mut().zip(of_rank) {
                *sum += value;
            }
        }
        self.transport.all_gather(sums, whole)?;
        values.copy_from_slice(&whole[..values.len()]);
        Ok(())
    }

    /// Sums tensors that fill at most one bucket, or one tensor that fills several.
    fn sum_group<B: BurnBackend>(
        &self,
        group: &mut Vec<FloatTensor<B>>,
        buffers: &mut Buffers,
        sums: &mut Vec<FloatTensor<B>>,
    ) -> Result<(), String> {
        let mut values = Vec::new();
        let mut places = Vec::with_capacity(group.len());
        for tensor in group.drain(..) {
            let device = B::float_device(&tensor);
            let data = read_sync(B::float_into_data(tensor)).map_err(|error| error.to_string())?;
            let shape = data.shape.clone();
            let host = data.convert::<f32>().into_vec::<f32>();
            let host = host.map_err(|error| format!("{error:?}"))?;
            places.push((shape, device, host.len()));
            match values.is_empty() {
                true => values = host,
                false => values.extend_from_slice(&host),
            }
        }
        for bucket in values.chunks_mut(self.bucket) {
            self.sum_bucket(bucket, buffers)?;
        }
        if let [(shape, device, _)] = &places[..] {
            let data = TensorData::new(values, shape.clone());
            sums.push(B::float_from_data(data, device));
            return Ok(());
        }
        let mut rest = &values[..];
        for (shape, device, length) in places {
            let own;
            (own, rest) = rest.split_at(length);
            let data = TensorData::new(own.to_vec(), shape);
            sums.push(B::float_from_data(data, &device));
        }
        Ok(())
    }
}

/// The buffers of an exchange, kept from one bucket to the next.
#[derive(Default)]
struct Buffers {
    /// The slices of this rank's values, then all sums.
    whole: Vec<f32>,
    /// This rank's slice of every rank's values.
    received: Vec<f32>,
    /// This rank's slice of the sums.
    sums: Vec<f32>,
}

impl Buffers {
    fn resize(&mut self, slice: usize, world_size: usize) {
        self.whole.resize(slice * world_size, 0.0);
        self.received.resize(slice * world_size, 0.0);
        self.sums.resize(slice, 0.0);
    }
}

impl<B: BurnBackend, T: Transport> Peers<B> for OrderedPeers<T> {
    fn rank(&self) -> Rank {
        self.transport.rank()
    }

    fn sum_counts(&self, counts: &[u64]) -> Result<Vec<u64>, PeersError> {
        let error = self.error("counts");
        let bytes: Vec<u8> = counts
            .iter()
            .flat_map(|count| count.to_le_bytes())
            .collect();
        let all = self.transport.all_gather_bytes(&bytes).map_err(&error)?;
        let mut sums = vec![0_u64; counts.len()];
        for bytes in &all {
            let (numbers, rest) = bytes.as_chunks::<8>();
            if numbers.len() != sums.len() || !rest.is_empty() {
                let [theirs, own] = [numbers.len(), sums.len()];
                return Err(error(format!("a rank has {theirs} counts, this one {own}")));
            }
            for (sum, count) in sums.iter_mut().zip(numbers) {
                *sum = sum.saturating_add(u64::from_le_bytes(*count));
            }
        }
        Ok(sums)
    }

    fn gather_texts(&self, own: &str) -> Result<Vec<String>, PeersError> {
        let error = self.error("descriptions");
        let all = self.transport.all_gather_bytes(own.as_bytes());
        let texts = all.map_err(&error)?.into_iter();
        texts
            .map(|bytes| String::from_utf8(bytes).map_err(|reason| error(reason.to_string())))
            .collect()
    }

    fn gather_numbers(&self, own: &[f64]) -> Result<Vec<Vec<f64>>, PeersError> {
        let error = self.error("numbers");
        let bytes: Vec<u8> = own.iter().flat_map(|x| x.to_le_bytes()).collect();
        let all = self.transport.all_gather_bytes(&bytes).map_err(&error)?;
        let numbers = |bytes: Vec<u8>| match bytes.as_chunks::<8>() {
            (numbers, []) => Ok(numbers.iter().map(|&x| f64::from_le_bytes(x)).collect()),
            (_, rest) => Err(error(format!("{} bytes are left over", rest.len()))),
        };
        all.into_iter().map(numbers).collect()
    }

    fn sum_tensors(&self, tensors: Vec<FloatTensor<B>>) -> Result<Vec<FloatTensor<B>>, PeersError> {
        let error = self.error("gradients");
        let mut sums = Vec::with_capacity(tensors.len());
        let (mut group, mut filled) = (Vec::new(), 0);
        let mut buffers = Buffers::default();
        for tensor in tensors {
            let length = tensor.shape().num_elements();
            if filled > 0 && filled + length > self.bucket {
                self.sum_group::<B>(&mut group, &mut buffers, &mut sums)
                    .map_err(&error)?;
                filled = 0;
            }
            filled += length;
            group.push(tensor);
        }
        self.sum_group::<B>(&mut group, &mut buffers, &mut sums)
            .map_err(&error)?;
        Ok(sums)
    }
}

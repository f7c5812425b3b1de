//! Exchanges between all ranks, with sums in rank order.
//!
//! ```text
//! for rank              0        1            N-1
//! vectors of rank r     [ … ]    [ … ]   …    [ … ]      a list for every rank, read slice by slice
//! all-to-all            rank i receives a slice of its vectors from every rank
//! local sum             ((slice of rank 0 + slice of rank 1) + slice of rank 2) + …
//! ```
//!
//! This is a reduce-scatter. MPI's own reductions may add in any order, and in another one each time. Here the order is
//! that of one process that accumulates the same micro-batches. The all-gather sends slices of the same lengths back. In
//! a step, each rank sends and receives `2 · (N-1)` times the elements of the longest shard, `2 · (N-1)/N` of the
//! parameters if the shards are of equal length, as with a ring.
//!
//! Slices are bounded, so the exchange's memory does not grow with the model.

use std::collections::VecDeque;

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, TensorData, TensorMetadata, read_sync};

use super::{Peers, PeersError, Rank};

/// The length of the slices of all ranks together, in numbers of f32: 16 MiB.
pub(crate) const BUCKET: usize = 1 << 22;

/// Exchanges of host memory between all ranks. All ranks must call the functions in the same order, with the
/// same lengths. [`Transport::all_gather`] has an order of its own: another thread may call it while others run.
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

    pub(super) fn transport(&self) -> &T {
        &self.transport
    }

    /// Replaces the bucket length, for tests.
    #[cfg(test)]
    pub(crate) fn with_bucket(mut self, bucket: usize) -> Self {
        self.bucket = bucket;
        self
    }

    pub(super) fn error(&self, what: &'static str) -> impl Fn(String) -> PeersError + use<T> {
        let rank = self.transport.rank();
        move |reason| PeersError { rank, what, reason }
    }

    /// The slices of an exchange of `longest` elements per rank: a bucket has one of each rank.
    pub(super) fn slices(&self, longest: usize) -> impl Iterator<Item = usize> + use<T> {
        let slice = (self.bucket / self.transport.rank().world_size()).max(1);
        (0..longest)
            .step_by(slice)
            .map(move |at| slice.min(longest - at))
    }

    /// Implements [`Peers::reduce_scatter`].
    fn sums_for_this_rank<B: BurnBackend>(
        &self,
        vectors: Vec<Vec<FloatTensor<B>>>,
    ) -> Result<Vec<FloatTensor<B>>, String> {
        let rank = self.transport.rank();
        let world_size = rank.world_size();
        if vectors.len() != world_size {
            return Err(format!("vectors for {} ranks", vectors.len()));
        }
        let own = vectors[rank.index()]
            .iter()
            .map(|vector| (length::<B>(vector), B::float_device(vector)));
        let mut summed = VectorWriter::<B>::new(own.collect());
        let lengths = vectors
            .iter()
            .map(|of_rank| of_rank.iter().map(length::<B>).sum());
        let longest = lengths.max().unwrap_or_default();
        let mut readers: Vec<_> = vectors.into_iter().map(VectorReader::<B>::new).collect();
        let mut buffers = Buffers::default();
        for slice in self.slices(longest) {
            buffers.resize(slice, world_size);
            let Buffers {
                whole,
                received,
                own,
            } = &mut buffers;
            for (reader, sent) in readers.iter_mut().zip(whole.chunks_exact_mut(slice)) {
                reader.read(sent)?;
            }
            self.transport.all_to_all(whole, received)?;
            own.copy_from_slice(&received[..slice]);
            for of_rank in received[slice..].chunks_exact(slice) {
                for (sum, value) in own.iter_mut().zip(of_rank) {
                    *sum += value;
                }
            }
            summed.write(own);
        }
        Ok(summed.vectors)
    }

    /// Implements [`Peers::all_gather`].
    fn vectors_of_all_ranks<B: BurnBackend>(
        &self,
        own: Vec<FloatTensor<B>>,
        lengths: &[Vec<usize>],
        device: &Device<B>,
    ) -> Result<Vec<Vec<FloatTensor<B>>>, String> {
        let rank = self.transport.rank();
        let world_size = rank.world_size();
        let own_lengths: Vec<usize> = own.iter().map(length::<B>).collect();
        if lengths.len() != world_size || lengths[rank.index()] != own_lengths {
            return Err("its vectors do not have the expected lengths".to_owned());
        }
        let longest = lengths.iter().map(|of_rank| of_rank.iter().sum()).max();
        let on_device = |of_rank: &Vec<usize>| {
            let lengths = of_rank.iter().map(|&length| (length, device.clone()));
            VectorWriter::<B>::new(lengths.collect())
        };
        let mut writers: Vec<_> = lengths.iter().map(on_device).collect();
        let mut reader = VectorReader::<B>::new(own);
        let mut buffers = Buffers::default();
        for slice in self.slices(longest.unwrap_or_default()) {
            buffers.resize(slice, world_size);
            let Buffers { whole, own, .. } = &mut buffers;
            reader.read(own)?;
            self.transport.all_gather(own, whole)?;
            for (writer, of_rank) in writers.iter_mut().zip(whole.chunks_exact(slice)) {
                writer.write(of_rank);
            }
        }
        Ok(writers.into_iter().map(|writer| writer.vectors).collect())
    }
}

fn length<B: BurnBackend>(vector: &FloatTensor<B>) -> usize {
    vector.shape().num_elements()
}

/// Reads the elements of vectors, one after another. Each is copied to the host and freed when it is reached.
struct VectorReader<B: BurnBackend> {
    left: std::vec::IntoIter<FloatTensor<B>>,
    current: Vec<f32>,
    /// Elements of `current` that were read.
    read: usize,
}

impl<B: BurnBackend> VectorReader<B> {
    fn new(vectors: Vec<FloatTensor<B>>) -> Self {
        Self {
            left: vectors.into_iter(),
            current: Vec::new(),
            read: 0,
        }
    }

    /// Fills `to` with the next elements, and with zeros after the last one.
    fn read(&mut self, mut to: &mut [f32]) -> Result<(), String> {
        while !to.is_empty() {
            if self.read == self.current.len() {
                let Some(vector) = self.left.next() else {
                    self.current = Vec::new();
                    self.read = 0;
                    to.fill(0.0);
                    return Ok(());
                };
                self.current = on_host::<B>(vector)?;
                self.read = 0;
            }
            let from = &self.current[self.read..];
            let count = from.len().min(to.len());
            let (filled, rest) = to.split_at_mut(count);
            filled.copy_from_slice(&from[..count]);
            self.read += count;
            to = rest;
        }
        Ok(())
    }
}

fn on_host<B: BurnBackend>(vector: FloatTensor<B>) -> Result<Vec<f32>, String> {
    let data = read_sync(B::float_into_data(vector)).map_err(|error| error.to_string())?;
    let host = data.convert::<f32>().into_vec::<f32>();
    host.map_err(|error| format!("{error:?}"))
}

/// Makes vectors of their elements, one after another.
struct VectorWriter<B: BurnBackend> {
    /// Lengths and devices of the vectors that are not complete.
    left: VecDeque<(usize, Device<B>)>,
    current: Vec<f32>,
    vectors: Vec<FloatTensor<B>>,
}

impl<B: BurnBackend> VectorWriter<B> {
    fn new(left: VecDeque<(usize, Device<B>)>) -> Self {
        Self {
            vectors: Vec::with_capacity(left.len()),
            left,
            current: Vec::new(),
        }
    }

    /// Appends elements. Those after the last vector are dropped.
    fn write(&mut self, mut values: &[f32]) {
        while let Some(&(length, _)) = self.left.front() {
            if self.current.is_empty() {
                self.current.reserve_exact(length);
            }
            let count = values.len().min(length - self.current.len());
            let (own, rest) = values.split_at(count);
            self.current.extend_from_slice(own);
            values = rest;
            if self.current.len() < length {
                return;
            }
            let data = TensorData::new(std::mem::take(&mut self.current), [length]);
            if let Some((_, device)) = self.left.pop_front() {
                self.vectors.push(B::float_from_data(data, &device));
            }
        }
    }
}

/// The buffers of an exchange, kept from one bucket to the next.
#[derive(Default)]
struct Buffers {
    /// The slices for all ranks, or of all ranks.
    whole: Vec<f32>,
    /// The slices for this rank, from all ranks.
    received: Vec<f32>,
    /// The slice of this rank.
    own: Vec<f32>,
}

impl Buffers {
    fn resize(&mut self, slice: usize, world_size: usize) {
        self.whole.resize(slice * world_size, 0.0);
        self.received.resize(slice * world_size, 0.0);
        self.own.resize(slice, 0.0);
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

    fn gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, PeersError> {
        self.transport
            .all_gather_bytes(own)
            .map_err(self.error("state"))
    }

    fn reduce_scatter(
        &self,
        vectors: Vec<Vec<FloatTensor<B>>>,
    ) -> Result<Vec<FloatTensor<B>>, PeersError> {
        self.sums_for_this_rank::<B>(vectors)
            .map_err(self.error("gradients"))
    }

    fn all_gather(
        &self,
        own: Vec<FloatTensor<B>>,
        lengths: &[Vec<usize>],
        device: &Device<B>,
    ) -> Result<Vec<Vec<FloatTensor<B>>>, PeersError> {
        self.vectors_of_all_ranks::<B>(own, lengths, device)
            .map_err(self.error("parameters"))
    }
}

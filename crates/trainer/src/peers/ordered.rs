//! Exchanges between all ranks, with sums in rank order.
//!
//! ```text
//! for rank              0        1            N-1
//! pieces of vectors     [ … ]    [ … ]   …    [ … ]      a list for every rank, read slice by slice
//! all-to-all            rank i receives a slice of its list from every other rank
//! local sum             ((slice of rank 0 + slice of rank 1) + slice of rank 2) + …
//! ```
//!
//! This is a reduce-scatter. MPI's own reductions may add in any order, and in another one each time. Here the order is
//! that of one process that accumulates the same micro-batches. The all-gather sends slices of the same lengths back. In
//! a step, each rank sends and receives `2 · (N-1)` times the elements of the longest shard, `2 · (N-1)/N` of the
//! parameters if the shards are of equal length, as with a ring.
//!
//! Slices are bounded, so the exchange's memory does not grow with the model. A rank's own elements are added where they
//! are, and are not copied into slices.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, TensorData};

use super::divided::{Cursor, Divided};
use super::host_vectors::{HostVectors, PlacedVector};
use super::{Peers, PeersError, Rank};

/// The length of the slices of all ranks together, in numbers of f32: 16 MiB.
pub(crate) const BUCKET: usize = 1 << 22;

/// Exchanges of host memory between all ranks. All ranks must call the functions in the same order, with the
/// same lengths. [`Transport::all_gather`] has a separate order: another thread may call it while others run.
pub trait Transport: Send + Sync {
    /// The rank of this process.
    fn rank(&self) -> Rank;

    /// Sends an equal slice of `sent` to every other rank, and receives their slices for this rank, both in rank order
    /// ([`Rank::place_of`]). Both lengths are the same multiple of the number of other ranks.
    ///
    /// # Errors
    /// The reason that the exchange failed.
    fn all_to_all(&self, sent: &[f32], received: &mut [f32]) -> Result<(), String>;

    /// Sends `own` to every other rank, and receives their slices in rank order. All have the same length.
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
#[derive(Debug)]
pub struct OrderedPeers<T> {
    transport: T,
    bucket: usize,
    of_gradients: Mutex<Buffers>,
    of_parameters: Mutex<Buffers>,
}

/// The slices that are sent and received, kept from one exchange to the next.
#[derive(Debug, Default)]
struct Buffers([Vec<f32>; 2]);

impl Buffers {
    fn of_lengths(&mut self, lengths: [usize; 2]) -> [&mut [f32]; 2] {
        let mut lengths = lengths.into_iter();
        self.0.each_mut().map(|buffer| {
            let length = lengths.next().unwrap_or_default();
            if buffer.len() < length {
                buffer.resize(length, 0.0);
            }
            &mut buffer[..length]
        })
    }
}

fn lock(buffers: &Mutex<Buffers>) -> MutexGuard<'_, Buffers> {
    buffers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Transport> OrderedPeers<T> {
    /// Peers over `transport`.
    pub fn new(transport: T) -> Self {
        Self {
            transport,
            bucket: BUCKET,
            of_gradients: Mutex::default(),
            of_parameters: Mutex::default(),
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
        vectors: Vec<Divided<FloatTensor<B>>>,
    ) -> Result<Vec<FloatTensor<B>>, String> {
        let rank = self.transport.rank();
        let mut own = Cursor::new(rank.index(), &vectors);
        let mut others = Cursor::of_others(rank, &vectors);
        let longest = others.iter().chain([&own]).map(Cursor::remaining).max();
        let mut sums = PieceWriter::<B>::new(&own, &vectors);
        let mut host = HostVectors::<B>::new(vectors);
        let mut buffers = lock(&self.of_gradients);
        for slice in self.slices(longest.unwrap_or_default()) {
            let count = slice * others.len();
            let [sent, received] = buffers.of_lengths([count, count]);
            for (cursor, sent) in others.iter_mut().zip(sent.chunks_exact_mut(slice)) {
                let segments = cursor.next(slice);
                let end = segments.last().map_or(0, |segment| segment.place.end);
                for segment in segments {
                    sent[segment.place.clone()].copy_from_slice(host.elements(&segment)?);
                    host.free(&segment);
                }
                sent[end..].fill(0.0);
            }
            self.transport.all_to_all(sent, received)?;
            for segment in own.next(slice) {
                let elements = host.elements(&segment)?;
                let of_rank = |index| match rank.place_of(index) {
                    None => elements,
                    Some(place) => &received[place * slice..][segment.place.clone()],
                };
                sums.write((0..rank.world_size()).map(of_rank));
                host.free(&segment);
            }
        }
        Ok(sums.pieces)
    }

    /// Implements [`Peers::all_gather`].
    fn whole_vectors<B: BurnBackend>(
        &self,
        vectors: Vec<Divided<Option<FloatTensor<B>>>>,
        device: &Device<B>,
    ) -> Result<Vec<FloatTensor<B>>, String> {
        let rank = self.transport.rank();
        let mut own = Cursor::new(rank.index(), &vectors);
        let mut others = Cursor::of_others(rank, &vectors);
        let longest = others.iter().chain([&own]).map(Cursor::remaining).max();
        let placed = vectors
            .into_iter()
            .map(|vector| PlacedVector::new::<B>(vector, rank.index()));
        let mut placed = placed.collect::<Result<Vec<_>, _>>()?;
        let mut buffers = lock(&self.of_parameters);
        for slice in self.slices(longest.unwrap_or_default()) {
            let [sent, received] = buffers.of_lengths([slice, slice * others.len()]);
            let mut end = 0;
            for segment in own.next(slice) {
                let elements = placed[segment.vector].elements(segment.elements)?;
                sent[segment.place.clone()].copy_from_slice(elements);
                end = segment.place.end;
            }
            sent[end..].fill(0.0);
            self.transport.all_gather(sent, received)?;
            for (cursor, received) in others.iter_mut().zip(received.chunks_exact(slice)) {
                for segment in cursor.next(slice) {
                    placed[segment.vector].place(&segment.elements, &received[segment.place]);
                }
            }
        }
        let whole = placed.into_iter().map(|it| it.into_tensor::<B>(device));
        Ok(whole.collect())
    }
}

/// Makes the pieces of this rank from the elements of all, one after another.
struct PieceWriter<B: BurnBackend> {
    /// Lengths and devices of the pieces that are not complete.
    left: VecDeque<(usize, Device<B>)>,
    current: Vec<f32>,
    pieces: Vec<FloatTensor<B>>,
}

impl<B: BurnBackend> PieceWriter<B> {
    fn new(own: &Cursor, vectors: &[Divided<FloatTensor<B>>]) -> Self {
        let left = own.pieces().map(|(vector, elements)| {
            let device = B::float_device(&vectors[vector].value);
            (elements.len(), device)
        });
        Self {
            left: left.collect(),
            current: Vec::new(),
            pieces: Vec::new(),
        }
    }

    /// Appends the sums of the next elements of the current piece, of all ranks in their order.
    fn write<'a>(&mut self, mut ranks: impl Iterator<Item = &'a [f32]>) {
        let Some(&(length, _)) = self.left.front() else {
            return;
        };
        if self.current.is_empty() {
            self.current.reserve_exact(length);
        }
        let begin = self.current.len();
        match (ranks.next(), ranks.next()) {
            (Some(first), Some(second)) => {
                let sums = first.iter().zip(second).map(|(a, b)| a + b);
                self.current.extend(sums);
            }
            (Some(only), None) => self.current.extend_from_slice(only),
            (None, _) => {}
        }
        for of_rank in ranks {
            for (sum, value) in self.current[begin..].iter_mut().zip(of_rank) {
                *sum += value;
            }
        }
        if self.current.len() == length
            && let Some((_, device)) = self.left.pop_front()
        {
            let data = TensorData::new(std::mem::take(&mut self.current), [length]);
            self.pieces.push(B::float_from_data(data, &device));
        }
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
        vectors: Vec<Divided<FloatTensor<B>>>,
    ) -> Result<Vec<FloatTensor<B>>, PeersError> {
        self.sums_for_this_rank::<B>(vectors)
            .map_err(self.error("gradients"))
    }

    fn all_gather(
        &self,
        vectors: Vec<Divided<Option<FloatTensor<B>>>>,
        device: &Device<B>,
    ) -> Result<Vec<FloatTensor<B>>, PeersError> {
        self.whole_vectors::<B>(vectors, device)
            .map_err(self.error("parameters"))
    }
}

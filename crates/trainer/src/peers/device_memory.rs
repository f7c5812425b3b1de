//! Exchanges of device memory between all ranks, with sums in rank order.
//!
//! [`OrderedPeers`] copies vectors to the host, exchanges them, and adds them there. [`DeviceMemoryPeers`] exchanges the same
//! slices in the same order, but as tensors: their addresses are passed to the transport, which must access the memory of
//! the device, such as a CUDA-aware MPI library. The sums are operations on the device.
//!
//! ```text
//! concatenate     a slice for every rank ─► one vector on the device
//! all-to-all      of addresses: rank i receives a slice from every rank
//! local sum       ((slice of rank 0 + slice of rank 1) + slice of rank 2) + …
//! ```
//!
//! The results have the bits of [`OrderedPeers`] where additions on the device are those of the CPU.

use std::collections::VecDeque;

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Tensor, TensorPrimitive};
use emberlm_kernels::{AddressedVector, Backend};

use super::ordered::{OrderedPeers, Transport};
use super::{Peers, PeersError, Rank};

/// Exchanges of addressed memory between all ranks. All ranks must call the functions in the same order, with the same
/// lengths.
pub trait AddressTransport<B: Backend>: Transport {
    /// As [`Transport::all_to_all`], of vectors with addresses.
    ///
    /// # Errors
    /// The reason that the exchange failed.
    fn all_to_all_addressed(
        &self,
        sent: &AddressedVector<B>,
        received: &mut AddressedVector<B>,
    ) -> Result<(), String>;

    /// As [`Transport::all_gather`], of vectors with addresses.
    ///
    /// # Errors
    /// The reason that the exchange failed.
    fn all_gather_addressed(
        &self,
        own: &AddressedVector<B>,
        received: &mut AddressedVector<B>,
    ) -> Result<(), String>;
}

/// Peers that exchange vectors in the memory of their devices, and sum in rank order. Counts and other small values are
/// exchanged as by [`OrderedPeers`].
#[derive(Clone, Debug)]
pub struct DeviceMemoryPeers<T>(OrderedPeers<T>);

impl<T: Transport> DeviceMemoryPeers<T> {
    /// Peers over `transport`.
    pub fn new(transport: T) -> Self {
        Self(OrderedPeers::new(transport))
    }

    /// Replaces the bucket length, for tests.
    #[cfg(test)]
    pub(crate) fn with_bucket(self, bucket: usize) -> Self {
        Self(self.0.with_bucket(bucket))
    }

    /// Implements [`Peers::reduce_scatter`].
    fn sums_for_this_rank<B: Backend>(
        &self,
        vectors: Vec<Vec<FloatTensor<B>>>,
    ) -> Result<Vec<FloatTensor<B>>, String>
    where
        T: AddressTransport<B>,
    {
        let rank = self.0.transport().rank();
        let world_size = rank.world_size();
        if vectors.len() != world_size {
            return Err(format!("vectors for {} ranks", vectors.len()));
        }
        let Some(device) = vectors.iter().flatten().map(B::float_device).next() else {
            return Ok(Vec::new());
        };
        let mut readers: Vec<_> = vectors.into_iter().map(VectorReader::<B>::new).collect();
        let mut summed = VectorWriter::<B>::new(readers[rank.index()].lengths());
        let longest = readers.iter().map(VectorReader::remaining).max();
        for slice in self.0.slices(longest.unwrap_or_default()) {
            let slices = readers
                .iter_mut()
                .flat_map(|of_rank| of_rank.read(slice, &device));
            let sent = addressed(Tensor::cat(slices.collect(), 0))?;
            let mut received = addressed(Tensor::zeros([slice * world_size], &device))?;
            let transport = self.0.transport();
            transport.all_to_all_addressed(&sent, &mut received)?;
            let received = received.into_tensor();
            let of_rank = |index: usize| received.clone().narrow(0, index * slice, slice);
            let sum = (1..world_size).fold(of_rank(0), |sum, index| sum + of_rank(index));
            summed.write(sum);
        }
        Ok(summed.vectors)
    }

    /// Implements [`Peers::all_gather`].
    fn vectors_of_all_ranks<B: Backend>(
        &self,
        own: Vec<FloatTensor<B>>,
        lengths: &[Vec<usize>],
        device: &Device<B>,
    ) -> Result<Vec<Vec<FloatTensor<B>>>, String>
    where
        T: AddressTransport<B>,
    {
        let rank = self.0.transport().rank();
        let world_size = rank.world_size();
        let mut reader = VectorReader::<B>::new(own);
        if lengths.len() != world_size || lengths[rank.index()] != reader.lengths() {
            return Err("its vectors do not have the expected lengths".to_owned());
        }
        let longest = lengths.iter().map(|of_rank| of_rank.iter().sum()).max();
        let mut writers: Vec<_> = lengths
            .iter()
            .map(|of_rank| VectorWriter::<B>::new(of_rank.clone()))
            .collect();
        for slice in self.0.slices(longest.unwrap_or_default()) {
            let own = addressed(Tensor::cat(reader.read(slice, device), 0))?;
            let mut received = addressed(Tensor::zeros([slice * world_size], device))?;
            let transport = self.0.transport();
            transport.all_gather_addressed(&own, &mut received)?;
            let received = received.into_tensor();
            for (index, writer) in writers.iter_mut().enumerate() {
                writer.write(received.clone().narrow(0, index * slice, slice));
            }
        }
        Ok(writers.into_iter().map(|writer| writer.vectors).collect())
    }
}

fn addressed<B: Backend>(vector: Tensor<B, 1>) -> Result<AddressedVector<B>, String> {
    let vector = AddressedVector::new(vector);
    vector.ok_or_else(|| "the memory of its device has no addresses".to_owned())
}

/// Reads the elements of vectors, one after another.
struct VectorReader<B: Backend> {
    /// The vectors with elements that were not read.
    left: VecDeque<Tensor<B, 1>>,
}

impl<B: Backend> VectorReader<B> {
    fn new(vectors: Vec<FloatTensor<B>>) -> Self {
        let typed = |vector| Tensor::from_primitive(TensorPrimitive::Float(vector));
        Self {
            left: vectors.into_iter().map(typed).collect(),
        }
    }

    fn lengths(&self) -> Vec<usize> {
        self.left.iter().map(|vector| vector.dims()[0]).collect()
    }

    fn remaining(&self) -> usize {
        self.left.iter().map(|vector| vector.dims()[0]).sum()
    }

    /// The next `count` elements, with zeros after the last one, as vectors to concatenate.
    fn read(&mut self, mut count: usize, device: &Device<B>) -> Vec<Tensor<B, 1>> {
        let mut found = Vec::new();
        while count > 0 {
            let Some(vector) = self.left.pop_front() else {
                found.push(Tensor::zeros([count], device));
                break;
            };
            let length = vector.dims()[0];
            if length > count {
                let rest = vector.clone().narrow(0, count, length - count);
                self.left.push_front(rest);
                found.push(vector.narrow(0, 0, count));
                break;
            }
            count -= length;
            found.push(vector);
        }
        found
    }
}

/// Makes vectors of their elements, one after another.
struct VectorWriter<B: Backend> {
    /// The lengths of the vectors that are not complete.
    left: VecDeque<usize>,
    /// The elements of the first of them so far.
    current: Vec<Tensor<B, 1>>,
    /// The number of these elements.
    written: usize,
    vectors: Vec<FloatTensor<B>>,
}

impl<B: Backend> VectorWriter<B> {
    fn new(lengths: Vec<usize>) -> Self {
        Self {
            vectors: Vec::with_capacity(lengths.len()),
            left: lengths.into(),
            current: Vec::new(),
            written: 0,
        }
    }

    /// Appends elements. Those after the last vector are dropped.
    fn write(&mut self, values: Tensor<B, 1>) {
        let (mut read, count) = (0, values.dims()[0]);
        while let Some(&length) = self.left.front().filter(|_| read < count) {
            let taken = (length - self.written).min(count - read);
            self.current.push(values.clone().narrow(0, read, taken));
            read += taken;
            self.written += taken;
            if self.written < length {
                return;
            }
            let vector = Tensor::cat(std::mem::take(&mut self.current), 0);
            self.vectors.push(vector.into_primitive().tensor());
            self.left.pop_front();
            self.written = 0;
        }
    }
}

impl<B: Backend, T: AddressTransport<B>> Peers<B> for DeviceMemoryPeers<T> {
    fn rank(&self) -> Rank {
        Peers::<B>::rank(&self.0)
    }

    fn sum_counts(&self, counts: &[u64]) -> Result<Vec<u64>, PeersError> {
        Peers::<B>::sum_counts(&self.0, counts)
    }

    fn gather_texts(&self, own: &str) -> Result<Vec<String>, PeersError> {
        Peers::<B>::gather_texts(&self.0, own)
    }

    fn gather_numbers(&self, own: &[f64]) -> Result<Vec<Vec<f64>>, PeersError> {
        Peers::<B>::gather_numbers(&self.0, own)
    }

    fn gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, PeersError> {
        Peers::<B>::gather_bytes(&self.0, own)
    }

    fn reduce_scatter(
        &self,
        vectors: Vec<Vec<FloatTensor<B>>>,
    ) -> Result<Vec<FloatTensor<B>>, PeersError> {
        self.sums_for_this_rank::<B>(vectors)
            .map_err(self.0.error("gradients"))
    }

    fn all_gather(
        &self,
        own: Vec<FloatTensor<B>>,
        lengths: &[Vec<usize>],
        device: &Device<B>,
    ) -> Result<Vec<Vec<FloatTensor<B>>>, PeersError> {
        self.vectors_of_all_ranks::<B>(own, lengths, device)
            .map_err(self.0.error("parameters"))
    }
}

//! Exchanges of device memory between all ranks, with sums in rank order.
//!
//! [`OrderedPeers`] copies vectors to the host, exchanges them, and adds them there. [`DeviceMemoryPeers`] exchanges the same
//! slices in the same order, but as tensors: their addresses are passed to the transport, which must access the memory of
//! the device, as NCCL or a CUDA-aware MPI library does. The sums are operations on the device.
//!
//! ```text
//! concatenate     a slice for every other rank ─► one vector on the device
//! all-to-all      of addresses: rank i receives a slice from every other rank
//! local sum       ((slice of rank 0 + slice of rank 1) + slice of rank 2) + …
//! ```
//!
//! The results have the bits of [`OrderedPeers`] where additions on the device are those of the CPU.

use std::collections::VecDeque;

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Tensor};
use emberlm_kernels::{AddressedVector, Backend};

use super::divided::{Cursor, Divided};
use super::exchange::typed;
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
#[derive(Debug)]
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
        vectors: Vec<Divided<FloatTensor<B>>>,
    ) -> Result<Vec<FloatTensor<B>>, String>
    where
        T: AddressTransport<B>,
    {
        let transport = self.0.transport();
        let rank = transport.rank();
        let Some(device) = vectors.first().map(|it| B::float_device(&it.value)) else {
            return Ok(Vec::new());
        };
        let mut readers: Vec<_> = (0..rank.world_size())
            .map(|index| PieceReader::<B>::new(index, &vectors))
            .collect();
        let longest = readers.iter().map(PieceReader::remaining).max();
        let own_lengths = readers[rank.index()].lengths();
        drop(vectors);
        let mut summed = PieceWriter::<B>::new(own_lengths);
        for slice in self.0.slices(longest.unwrap_or_default()) {
            let mut sent = Vec::new();
            let mut own = None;
            for (index, reader) in readers.iter_mut().enumerate() {
                let elements = reader.read(slice, &device);
                match index == rank.index() {
                    true => own = Some(Tensor::cat(elements, 0)),
                    false => sent.extend(elements),
                }
            }
            let sent = addressed(Tensor::cat(sent, 0))?;
            let mut received = addressed(Tensor::zeros([sent.len()], &device))?;
            transport.all_to_all_addressed(&sent, &mut received)?;
            let received = received.into_tensor();
            let of_rank = |index: usize| match rank.place_of(index) {
                None => own.clone(),
                Some(place) => Some(received.clone().narrow(0, place * slice, slice)),
            };
            let in_order = (0..rank.world_size()).filter_map(of_rank);
            if let Some(sum) = in_order.reduce(|sum, slice| sum + slice) {
                summed.write(sum);
            }
        }
        Ok(summed.pieces)
    }

    /// Implements [`Peers::all_gather`].
    fn whole_vectors<B: Backend>(
        &self,
        vectors: Vec<Divided<Option<FloatTensor<B>>>>,
        device: &Device<B>,
    ) -> Result<Vec<FloatTensor<B>>, String>
    where
        T: AddressTransport<B>,
    {
        let transport = self.0.transport();
        let rank = transport.rank();
        let cursors = (0..rank.world_size()).map(|index| Cursor::new(index, &vectors));
        let lengths: Vec<Vec<usize>> = cursors
            .map(|cursor| {
                cursor
                    .pieces()
                    .map(|(_, elements)| elements.len())
                    .collect()
            })
            .collect();
        let own = vectors.iter().filter_map(|vector| vector.value.clone());
        let own: VecDeque<Tensor<B, 1>> = own.map(typed::<B>).collect();
        if own
            .iter()
            .map(|piece| piece.dims()[0])
            .ne(lengths[rank.index()].iter().copied())
        {
            return Err("its pieces do not have the expected lengths".to_owned());
        }
        let longest = lengths.iter().map(|of_rank| of_rank.iter().sum()).max();
        let mut writers: Vec<_> = lengths.into_iter().map(PieceWriter::<B>::new).collect();
        let mut reader = PieceReader { left: own.clone() };
        writers[rank.index()].pieces = own
            .into_iter()
            .map(|it| it.into_primitive().tensor())
            .collect();
        for slice in self.0.slices(longest.unwrap_or_default()) {
            let sent = addressed(Tensor::cat(reader.read(slice, device), 0))?;
            let others = rank.world_size() - 1;
            let mut received = addressed(Tensor::zeros([slice * others], device))?;
            transport.all_gather_addressed(&sent, &mut received)?;
            let received = received.into_tensor();
            for (index, writer) in writers.iter_mut().enumerate() {
                if let Some(place) = rank.place_of(index) {
                    writer.write(received.clone().narrow(0, place * slice, slice));
                }
            }
        }
        let mut pieces: Vec<_> = writers
            .into_iter()
            .map(|it| it.pieces.into_iter())
            .collect();
        let whole = |vector: Divided<Option<FloatTensor<B>>>| {
            let pieces = vector.pieces.iter().map(|piece| pieces[piece.owner].next());
            let pieces: Option<Vec<_>> = pieces.map(|piece| piece.map(typed::<B>)).collect();
            pieces.map(|pieces| Tensor::cat(pieces, 0).into_primitive().tensor())
        };
        let whole: Option<Vec<_>> = vectors.into_iter().map(whole).collect();
        whole.ok_or_else(|| "a piece is missing".to_owned())
    }
}

fn addressed<B: Backend>(vector: Tensor<B, 1>) -> Result<AddressedVector<B>, String> {
    let vector = AddressedVector::new(vector);
    vector.ok_or_else(|| "the memory of its device has no addresses".to_owned())
}

/// Reads the elements of a rank's pieces, one after another.
struct PieceReader<B: Backend> {
    /// The pieces with elements that were not read.
    left: VecDeque<Tensor<B, 1>>,
}

impl<B: Backend> PieceReader<B> {
    /// The pieces of the rank `owner`.
    fn new(owner: usize, vectors: &[Divided<FloatTensor<B>>]) -> Self {
        let pieces = Cursor::new(owner, vectors);
        let pieces = pieces.pieces().map(|(vector, elements)| {
            let vector = typed::<B>(vectors[vector].value.clone());
            vector.narrow(0, elements.start, elements.len())
        });
        Self {
            left: pieces.collect(),
        }
    }

    fn lengths(&self) -> Vec<usize> {
        self.left.iter().map(|piece| piece.dims()[0]).collect()
    }

    fn remaining(&self) -> usize {
        self.left.iter().map(|piece| piece.dims()[0]).sum()
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

/// Makes pieces of their elements, one after another.
struct PieceWriter<B: Backend> {
    /// The lengths of the pieces that are not complete.
    left: VecDeque<usize>,
    /// The elements of the first of them so far.
    current: Vec<Tensor<B, 1>>,
    /// The number of these elements.
    written: usize,
    pieces: Vec<FloatTensor<B>>,
}

impl<B: Backend> PieceWriter<B> {
    fn new(lengths: Vec<usize>) -> Self {
        Self {
            pieces: Vec::with_capacity(lengths.len()),
            left: lengths.into(),
            current: Vec::new(),
            written: 0,
        }
    }

    /// Appends elements. Those after the last piece are dropped.
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
            self.pieces.push(vector.into_primitive().tensor());
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
        vectors: Vec<Divided<FloatTensor<B>>>,
    ) -> Result<Vec<FloatTensor<B>>, PeersError> {
        self.sums_for_this_rank::<B>(vectors)
            .map_err(self.0.error("gradients"))
    }

    fn all_gather(
        &self,
        vectors: Vec<Divided<Option<FloatTensor<B>>>>,
        device: &Device<B>,
    ) -> Result<Vec<FloatTensor<B>>, PeersError> {
        self.whole_vectors::<B>(vectors, device)
            .map_err(self.0.error("parameters"))
    }
}

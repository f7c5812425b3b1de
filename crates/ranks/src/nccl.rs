//! Exchanges of GPUs' memory by NVIDIA's NCCL, and of everything else by the job's transport.

use emberlm_kernels::nccl::{NcclCommunicator, NcclId};
use emberlm_kernels::{AddressedVector, Backend};
use emberlm_trainer::{AddressTransport, Rank, Transport};

/// Gathers have a separate communicator, so that they may run while another thread exchanges gradients.
pub(crate) struct NcclTransport<T> {
    job: T,
    sums: NcclCommunicator,
    gathers: NcclCommunicator,
}

/// The ids of both communicators, which rank 0 has made.
///
/// # Errors
/// The first reason for which a rank cannot use NCCL, on all ranks.
pub(crate) fn ids<B: Backend>(
    job: &impl Transport,
    device: &B::Device,
) -> Result<[NcclId; 2], String> {
    let made = NcclId::new::<B>(device).and_then(|sums| Ok((sums, NcclId::new::<B>(device)?)));
    let own = made.map(|(sums, gathers)| [sums, gathers].map(|id| id.0.to_vec()));
    let bytes = serde_json::to_vec(&own).map_err(|error| error.to_string())?;
    let mut first = None;
    for (rank, bytes) in job.all_gather_bytes(&bytes)?.iter().enumerate() {
        let made: Result<[Vec<u8>; 2], String> =
            serde_json::from_slice(bytes).map_err(|error| format!("rank {rank}: {error}"))?;
        let ids = made.map_err(|reason| format!("on rank {rank}, {reason}"))?;
        first.get_or_insert(ids);
    }
    let ids = first.unwrap_or_default().map(<[u8; 128]>::try_from);
    match ids {
        [Ok(sums), Ok(gathers)] => Ok([NcclId(sums), NcclId(gathers)]),
        _ => Err("rank 0 has sent no ids".to_owned()),
    }
}

impl<T: Transport> NcclTransport<T> {
    /// Joins the other ranks of the job, which must all call this with rank 0's ids.
    ///
    /// # Errors
    /// Two ranks have the same GPU, or the library fails.
    pub(crate) fn join<B: Backend>(
        job: T,
        device: &B::Device,
        [sums, gathers]: [NcclId; 2],
    ) -> Result<Self, String> {
        let (rank, size) = (job.rank().index(), job.rank().world_size());
        let join = |id| NcclCommunicator::join::<B>(device, id, rank, size);
        Ok(Self {
            sums: join(sums)?,
            gathers: join(gathers)?,
            job,
        })
    }
}

impl<T: Transport> Transport for NcclTransport<T> {
    fn rank(&self) -> Rank {
        self.job.rank()
    }

    fn all_to_all(&self, sent: &[f32], received: &mut [f32]) -> Result<(), String> {
        self.job.all_to_all(sent, received)
    }

    fn all_gather(&self, own: &[f32], received: &mut [f32]) -> Result<(), String> {
        self.job.all_gather(own, received)
    }

    fn all_gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        self.job.all_gather_bytes(own)
    }
}

impl<B: Backend, T: Transport> AddressTransport<B> for NcclTransport<T> {
    fn all_to_all_addressed(
        &self,
        sent: &AddressedVector<B>,
        received: &mut AddressedVector<B>,
    ) -> Result<(), String> {
        self.sums.exchange(sent, received)
    }

    fn all_gather_addressed(
        &self,
        own: &AddressedVector<B>,
        received: &mut AddressedVector<B>,
    ) -> Result<(), String> {
        self.gathers.exchange(own, received)
    }
}

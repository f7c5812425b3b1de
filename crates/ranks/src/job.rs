//! This process's membership of a job.

use std::sync::Arc;

use emberlm_kernels::Backend;
#[cfg(any(feature = "mpi", feature = "cuda"))]
use emberlm_trainer::DeviceMemoryPeers;
use emberlm_trainer::{Peers, Rank, Transport};

#[cfg(feature = "mpi")]
use crate::mpi::{MpiJob, MpiJoinError, MpiTransport};
#[cfg(feature = "cuda")]
use crate::nccl::{self, NcclTransport};
use crate::tcp::{TcpJob, TcpJoinError, TcpTransport};
use crate::{Launch, MpiLaunch};

/// The job cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The other ranks cannot be reached.
    #[error(transparent)]
    Tcp(#[from] TcpJoinError),
    /// The library is not that of the launcher, or lacks a function.
    #[cfg(feature = "mpi")]
    #[error(transparent)]
    Mpi(#[from] MpiJoinError),
    /// The launcher is one of MPI.
    #[error(
        "a launcher started several processes ({0}), but this binary was built without MPI: each process would do the whole work"
    )]
    WithoutMpi(MpiLaunch),
}

/// The memory of devices cannot be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum DeviceExchangeError {
    /// Ranks over TCP need NCCL for it.
    #[error("must be host for ranks over TCP without NCCL: {0}")]
    WithoutNccl(String),
    /// The library cannot connect the devices.
    #[error("NCCL cannot connect the devices of the ranks: {0}")]
    Nccl(String),
}

/// This process's membership of a job of several. The job is aborted if this is dropped without [`Job::finish`], as when the
/// program panics: the other processes would wait for this one forever.
pub enum Job {
    /// Over TCP.
    Tcp(TcpJob),
    /// Over MPI.
    #[cfg(feature = "mpi")]
    Mpi(MpiJob),
}

/// Evaluates an expression for the member of a job or of its transport.
macro_rules! member {
    ($kind:ident, $of:expr, $name:ident => $value:expr) => {
        match $of {
            $kind::Tcp($name) => $value,
            #[cfg(feature = "mpi")]
            $kind::Mpi($name) => $value,
        }
    };
}

impl Job {
    /// Joins the job. All processes of it must do so.
    ///
    /// If another process ends before the job does, all others end. One of them calls `lost` before, on another thread, with
    /// the reason. `note` receives what is waited for, if that takes long.
    ///
    /// # Errors
    /// The others cannot be reached, or the library is not that of the launcher.
    pub fn join(
        launch: &Launch,
        note: impl Fn(&str),
        lost: impl Fn(&str) + Clone + Send + 'static,
    ) -> Result<Self, JoinError> {
        match launch {
            Launch::Tcp(launch) => Ok(Self::Tcp(TcpJob::join(launch, note, lost)?)),
            #[cfg(feature = "mpi")]
            Launch::Mpi(launch) => Ok(Self::Mpi(MpiJob::join(launch)?)),
            #[cfg(not(feature = "mpi"))]
            Launch::Mpi(launch) => Err(JoinError::WithoutMpi(launch.clone())),
        }
    }

    /// The rank of this process.
    pub fn rank(&self) -> Rank {
        member!(Self, self, job => job.rank())
    }

    /// The index of this process among those on the same host, and their number.
    pub fn local_rank(&self) -> Rank {
        member!(Self, self, job => job.local_rank())
    }

    /// The name of the host.
    pub fn host(&self) -> &str {
        member!(Self, self, job => job.host())
    }

    /// The exchanges between the ranks. They may be used until the job ends.
    pub fn transport(&self) -> JobTransport {
        match self {
            Self::Tcp(job) => JobTransport::Tcp(job.transport()),
            #[cfg(feature = "mpi")]
            Self::Mpi(job) => JobTransport::Mpi(job.transport()),
        }
    }

    /// The exchanges of gradients and parameters in the memory of devices: by NCCL if all ranks have it and CUDA devices, else
    /// by an MPI library, which must take the addresses. All ranks must call this.
    ///
    /// # Errors
    /// There is neither, or NCCL fails.
    pub fn device_peers<B: Backend>(
        &self,
        device: &B::Device,
    ) -> Result<Arc<dyn Peers<B>>, DeviceExchangeError> {
        #[cfg(feature = "cuda")]
        let reason = match nccl::ids::<B>(&self.transport(), device) {
            Ok(ids) => {
                let joined = NcclTransport::join::<B>(self.transport(), device, ids);
                let transport = joined.map_err(DeviceExchangeError::Nccl)?;
                return Ok(Arc::new(DeviceMemoryPeers::new(transport)));
            }
            Err(reason) => reason,
        };
        #[cfg(not(feature = "cuda"))]
        let reason = {
            let _ = device;
            "this binary was built without the feature cuda".to_owned()
        };
        match self {
            Self::Tcp(_) => Err(DeviceExchangeError::WithoutNccl(reason)),
            #[cfg(feature = "mpi")]
            Self::Mpi(job) => Ok(Arc::new(DeviceMemoryPeers::new(job.transport()))),
        }
    }

    /// Waits until all processes wait here.
    pub fn wait_for_all(&self) {
        member!(Self, self, job => job.wait_for_all());
    }

    /// Waits until all processes have finished, then ends the job.
    pub fn finish(self) {
        member!(Self, self, job => job.finish());
    }

    /// Waits until another process aborts the job, which ends this process too.
    pub fn wait_for_abort(&self) -> ! {
        loop {
            std::thread::park();
        }
    }

    /// Ends all processes of the job. Their exit code is `code`.
    pub fn abort(&self, code: u8) -> ! {
        member!(Self, self, job => job.abort(code))
    }
}

/// Exchanges with all processes of a job.
#[derive(Clone, Debug)]
pub enum JobTransport {
    /// Over TCP.
    Tcp(TcpTransport),
    /// Over MPI.
    #[cfg(feature = "mpi")]
    Mpi(MpiTransport),
}

impl Transport for JobTransport {
    fn rank(&self) -> Rank {
        member!(Self, self, of => of.rank())
    }

    fn all_to_all(&self, sent: &[f32], received: &mut [f32]) -> Result<(), String> {
        member!(Self, self, of => of.all_to_all(sent, received))
    }

    fn all_gather(&self, own: &[f32], received: &mut [f32]) -> Result<(), String> {
        member!(Self, self, of => of.all_gather(own, received))
    }

    fn all_gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        member!(Self, self, of => of.all_gather_bytes(own))
    }
}

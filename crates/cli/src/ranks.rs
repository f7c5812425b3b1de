//! This process among those of a job that `mpirun` or `srun` started.
//!
//! Rank 0 prints what a single process would. The other ranks print only errors, with their rank and host, and an
//! error of any rank ends all of them.

#[cfg(any(feature = "mpi", test))]
mod pieces;

use std::sync::Arc;

use emberlm_data::{PrepareRanks, SingleRank};
use emberlm_kernels::Backend;
use emberlm_mpi::Launch;
#[cfg(feature = "mpi")]
use emberlm_mpi::MpiJob;
use emberlm_trainer::config::ExchangeMemory;
#[cfg(feature = "mpi")]
use emberlm_trainer::{DeviceMemoryPeers, OrderedPeers};
use emberlm_trainer::{Peers, Rank, SingleProcess, TrainError, Transport};

#[cfg(feature = "mpi")]
use self::pieces::InPieces;
#[cfg(feature = "mpi")]
use crate::console;
use crate::error::CliError;

/// The time that another rank's error waits for rank 0, which often has the same error and prints it without a prefix.
#[cfg(feature = "mpi")]
const GRACE: std::time::Duration = std::time::Duration::from_secs(2);

/// The job that this process belongs to. Without the feature `mpi` it is always the only process.
pub struct Ranks {
    /// `None` for a single process.
    #[cfg(feature = "mpi")]
    job: Option<MpiJob>,
}

impl Ranks {
    /// Joins the job that a launcher started this process for, if there is one. Ranks other than 0 print no notes
    /// from then on.
    ///
    /// # Errors
    /// Returns an error if a launcher started several processes and the binary does not support its library, so that
    /// each process would do the whole work.
    #[cfg(feature = "mpi")]
    pub fn join() -> Result<Self, CliError> {
        let job = Launch::detect().map(|launch| MpiJob::join(&launch));
        let job = job.transpose().map_err(|error| {
            CliError::new(error.to_string()).hint(
                "start the program with the launcher of the MPI library that it was built with",
            )
        })?;
        if job.as_ref().is_some_and(|job| !job.rank().is_zero()) {
            console::mute();
        }
        Ok(Self { job })
    }

    /// Refuses a job of several processes, each of which would do the whole work.
    ///
    /// # Errors
    /// Returns an error if a launcher started several processes.
    #[cfg(not(feature = "mpi"))]
    pub fn join() -> Result<Self, CliError> {
        let Some(launch) = Launch::detect() else {
            return Ok(Self {});
        };
        Err(CliError::usage(format!(
            "a launcher started several processes ({launch}), but this binary was built without MPI: each process would do the whole work"
        ))
        .hint("build with MPI: cargo install --locked --path crates/cli --features mpi")
        .hint("or start one process, without mpirun or srun"))
    }

    /// The rank of this process.
    pub fn rank(&self) -> Rank {
        #[cfg(feature = "mpi")]
        if let Some(job) = &self.job {
            return job.rank();
        }
        Rank::SINGLE
    }

    /// The index of this process among those of the job on the same host, and their number.
    pub fn local_rank(&self) -> Rank {
        #[cfg(feature = "mpi")]
        if let Some(job) = &self.job {
            return job.local_rank();
        }
        Rank::SINGLE
    }

    /// Waits until all processes of the job wait here.
    pub fn wait_for_all(&self) {
        #[cfg(feature = "mpi")]
        if let Some(job) = &self.job {
            job.wait_for_all();
        }
    }

    /// Runs `work` on rank 0, then on one rank of each other host, then on the remaining ranks, so that what it writes is
    /// there for the others.
    ///
    /// # Errors
    /// As `work`.
    pub fn in_turn(&self, work: impl FnOnce() -> Result<(), CliError>) -> Result<(), CliError> {
        let turn = match (self.rank().index(), self.local_rank().index()) {
            (0, _) => 0,
            (_, 0) => 1,
            _ => 2,
        };
        (0..turn).for_each(|_| self.wait_for_all());
        work()?;
        (turn..2).for_each(|_| self.wait_for_all());
        Ok(())
    }

    /// The bytes of all processes, in rank order.
    ///
    /// # Errors
    /// Another process cannot be reached.
    pub fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        #[cfg(feature = "mpi")]
        if let Some(job) = &self.job {
            return job.transport().all_gather_bytes(own);
        }
        Ok(vec![own.to_vec()])
    }

    /// The exchanges of a preparation that is divided among the processes.
    pub fn exchange(&self) -> Box<dyn PrepareRanks> {
        #[cfg(feature = "mpi")]
        if let Some(job) = &self.job {
            return Box::new(InPieces(job.transport()));
        }
        Box::new(SingleRank)
    }

    /// The exchanges of host memory with the other processes. `None` for a single process.
    pub fn transport(&self) -> Option<Box<dyn Transport>> {
        #[cfg(feature = "mpi")]
        if let Some(job) = &self.job {
            return Some(Box::new(job.transport()));
        }
        None
    }

    /// Waits until another process, which has failed, ends the job. Returns at once in a single process.
    pub fn wait_for_abort(&self) {
        #[cfg(feature = "mpi")]
        if let Some(job) = &self.job {
            job.wait_for_abort();
        }
    }

    /// Compares the version of this rank and the named properties of its `work` with those of rank 0.
    ///
    /// # Errors
    /// A rank differs: the first such rank and property. All ranks return the same error.
    pub fn agree(&self, work: &str, own: &[(&str, String)]) -> Result<(), CliError> {
        if self.rank().world_size() == 1 {
            return Ok(());
        }
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let own = [&[("the version of emberlm", version)], own].concat();
        let bytes = serde_json::to_vec(&own).unwrap_or_default();
        let all = self.gather(&bytes).map_err(CliError::new)?;
        let read = |bytes: &Vec<u8>| -> Vec<(String, String)> {
            serde_json::from_slice(bytes).unwrap_or_default()
        };
        let all: Vec<_> = all.iter().map(read).collect();
        let Some((first, others)) = all.split_first() else {
            return Ok(());
        };
        for (rank, other) in (1..).zip(others) {
            let different = first.iter().zip(other).find(|(own, other)| own != other);
            if let Some(((name, expected), (_, found))) = different {
                let size = all.len();
                return Err(CliError::new(format!(
                    "rank {rank} of {size} does not {work} the same as rank 0: {name} is {found}, and {expected} on rank 0"
                ))
                .hint("start all ranks with the same command line, on the same files"));
            }
        }
        Ok(())
    }

    /// The exchanges with the other processes, of gradients and parameters in this memory.
    pub fn peers<B: Backend>(&self, memory: ExchangeMemory) -> Arc<dyn Peers<B>> {
        #[cfg(feature = "mpi")]
        if let Some(job) = &self.job {
            let transport = job.transport();
            return match memory {
                ExchangeMemory::Host => Arc::new(OrderedPeers::new(transport)),
                ExchangeMemory::Device => Arc::new(DeviceMemoryPeers::new(transport)),
            };
        }
        let _ = memory;
        Arc::new(SingleProcess)
    }

    /// Leaves an error that all ranks have to the rank that reports it, which ends the job.
    pub fn leave_to_reporting_rank(&self, error: &TrainError) {
        #[cfg(feature = "mpi")]
        if let Some(job) = &self.job
            && let Some(rank) = error.reporting_rank()
            && rank != job.rank().index()
        {
            job.wait_for_abort();
        }
        let _ = error;
    }

    /// Ends the job: after all ranks have finished, or at once after an error of this one.
    pub fn end(self, result: Result<(), CliError>) -> Result<(), CliError> {
        #[cfg(feature = "mpi")]
        if let Some(job) = self.job {
            let Err(error) = result else {
                job.finish();
                return Ok(());
            };
            let rank = job.rank();
            let error = match rank.is_zero() {
                true => error,
                false => {
                    std::thread::sleep(GRACE);
                    let (index, size, host) = (rank.index(), rank.world_size(), job.host());
                    error.within(&format!("rank {index} of {size} on {host}"))
                }
            };
            let code = error.report();
            console::flush();
            match code {
                // The reader of stdout closed it, which is no failure, and the run is complete.
                0 => job.finish(),
                code => job.abort(code),
            }
            return Ok(());
        }
        result
    }
}

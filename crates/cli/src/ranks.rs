//! This process among those of a job that `torchrun`, `mpirun` or `srun` started.
//!
//! Rank 0 prints what a single process would. The other ranks print only errors, with their rank and host, and an
//! error of any rank ends all of them.

mod pieces;

use std::sync::Arc;

use emberlm_data::{PrepareRanks, SingleRank};
use emberlm_kernels::Backend;
use emberlm_ranks::{Job, JoinError, Launch};
use emberlm_trainer::config::ExchangeMemory;
use emberlm_trainer::{OrderedPeers, Peers, Rank, SingleProcess, TrainError, Transport};

use self::pieces::InPieces;
use crate::console;
use crate::error::CliError;

/// The time that another rank's error waits for rank 0, which often has the same error and prints it without a prefix.
const GRACE: std::time::Duration = std::time::Duration::from_secs(2);

/// The job that this process belongs to.
pub struct Ranks {
    /// `None` for a single process.
    job: Option<Job>,
}

impl Ranks {
    /// Joins the job that a launcher started this process for, if there is one. Ranks other than 0 print no notes
    /// from then on.
    ///
    /// # Errors
    /// The other ranks cannot be reached, or a launcher of MPI started several processes and the binary does not support
    /// its library, so that each process would do the whole work.
    pub fn join() -> Result<Self, CliError> {
        let detected = Launch::detect().map_err(|error| {
            CliError::usage(error.to_string()).hint(
                "start one process without these variables, or let a launcher set all of them",
            )
        })?;
        let Some(launch) = detected else {
            return Ok(Self { job: None });
        };
        let job = Job::join(&launch, |line| console::note(line), lost).map_err(refused)?;
        if !job.rank().is_zero() {
            console::mute();
        }
        Ok(Self { job: Some(job) })
    }

    /// The rank of this process.
    pub fn rank(&self) -> Rank {
        self.job.as_ref().map_or(Rank::SINGLE, Job::rank)
    }

    /// The index of this process among those of the job on the same host, and their number.
    pub fn local_rank(&self) -> Rank {
        self.job.as_ref().map_or(Rank::SINGLE, Job::local_rank)
    }

    /// Waits until all processes of the job wait here.
    pub fn wait_for_all(&self) {
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
        if let Some(job) = &self.job {
            return job.transport().all_gather_bytes(own);
        }
        Ok(vec![own.to_vec()])
    }

    /// The exchanges of a preparation that is divided among the processes.
    pub fn exchange(&self) -> Box<dyn PrepareRanks> {
        if let Some(job) = &self.job {
            return Box::new(InPieces(job.transport()));
        }
        Box::new(SingleRank)
    }

    /// The exchanges of host memory with the other processes. `None` for a single process.
    pub fn transport(&self) -> Option<Box<dyn Transport>> {
        if let Some(job) = &self.job {
            return Some(Box::new(job.transport()));
        }
        None
    }

    /// Waits until another process, which has failed, ends the job. Returns at once in a single process.
    pub fn wait_for_abort(&self) {
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
    ///
    /// # Errors
    /// The processes cannot exchange this memory.
    pub fn peers<B: Backend>(
        &self,
        memory: ExchangeMemory,
        device: &B::Device,
    ) -> Result<Arc<dyn Peers<B>>, CliError> {
        let Some(job) = &self.job else {
            return Ok(Arc::new(SingleProcess));
        };
        match memory {
            ExchangeMemory::Host => Ok(Arc::new(OrderedPeers::new(job.transport()))),
            ExchangeMemory::Device => job.device_peers(device).map_err(|error| {
                CliError::usage(format!("train.exchange = device: {error}"))
                    .hint("`--set train.exchange=host` exchanges copies in the memory of the host")
            }),
        }
    }

    /// Leaves an error that all ranks have to the rank that reports it, which ends the job.
    pub fn leave_to_reporting_rank(&self, error: &TrainError) {
        if let Some(job) = &self.job
            && let Some(rank) = error.reporting_rank()
            && rank != job.rank().index()
        {
            job.wait_for_abort();
        }
    }

    /// Ends the job: after all ranks have finished, or at once after an error of this one.
    pub fn end(self, result: Result<(), CliError>) -> Result<(), CliError> {
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

/// Prints that another rank has ended, which ends the job.
fn lost(reason: &str) {
    let error = CliError::new(reason.to_owned())
        .hint("the newest checkpoint is complete: start all ranks again with --resume");
    error.report();
    console::flush();
}

/// The error of a job that cannot be joined.
fn refused(error: JoinError) -> CliError {
    let message = error.to_string();
    match error {
        JoinError::Tcp(_) => CliError::new(message).hint(
            "start all ranks with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE, each with its own RANK",
        ),
        JoinError::WithoutMpi(_) => CliError::usage(message)
            .hint("build with MPI: cargo install --locked --path crates/cli --features mpi")
            .hint("or start the ranks with torchrun, or with its variables RANK, WORLD_SIZE and MASTER_ADDR")
            .hint("or start one process, without mpirun or srun"),
        #[cfg(feature = "mpi")]
        JoinError::Mpi(_) => CliError::new(message)
            .hint("start the program with the launcher of the MPI library that it was built with"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The variables are those of Open MPI, MPICH and Slurm.
    #[test]
    fn copies_of_a_run_without_mpi_are_refused() {
        for variables in [
            &[("OMPI_COMM_WORLD_SIZE", "4")][..],
            &[("PMI_SIZE", "4")],
            &[("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "0")],
            &[("PMIX_RANK", "1")],
        ] {
            let launch = Launch::from_variables(|name| {
                let set = variables.iter().find(|(known, _)| *known == name);
                set.map(|(_, value)| (*value).to_owned())
            });
            let Ok(Some(Launch::Mpi(launch))) = launch else {
                panic!("{launch:?}");
            };
            let (name, value) = variables[0];
            let expected = format!(
                "error: a launcher started several processes ({name} = {value}), but this binary was built without MPI"
            );
            let lines = refused(JoinError::WithoutMpi(launch)).lines(false);
            assert!(lines.starts_with(&expected), "{lines}");
            for hint in [
                "hint: build with MPI",
                "hint: or start the ranks with torchrun, or with its variables",
            ] {
                assert!(lines.contains(hint), "{lines}");
            }
        }
    }
}

//! This process's membership of an MPI job.

use std::thread;

use emberlm_trainer::Rank;
use mpi::Threading;
use mpi::environment::{self, Universe};
use mpi::topology::{Communicator, SimpleCommunicator};

use super::transport::{MpiTransport, create_communicators, wait_for_all};
use crate::MpiLaunch;

/// The job cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum MpiJoinError {
    /// MPI was initialized before in this process.
    #[error("MPI is already in use in this process")]
    InUse,
    /// The library allows calls only from the thread that initialized it.
    #[error("{library} does not support calls from several threads")]
    Threads {
        /// The library and its version.
        library: String,
    },
    /// The launcher and the library do not know each other.
    #[error(
        "the launcher started {tasks} processes ({launch}), but {library} sees a job of {world_size}"
    )]
    OtherLibrary {
        /// The number of processes according to the launcher.
        tasks: usize,
        /// The launcher's variable.
        launch: String,
        /// The library and its version.
        library: String,
        /// The number of processes according to the library.
        world_size: usize,
    },
}

/// This process's membership of an MPI job. The job is aborted if this is dropped without [`MpiJob::finish`], as when
/// the program panics: the other processes would wait for this one forever.
pub struct MpiJob {
    /// Present until the end.
    universe: Option<Universe>,
    rank: Rank,
    local: Rank,
    host: String,
}

impl MpiJob {
    /// Initializes MPI. All processes of the job must do so.
    ///
    /// # Errors
    /// The library is not that of the launcher, or does not support what training needs.
    pub fn join(launch: &MpiLaunch) -> Result<Self, MpiJoinError> {
        let initialized = environment::initialize_with_threading(Threading::Serialized);
        let (universe, threading) = initialized.ok_or(MpiJoinError::InUse)?;
        let world = universe.world();
        let (index, world_size) = (world.rank().max(0) as usize, world.size().max(1) as usize);
        let library = || {
            let version = environment::library_version().unwrap_or_default();
            let first = version.split([',', '\n', '\0']).next().unwrap_or_default();
            let words: Vec<&str> = first.split_whitespace().collect();
            match words.is_empty() {
                true => "the MPI library".to_owned(),
                false => words.join(" "),
            }
        };
        if let Some(tasks) = launch.tasks().filter(|&tasks| tasks != world_size) {
            return Err(MpiJoinError::OtherLibrary {
                tasks,
                launch: launch.to_string(),
                library: library(),
                world_size,
            });
        }
        if threading < Threading::Serialized {
            return Err(MpiJoinError::Threads { library: library() });
        }
        create_communicators();
        let host = environment::processor_name().unwrap_or_default();
        let on_host = world.split_shared(index as i32);
        Ok(Self {
            universe: Some(universe),
            rank: Rank::new(index, world_size).unwrap_or(Rank::SINGLE),
            local: Rank::new(
                on_host.rank().max(0) as usize,
                on_host.size().max(1) as usize,
            )
            .unwrap_or(Rank::SINGLE),
            host: host.trim_end_matches('\0').to_owned(),
        })
    }

    /// The rank of this process.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// The index of this process among those on the same host, and their number.
    pub fn local_rank(&self) -> Rank {
        self.local
    }

    /// The name of the host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The exchanges between the ranks. They may be used until the job ends.
    pub fn transport(&self) -> MpiTransport {
        MpiTransport::new(self.rank)
    }

    /// Waits until all processes wait here.
    pub fn wait_for_all(&self) {
        wait_for_all();
    }

    /// Waits until all processes have finished, then ends the job.
    pub fn finish(mut self) {
        wait_for_all();
        // Finalizes MPI.
        drop(self.universe.take());
    }

    /// Waits until another process aborts the job, which ends this process too.
    pub fn wait_for_abort(&self) -> ! {
        loop {
            thread::park();
        }
    }

    /// Ends all processes of the job. Their exit code is `code`.
    pub fn abort(&self, code: u8) -> ! {
        SimpleCommunicator::world().abort(code.into())
    }
}

impl Drop for MpiJob {
    fn drop(&mut self) {
        if self.universe.is_some() {
            self.abort(1);
        }
    }
}

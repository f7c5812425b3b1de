//! Writes the optimizer's state of all ranks into a checkpoint.
//!
//! Rank 0 creates the checkpoint's hidden directory with the file of the state, which has its header and full length.
//! Then all ranks that see the directory write their pieces into the file at the same time. If some do not see it, all send
//! their pieces in blocks to rank 0, which writes them as they arrive. Rank 0 writes the other files and publishes the
//! checkpoint only when all pieces are complete.

use std::path::{Path, PathBuf};

use emberlm_checkpoint::CheckpointError;
use emberlm_checkpoint::checkpoint::OPTIMIZER;
use emberlm_checkpoint::write::PartialCheckpoint;
use emberlm_kernels::Backend;
use emberlm_model::WeightsError;
use emberlm_model::weights::PieceFile;

use super::FOLDER;
use crate::error::TrainError;
use crate::optimizer::Snapshot;
use crate::optimizer::snapshot::BLOCK;
use crate::peers::{Peers, PeersError, sum_count};

/// Writes the state of all ranks into the checkpoints of a run.
#[derive(Clone, Debug)]
pub(crate) struct ShardWriter {
    run: PathBuf,
    /// True if all ranks see the run's directory.
    is_shared: bool,
}

impl ShardWriter {
    /// The writer of a run, whose directory exists on rank 0; `None` for a single process. All ranks must call this.
    ///
    /// # Errors
    /// A peer cannot be reached.
    pub(crate) fn of_ranks<B: Backend>(
        run: &Path,
        peers: &dyn Peers<B>,
    ) -> Result<Option<Self>, PeersError> {
        if peers.rank().world_size() == 1 {
            return Ok(None);
        }
        Ok(Some(Self {
            run: run.to_owned(),
            is_shared: is_shared(run, peers)?,
        }))
    }

    /// Creates the checkpoint of `step` with the state of all ranks, on rank 0, where the inner error is that of the
    /// file. Returns `None` on the others. All ranks must call this.
    ///
    /// # Errors
    /// A peer cannot be reached, or a rank other than 0 cannot write its pieces.
    pub(crate) fn write<B: Backend>(
        &self,
        step: usize,
        snapshot: &Snapshot<B>,
        peers: &dyn Peers<B>,
    ) -> Result<Option<Result<PartialCheckpoint, CheckpointError>>, TrainError> {
        let is_zero = peers.rank().is_zero();
        let path = PartialCheckpoint::path_of(&self.run, step).join(OPTIMIZER);
        let created = is_zero.then(|| -> Result<_, CheckpointError> {
            let partial = PartialCheckpoint::create(&self.run, step)?;
            snapshot.create_file(&path)?;
            Ok(partial)
        });
        let failed = matches!(created, Some(Err(_)));
        if sum_count(peers, usize::from(failed))? > 0 {
            return Ok(created);
        }
        let written = match self.is_shared {
            true => {
                let written = snapshot.write_own_pieces(&path);
                match written {
                    // Training continues without this checkpoint.
                    Err(_) if is_zero => {}
                    Err(error) => return Err(CheckpointError::from(error).into()),
                    Ok(()) => {}
                }
                // Waits until all pieces are written.
                sum_count(peers, 0)?;
                written
            }
            false => send(snapshot, &path, peers)?,
        };
        Ok(created.map(|partial| {
            written?;
            partial
        }))
    }
}

/// Sends the pieces of all ranks to rank 0, which writes them into the file and returns the error of that.
fn send<B: Backend>(
    snapshot: &Snapshot<B>,
    path: &Path,
    peers: &dyn Peers<B>,
) -> Result<Result<(), WeightsError>, PeersError> {
    let rank = peers.rank();
    let mut target = match rank.is_zero() {
        true => PieceFile::open(path).and_then(|file| Ok(Some((file, snapshot.places(path)?)))),
        false => Ok(None),
    };
    let mut own = snapshot.read();
    let block = (BLOCK / 4 / rank.world_size()).max(1) * 4;
    for _ in 0..snapshot.longest().div_ceil(block) {
        let blocks = peers.gather_bytes(&own.next_block(block))?;
        // After an error, the others continue to send.
        if let Ok(Some((file, places))) = &mut target {
            let mut pairs = places.iter_mut().zip(&blocks);
            if let Err(error) = pairs.try_for_each(|(places, bytes)| places.write(file, bytes)) {
                target = Err(error);
            }
        }
    }
    Ok(target.map(drop))
}

/// Returns true if all ranks see the run's directory of rank 0: a directory with a random name that rank 0 creates there.
fn is_shared<B: Backend>(run: &Path, peers: &dyn Peers<B>) -> Result<bool, PeersError> {
    let rank = peers.rank();
    let folder = run.join(FOLDER);
    // One that a killed process leaves is removed like an unfinished checkpoint.
    let mark = rank.is_zero().then(|| {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".step-shared-").tempdir_in(&folder)
    });
    let name = mark.as_ref().and_then(|mark| {
        let name = mark.as_ref().ok()?.path().file_name()?;
        name.to_str()
    });
    let names = peers.gather_texts(name.unwrap_or_default())?;
    let sees = |name: &String| !name.is_empty() && folder.join(name).exists();
    let seen = usize::from(names.first().is_some_and(sees));
    Ok(sum_count(peers, seen)? == rank.world_size())
}

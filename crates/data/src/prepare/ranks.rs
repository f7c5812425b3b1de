//! Preparation divided among several processes, the ranks of a job.
//!
//! Every rank reads all inputs and assigns their documents to splits, since both depend on all earlier documents. Rank `r`
//! of `n` tokenizes the waves `r`, `r + n`, `r + 2n` and so on. After each round of `n` waves, rank 0 receives their tokens
//! and writes them in order, while it tokenizes the next wave. Only rank 0 writes, so the dataset and the saved progress do
//! not depend on the number of ranks.

use serde::{Deserialize, Serialize};

use super::journal::Plan;
use super::tally::Tally;
use super::tokenize::EncodedWave;
use crate::DataError;

/// The exchange between the processes that prepare a dataset together. All must call [`PrepareRanks::gather`] equally often.
pub trait PrepareRanks: Sync {
    /// The index of this process.
    fn index(&self) -> usize;

    /// The number of processes.
    fn count(&self) -> usize;

    /// The bytes of all processes, in the order of their indices. Lengths may differ.
    ///
    /// # Errors
    /// The reason that another process cannot be reached.
    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String>;
}

/// A single process, which is rank 0.
#[derive(Clone, Copy, Debug)]
pub struct SingleRank;

impl PrepareRanks for SingleRank {
    fn index(&self) -> usize {
        0
    }

    fn count(&self) -> usize {
        1
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        Ok(vec![own.to_vec()])
    }
}

/// The message of a rank before it reads its inputs.
#[derive(Debug, Serialize, Deserialize)]
enum Beginning {
    /// Rank 0 found the dataset complete.
    Complete,
    /// The rank's plan, and on rank 0 the progress of an earlier preparation.
    Work { plan: Plan, tally: Tally },
}

/// Ends the other ranks, which have nothing to do.
pub(super) fn end_all(ranks: &dyn PrepareRanks) -> Result<(), DataError> {
    if ranks.count() > 1 {
        exchange_beginnings(ranks, &Beginning::Complete)?;
    }
    Ok(())
}

/// Compares the plans of all ranks, and returns the progress that rank 0 continues from; `None` if there is nothing to do.
///
/// # Errors
/// A rank has another plan, which is the same error on all ranks, or cannot be reached.
pub(super) fn begin_together(
    ranks: &dyn PrepareRanks,
    plan: Plan,
    tally: Tally,
) -> Result<Option<Tally>, DataError> {
    if ranks.count() == 1 {
        return Ok(Some(tally));
    }
    let all = exchange_beginnings(ranks, &Beginning::Work { plan, tally })?;
    let mut all = all.into_iter();
    let Some(Beginning::Work { plan, tally }) = all.next() else {
        return Ok(None);
    };
    for (rank, other) in (1..).zip(all) {
        if let Beginning::Work { plan: other, .. } = other
            && let Some(reason) = plan.difference_of_rank(&other)
        {
            return Err(DataError::RanksDiffer { rank, reason });
        }
    }
    Ok(Some(tally))
}

fn exchange_beginnings(
    ranks: &dyn PrepareRanks,
    own: &Beginning,
) -> Result<Vec<Beginning>, DataError> {
    let own = serde_json::to_vec(own).map_err(|error| exchange_failed(error.to_string()))?;
    let all = ranks.gather(&own).map_err(exchange_failed)?;
    let read = |(rank, bytes): (usize, Vec<u8>)| {
        serde_json::from_slice(&bytes).map_err(|_| DataError::RanksDiffer {
            rank,
            reason: "it runs another version of emberlm".to_owned(),
        })
    };
    all.into_iter().enumerate().map(read).collect()
}

/// Exchanges the waves of a round. On rank 0 they come back in order, and elsewhere nothing does. `own` is `None` if this
/// rank has no wave in the last round.
///
/// # Errors
/// The error of this rank's wave, unless one of an earlier rank is reported by that one; or a peer cannot be reached.
pub(super) fn exchange_round(
    ranks: &dyn PrepareRanks,
    own: Option<Result<EncodedWave, DataError>>,
) -> Result<Vec<EncodedWave>, DataError> {
    if ranks.count() == 1 {
        return own.into_iter().collect();
    }
    const WAVE: u8 = 0;
    const NOTHING: u8 = 1;
    const FAILED: u8 = 2;
    let message = match &own {
        Some(Ok(wave)) if ranks.index() > 0 => wave.to_bytes(WAVE),
        Some(Ok(_)) | None => vec![NOTHING],
        Some(Err(_)) => vec![FAILED],
    };
    let all = ranks.gather(&message).map_err(exchange_failed)?;
    let is_failed = |message: &Vec<u8>| message.first() == Some(&FAILED);
    let failed = all.iter().position(is_failed);
    let mut waves = Vec::new();
    match (failed, own) {
        (Some(rank), Some(Err(error))) if rank == ranks.index() => return Err(error),
        (Some(rank), _) => return Err(DataError::RankFailed { rank }),
        (None, own) => waves.extend(own.transpose()?),
    }
    if ranks.index() > 0 {
        return Ok(Vec::new());
    }
    for (rank, message) in all.iter().enumerate().skip(1) {
        if let [WAVE, wave @ ..] = &message[..] {
            let wave = EncodedWave::from_bytes(wave);
            let damaged = || exchange_failed(format!("rank {rank} sent a damaged message"));
            waves.push(wave.ok_or_else(damaged)?);
        }
    }
    Ok(waves)
}

fn exchange_failed(reason: String) -> DataError {
    DataError::Exchange { reason }
}

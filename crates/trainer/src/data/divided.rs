//! Evaluation divided among ranks.
//!
//! Rank `r` of `n` computes the batches `r`, `r + n`, `r + 2n` and so on. Every rank receives the results of all batches
//! and adds them in the order of the batches, so an evaluation has the same bits on any number of ranks.

use std::ops::ControlFlow;

use burn::tensor::backend::Backend as BurnBackend;
use emberlm_data::DataError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::TrainError;
use crate::peers::{Peers, PeersError};

/// The numbers of this rank's batches of a round become those of all ranks, in rank order. Breaks if `stop` breaks on any
/// rank. All ranks must call this equally often.
pub(crate) fn exchange<B: BurnBackend>(
    peers: &dyn Peers<B>,
    own: Vec<f64>,
    stop: ControlFlow<()>,
) -> Result<ControlFlow<(), Vec<Vec<f64>>>, PeersError> {
    if peers.rank().world_size() == 1 {
        return Ok(match stop {
            ControlFlow::Continue(()) => ControlFlow::Continue(vec![own]),
            ControlFlow::Break(()) => ControlFlow::Break(()),
        });
    }
    let mut message = own;
    message.push(f64::from(u8::from(stop.is_break())));
    let mut all = peers.gather_numbers(&message)?;
    // Every rank must look at all flags.
    let stops = all.iter_mut().filter_map(Vec::pop).any(|flag| flag != 0.0);
    Ok(match stops {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(all),
    })
}

/// Calls `compute` with this rank's batches, and `add` with every batch and the numbers that some rank computed from it, in
/// the order of `batches`. `stop` is called after each of this rank's batches. Breaks if it breaks on any rank.
///
/// # Errors
/// A batch is an error, or a peer cannot be reached.
pub(crate) fn for_each_batch<B: BurnBackend, T>(
    peers: &dyn Peers<B>,
    batches: impl IntoIterator<Item = Result<T, DataError>>,
    mut compute: impl FnMut(&T) -> Vec<f64>,
    mut add: impl FnMut(&T, &[f64]),
    stop: impl Fn() -> ControlFlow<()>,
) -> Result<ControlFlow<()>, TrainError> {
    let rank = peers.rank();
    let mut batches = batches.into_iter();
    loop {
        let round = batches.by_ref().take(rank.world_size());
        let round = round.collect::<Result<Vec<T>, _>>()?;
        if round.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let own = round.get(rank.index()).map(&mut compute);
        let ControlFlow::Continue(all) = exchange(peers, own.unwrap_or_default(), stop())? else {
            return Ok(ControlFlow::Break(()));
        };
        for (batch, numbers) in round.iter().zip(&all) {
            add(batch, numbers);
        }
    }
}

/// The values of all ranks, in rank order. All ranks must call this equally often.
///
/// # Errors
/// A peer cannot be reached, or sends another type.
pub(crate) fn exchange_values<B: BurnBackend, T: Serialize + DeserializeOwned>(
    peers: &dyn Peers<B>,
    own: T,
) -> Result<Vec<T>, PeersError> {
    let rank = peers.rank();
    if rank.world_size() == 1 {
        return Ok(vec![own]);
    }
    let failed = |error: serde_json::Error| PeersError {
        rank,
        what: "values",
        reason: error.to_string(),
    };
    // JSON has the exact value of a finite number.
    let bytes = serde_json::to_vec(&own).map_err(failed)?;
    let all = peers.gather_bytes(&bytes)?;
    let read = |bytes: &Vec<u8>| serde_json::from_slice(bytes).map_err(failed);
    all.iter().map(read).collect()
}

/// The numbers of all ranks' batches in the order of the batches, from those of each rank's batches.
pub(crate) fn interleaved(all: &[Vec<f64>]) -> impl Iterator<Item = f64> {
    let rounds = all.iter().map(Vec::len).max().unwrap_or(0);
    (0..rounds).flat_map(|round| all.iter().filter_map(move |own| own.get(round).copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_interleaved_in_the_order_of_batches() {
        let all = [vec![0.0, 3.0, 6.0], vec![1.0, 4.0], vec![2.0, 5.0]];
        let found: Vec<f64> = interleaved(&all).collect();
        assert_eq!(found, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }
}

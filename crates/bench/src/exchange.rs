//! `emberlm-bench exchange`: the time in which ranks sum gradients of given sizes. `cargo xtask bench ranks` runs it.

use std::time::Instant;

use clap::Args;
use emberlm_cli::shared::{CliError, Ranks};
use emberlm_trainer::Transport;
use serde::Serialize;

/// The numbers of f32 that training exchanges at once: 16 MiB.
const BUCKET: usize = 1 << 22;

/// Arguments of `exchange`.
#[derive(Debug, Args)]
pub struct ExchangeArgs {
    /// The sizes of all gradients together, in MiB
    #[arg(long, value_name = "MIB", value_delimiter = ',', required = true)]
    pub mib: Vec<usize>,
    /// Measured exchanges of each size, after one that is not measured
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
}

/// The exchange of one size, of which the round with the median time is reported.
#[derive(Clone, Copy, Debug, Serialize)]
struct Measured {
    /// The bytes of all gradients.
    bytes: usize,
    /// The seconds of the whole exchange.
    seconds: f64,
    /// The seconds of the transport within it.
    transfer: f64,
}

/// Runs the command.
///
/// # Errors
/// No launcher started several processes, or they cannot reach each other.
pub fn run(args: ExchangeArgs) -> Result<(), CliError> {
    let ranks = Ranks::join()?;
    let result = run_as(&args, &ranks);
    ranks.end(result)
}

fn run_as(args: &ExchangeArgs, ranks: &Ranks) -> Result<(), CliError> {
    let Some(transport) = ranks.transport() else {
        return Err(CliError::usage("this needs several ranks").hint("start it with mpirun -n 2"));
    };
    let failed = |reason: String| CliError::new(format!("the ranks cannot exchange: {reason}"));
    let mut measured = Vec::new();
    for &mib in &args.mib {
        let mut values = vec![1.0_f32; (mib << 20) / 4];
        let mut rounds = Vec::new();
        for round in 0..=args.rounds.max(1) {
            transport.all_gather_bytes(&[]).map_err(failed)?;
            let found = exchange(&*transport, &mut values).map_err(failed)?;
            if round > 0 {
                rounds.push(found);
            }
            values.fill(1.0);
        }
        rounds.sort_unstable_by(|a, b| a.seconds.total_cmp(&b.seconds));
        measured.push(rounds[rounds.len() / 2]);
    }
    if !ranks.rank().is_zero() {
        return Ok(());
    }
    let line = serde_json::json!({
        "ranks": ranks.rank().world_size(),
        "bucket": 4 * BUCKET,
        "exchanges": measured,
    });
    emberlm_cli::shared::print_json(&line)
}

/// Replaces `values` with their sums over all ranks, as training does.
fn exchange(transport: &dyn Transport, values: &mut [f32]) -> Result<Measured, String> {
    let ranks = transport.rank().world_size();
    let bytes = size_of_val(values);
    let (mut whole, mut received, mut sums) = (Vec::new(), Vec::new(), Vec::new());
    let mut transfer = 0.0;
    let begun = Instant::now();
    for bucket in values.chunks_mut(BUCKET) {
        let slice = bucket.len().div_ceil(ranks);
        whole.resize(slice * ranks, 0.0);
        received.resize(slice * ranks, 0.0);
        sums.resize(slice, 0.0);
        whole[..bucket.len()].copy_from_slice(bucket);
        let sent = Instant::now();
        transport.all_to_all(&whole, &mut received)?;
        transfer += sent.elapsed().as_secs_f64();
        sums.copy_from_slice(&received[..slice]);
        for of_rank in received[slice..].chunks_exact(slice) {
            for (sum, value) in sums.iter_mut().zip(of_rank) {
                *sum += value;
            }
        }
        let sent = Instant::now();
        transport.all_gather(&sums, &mut whole)?;
        transfer += sent.elapsed().as_secs_f64();
        bucket.copy_from_slice(&whole[..bucket.len()]);
    }
    let seconds = begun.elapsed().as_secs_f64();
    if values.iter().any(|&sum| sum != ranks as f32) {
        return Err("a sum is wrong".to_owned());
    }
    Ok(Measured {
        bytes,
        seconds,
        transfer,
    })
}

//! `emberlm-bench exchange`: the time in which ranks sum gradients of given sizes and gather as many parameters, as in a
//! training step. `cargo xtask bench ranks` runs it.

use std::time::Instant;

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Tensor, TensorMetadata, TensorPrimitive};
use clap::Args;
use emberlm_cli::shared::{BackendArg, CliError, Job, Ranks};
use emberlm_kernels::TrainingBackend;
use emberlm_trainer::{Divided, OrderedPeers, Peers, PeersError, Piece, Transport};
use serde::Serialize;

use crate::link::Link;

/// The elements of a vector, which is exchanged as a whole: 16 MiB.
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
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
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
    let backend = args.backend.choose()?;
    let Some(transport) = ranks.transport() else {
        return Err(CliError::usage("this needs several ranks")
            .hint("start it with mpirun -n 2, or with the variables of torchrun"));
    };
    let link = Link::new(transport, None);
    let measured = backend.run(Exchanges { args, link })?;
    let measured =
        measured.map_err(|reason| CliError::new(format!("the ranks cannot exchange: {reason}")))?;
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

struct Exchanges<'a> {
    args: &'a ExchangeArgs,
    link: Link,
}

impl Job for Exchanges<'_> {
    type Output = Result<Vec<Measured>, String>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let sizes = self.args.mib.iter();
        let measured = sizes.map(|mib| self.median::<B>(mib << 18, &device));
        measured.collect()
    }
}

impl Exchanges<'_> {
    /// The round with the median time.
    fn median<B: AutodiffBackend>(
        &self,
        elements: usize,
        device: &Device<B>,
    ) -> Result<Measured, String> {
        let lengths = (0..elements)
            .step_by(BUCKET)
            .map(|at| BUCKET.min(elements - at));
        let ones = lengths.map(|length| {
            let ones = Tensor::<B::InnerBackend, 1>::ones([length], device);
            ones.into_primitive().tensor()
        });
        let mut vectors: Vec<FloatTensor<B::InnerBackend>> = ones.collect();
        let mut rounds = Vec::new();
        for round in 0..=self.args.rounds.max(1) {
            self.link.all_gather_bytes(&[])?;
            self.link.take_spent();
            let begun = Instant::now();
            vectors = self.exchange::<B::InnerBackend>(vectors, device)?;
            let seconds = begun.elapsed().as_secs_f64();
            if round > 0 {
                rounds.push(Measured {
                    bytes: 4 * elements,
                    seconds,
                    transfer: self.link.take_spent().as_secs_f64(),
                });
            }
        }
        // Every exchange multiplies the ones by the number of ranks.
        let expected = (self.link.rank().world_size() as f32).powi(rounds.len() as i32 + 1);
        for vector in vectors {
            let vector =
                Tensor::<B::InnerBackend, 1>::from_primitive(TensorPrimitive::Float(vector));
            if vector.into_data().iter::<f32>().any(|sum| sum != expected) {
                return Err("a sum is wrong".to_owned());
            }
        }
        rounds.sort_unstable_by(|a, b| a.seconds.total_cmp(&b.seconds));
        Ok(rounds[rounds.len() / 2])
    }

    /// Replaces vectors with their sums over all ranks, in the way of a training step.
    fn exchange<B: Backend>(
        &self,
        vectors: Vec<FloatTensor<B>>,
        device: &Device<B>,
    ) -> Result<Vec<FloatTensor<B>>, String> {
        let peers = OrderedPeers::new(self.link.clone());
        let peers: &dyn Peers<B> = &peers;
        let exchanged = vectors.into_iter().map(|value| {
            let pieces = equal_pieces(peers.rank().world_size(), value.shape().num_elements());
            let whole = Divided {
                value,
                pieces: pieces.clone(),
            };
            let value = peers.reduce_scatter(vec![whole])?.pop();
            peers.all_gather(vec![Divided { value, pieces }], device)
        });
        let exchanged: Result<Vec<_>, PeersError> = exchanged.collect();
        let exchanged = exchanged.map_err(|error| error.to_string())?;
        Ok(exchanged.into_iter().flatten().collect())
    }
}

/// A piece of each rank, of equal lengths within one element.
fn equal_pieces(ranks: usize, length: usize) -> Vec<Piece> {
    let boundary = |owner: usize| length * owner / ranks;
    let pieces = (0..ranks).map(|owner| Piece {
        owner,
        elements: boundary(owner)..boundary(owner + 1),
    });
    pieces.filter(|piece| !piece.elements.is_empty()).collect()
}

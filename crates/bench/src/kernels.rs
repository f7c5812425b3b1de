//! `emberlm-bench kernels`: measures each operation of a backend interleaved with its reference implementation.
//! `cargo xtask bench kernels` runs it.

// The speed tests bound the ratios of the same operations.
#[path = "../../kernels/tests/speed/operations/mod.rs"]
mod operations;

use std::time::Duration;

use burn::tensor::Device;
use clap::Args;
use emberlm_cli::shared::{BackendArg, CliError, Job, print_json};
use emberlm_kernels::{Activation, Backend, RotaryLayout, TrainingBackend};
use emberlm_system::measure::{Comparison, Metric, Ratio, Sample, Unit};

use self::operations::{Attention, Operation};

/// The approximate duration of a measurement. An operation is repeated to fill it.
const LEAST: Duration = Duration::from_millis(5);

/// Arguments of `kernels`.
#[derive(Debug, Args)]
pub struct KernelsArgs {
    /// Only workloads and operations whose WORKLOAD/OPERATION contains NAME, such as pocket/ or linear_backward
    #[arg(long, value_name = "NAME", default_value = "")]
    pub only: String,
    /// Measurements of each operation
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub rounds: usize,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Runs the command and prints the comparisons as JSON.
///
/// # Errors
/// The backend does not exist, or no operation matches the name.
pub fn run(args: KernelsArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let (only, rounds) = (args.only.clone(), args.rounds.max(1));
    let comparisons = backend.run(Bench { only, rounds })?;
    if comparisons.is_empty() {
        let only = &args.only;
        return Err(CliError::usage(format!("no operation has `{only}` in it"))
            .hint("run it without --only: it lists them all"));
    }
    print_json(&serde_json::json!({ "comparisons": comparisons }))
}

struct Bench {
    only: String,
    rounds: usize,
}

impl Job for Bench {
    type Output = Vec<Comparison>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        // Training steps also run here.
        B::InnerBackend::run(|| {
            let named = WORKLOADS.iter().flat_map(|workload| {
                let operations = workload.operations::<B::InnerBackend>();
                operations
                    .into_iter()
                    .map(|it| (format!("{}/{}", workload.name, it.name), it))
            });
            let chosen = named.filter(|(name, _)| name.contains(&self.only));
            chosen
                .map(|(name, it)| compare(name, it, self.rounds, &device))
                .collect()
        })
    }
}

fn compare<B: Backend>(
    name: String,
    operation: Operation<B>,
    rounds: usize,
    device: &Device<B>,
) -> Comparison {
    let mut comparison = Comparison::new(name, Ratio::FirstToOther);
    let (work, programs) = (operation.work, ["emberlm", operation.against]);
    let mut stopwatches = operation.stopwatches(LEAST, device);
    for _ in 0..rounds {
        for (program, stopwatch) in programs.iter().zip(&mut stopwatches) {
            let seconds = stopwatch.seconds();
            let (unit, rate) = work.per_second(seconds);
            let values = vec![
                (Metric::new("", Unit::Milliseconds), seconds),
                (Metric::new("", unit), rate),
            ];
            let version = None;
            comparison.add(program, Sample { version, values });
        }
    }
    comparison
}

/// The sizes of a model and of a step of its training.
struct Workload {
    name: &'static str,
    attention: Attention,
    /// Width of the feed-forward block.
    hidden: usize,
    /// Size of the vocabulary.
    vocab: usize,
}

/// nanoGPT's character model, PocketTransformer, GPT-2, and a small model with long sequences.
const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "char",
        attention: Attention {
            batch: 12,
            seq: 64,
            heads: 4,
            kv_heads: 4,
            head_dim: 32,
        },
        hidden: 512,
        vocab: 65,
    },
    Workload {
        name: "pocket",
        attention: Attention {
            batch: 4,
            seq: 256,
            heads: 6,
            kv_heads: 2,
            head_dim: 64,
        },
        hidden: 1536,
        vocab: 50257,
    },
    Workload {
        name: "gpt2-small",
        attention: Attention {
            batch: 4,
            seq: 64,
            heads: 12,
            kv_heads: 12,
            head_dim: 64,
        },
        hidden: 3072,
        vocab: 50257,
    },
    Workload {
        name: "long",
        attention: Attention {
            batch: 1,
            seq: 2048,
            heads: 4,
            kv_heads: 4,
            head_dim: 64,
        },
        hidden: 1024,
        vocab: 256,
    },
];

impl Workload {
    fn operations<B: Backend>(&self) -> Vec<Operation<B>> {
        let Self {
            attention,
            hidden,
            vocab,
            ..
        } = *self;
        let Attention {
            batch,
            seq,
            heads,
            head_dim,
            ..
        } = attention;
        let (tokens, width) = (batch * seq, heads * head_dim);
        // The first linear layer of the feed-forward block, and the second one.
        let (up, down) = ([tokens, width, hidden], [tokens, hidden, width]);
        let (rows, inner) = ([tokens, width], [tokens, hidden]);
        let (head, matrix) = ([tokens, width, vocab], [width, hidden]);
        let (table, ids) = ([vocab, width], [batch, seq]);
        vec![
            operations::linear(up),
            operations::linear_residual(down),
            operations::linear_bf16(up),
            operations::linear_backward(up),
            operations::linear_backward_bf16(up),
            operations::self_attention(attention),
            operations::self_attention_bf16(attention),
            operations::self_attention_backward(attention),
            operations::self_attention_backward_bf16(attention),
            operations::attention_decode(attention),
            operations::head_loss(head),
            operations::head_loss_gradients(head),
            operations::normalize(rows),
            operations::normalize_backward(rows),
            operations::activation(Activation::Gelu, inner),
            operations::activation_and_backward(Activation::Gelu, inner),
            operations::gated(inner),
            operations::gated_backward(inner),
            operations::rotary(RotaryLayout::HalfSplit, [batch, heads, seq, head_dim]),
            operations::embedding(table, ids),
            operations::embedding_backward(table, ids),
            operations::adamw(matrix),
            operations::sum_of_squares(matrix),
            operations::scaled(matrix),
        ]
    }
}

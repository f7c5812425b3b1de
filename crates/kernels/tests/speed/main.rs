//! Tests that each operation that flex overrides takes much less time than the reference implementation, with
//! interleaved measurements. They catch operations that fall back to the reference implementation, and loops that
//! are no longer vectorized.
//!
//! The bounds are far above the measured ratios, and busy machines get several attempts; see [`assert_within`].

#![allow(clippy::print_stdout, clippy::print_stderr)]
#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

// emberlm-bench measures the others.
#[allow(dead_code)]
mod operations;

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use burn::tensor::ops::FloatTensorOps;
use burn_flex::Flex;
use emberlm_kernels::{Activation, Backend, LinearInputs, Precision, RotaryLayout, cpu, reference};
use rayon::ThreadPoolBuilder;

use self::operations::{Attention, Operation, Random, Work};

/// The number of sequences, and of tokens per sequence.
const BATCH: usize = 4;
const SEQ: usize = 192;
const TOKENS: usize = BATCH * SEQ;
const WIDTH: usize = 256;
const HIDDEN: usize = 1024;
const VOCAB: usize = 4096;
const ATTENTION: Attention = Attention {
    batch: BATCH,
    seq: SEQ,
    heads: 8,
    kv_heads: 4,
    head_dim: 32,
};
/// A narrow head, so that the exponentials are a large part of the work.
const HEAD: [usize; 3] = [SEQ, WIDTH / 4, VOCAB];

/// Sizes of linear layers with so few inputs that bias and residual are half of the work, which exposes separate
/// additions.
const SHALLOW: [usize; 3] = [8 * TOKENS, 16, WIDTH];

const F32: Precision = Precision::F32;

/// The number of pairs of measurements per attempt.
const PAIRS: usize = 8;
/// The number of attempts before the test fails, and the time between them. Together they outlast temporary
/// memory contention.
const TRIES: usize = 80;
const PAUSE: Duration = Duration::from_millis(100);
/// The minimum time of a measurement, reached by repeating the operation.
const LEAST: Duration = Duration::from_millis(1);

/// True on CPUs of AMD, on which the bounds were measured.
fn is_amd() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("AuthenticAMD"))
}

/// Asserts that an operation takes at most `most` times the time of the other implementation. It compares the minima of
/// interleaved measurements, since other processes only make measurements longer, and adds measurements while the ratio is
/// too high.
fn assert_within(most: f64, operation: Operation<Flex>) {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    let _guard = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let (name, against, work) = (operation.name, operation.against, operation.work);
    // A single thread: with several, the measurement would include waiting for busy cores.
    let pool = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let mut stopwatches = pool.install(|| operation.stopwatches(LEAST, &Default::default()));
    let [ours, other] = pool.install(move || {
        let mut least = [f64::INFINITY; 2];
        for _ in 0..TRIES {
            for _ in 0..PAIRS {
                for (least, stopwatch) in least.iter_mut().zip(&mut stopwatches) {
                    *least = least.min(stopwatch.seconds());
                }
            }
            if least[0] / least[1] <= most {
                break;
            }
            thread::sleep(PAUSE);
        }
        least
    });
    let ratio = ours / other;
    let (unit, rate) = work.per_second(ours);
    let shown = format!("{name}: {ratio:.3} of the time of {against}");
    eprintln!("{shown}, at most {most}; {}", unit.shown(rate));
    assert!(ratio <= most, "{shown}, not {most}");
}

#[test]
fn normalize() {
    assert_within(0.85, operations::normalize([TOKENS, WIDTH]));
}

#[test]
fn normalize_backward() {
    assert_within(0.7, operations::normalize_backward([TOKENS, WIDTH]));
}

#[test]
fn activation() {
    for (kind, alone, with_backward) in [
        (Activation::Gelu, 0.8, 0.5),
        (Activation::GeluTanh, 0.45, 0.45),
        (Activation::Silu, 0.45, 0.45),
    ] {
        let shape = [TOKENS, HIDDEN];
        assert_within(alone, operations::activation(kind, shape));
        let both = operations::activation_and_backward(kind, shape);
        assert_within(with_backward, both);
    }
}

#[test]
fn gated() {
    assert_within(0.3, operations::gated([TOKENS, HIDDEN]));
}

#[test]
fn gated_backward() {
    assert_within(0.3, operations::gated_backward([TOKENS, HIDDEN]));
}

#[test]
fn adamw() {
    assert_within(0.6, operations::adamw([HIDDEN, WIDTH]));
}

#[test]
fn sum_of_squares() {
    assert_within(0.85, operations::sum_of_squares([WIDTH, WIDTH]));
}

/// Burn's own lookup is a plain copy too, so this only tests that ours is not slower.
#[test]
fn embedding() {
    assert_within(1.25, operations::embedding([VOCAB, WIDTH], [BATCH, SEQ]));
}

/// A table's gradient that is added to the one so far, as in training.
#[test]
fn embedding_backward() {
    let inputs = |random: &Random<Flex>| {
        let [first, second, table] = [(); 3].map(|()| random.floats([VOCAB, WIDTH]));
        let grad = random.floats([BATCH, SEQ, WIDTH]);
        let ids = random.ids([BATCH, SEQ], VOCAB);
        ([first, second], (table, ids, grad))
    };
    let operation = Operation::in_place(
        "embedding_backward, added",
        Work::numbers(VOCAB * WIDTH),
        inputs,
        |added, (table, ids, grad)| {
            <Flex as Backend>::embedding_backward(table, ids, grad, Some(added))
        },
        |added, (table, ids, grad)| {
            reference::embedding_backward::<Flex>(table, ids, grad, Some(added))
        },
    );
    assert_within(0.6, operation);
}

#[test]
fn scaled() {
    // On a Xeon both are equally fast: the caches are the limit.
    let most = if is_amd() { 0.9 } else { 1.1 };
    assert_within(most, operations::scaled([WIDTH, WIDTH]));
}

#[test]
fn rotary() {
    let Attention {
        heads, head_dim, ..
    } = ATTENTION;
    for layout in [RotaryLayout::HalfSplit, RotaryLayout::Interleaved] {
        let shape = [BATCH, heads, SEQ, head_dim];
        assert_within(0.1, operations::rotary(layout, shape));
    }
}

/// The inputs of a layer without a bias.
fn plain(random: &Random<Flex>, [rows, inputs, outputs]: [usize; 3]) -> LinearInputs<Flex> {
    LinearInputs {
        x: random.floats([rows, inputs]),
        weight: random.floats([inputs, outputs]),
        bias: None,
        residual: None,
    }
}

/// A layer whose residual is updated in place, as in training.
#[test]
fn linear() {
    let inputs = |random: &Random<Flex>| {
        let held = [(); 2].map(|()| random.floats([SHALLOW[0], SHALLOW[2]]));
        let inputs = LinearInputs {
            bias: Some(random.floats([SHALLOW[2]])),
            ..plain(random, SHALLOW)
        };
        (held, inputs)
    };
    let with = |inputs: LinearInputs<Flex>, residual| LinearInputs {
        residual: Some(residual),
        ..inputs
    };
    let operation = Operation::in_place(
        "linear, shallow",
        Work::Flops(2.0 * SHALLOW.iter().product::<usize>() as f64),
        inputs,
        move |residual, inputs| <Flex as Backend>::linear(with(inputs, residual), F32),
        move |residual, inputs| reference::linear::<Flex>(with(inputs, residual), F32),
    );
    assert_within(0.8, operation);
}

/// The gradients of a shallow layer's inputs and bias. That of the weight is a plain product, which takes equally long in
/// both.
#[test]
fn linear_backward() {
    let [rows, outputs, inputs] = SHALLOW;
    let wanted = [true, false, true];
    let made = move |random: &Random<Flex>| {
        let [first, second, x] = [(); 3].map(|()| random.floats([rows, inputs]));
        let weight = Flex::float_transpose(random.floats([outputs, inputs]));
        let grad = random.floats([rows, outputs]);
        ([first, second], (x, weight, grad))
    };
    let operation = Operation::in_place(
        "linear_backward, shallow",
        Work::Flops(2.0 * SHALLOW.iter().product::<usize>() as f64),
        made,
        move |added, (x, weight, grad)| {
            let made = Flex::linear_backward(x, weight, grad, Some(added), wanted, F32);
            made.x.unwrap()
        },
        move |added, (x, weight, grad)| {
            let added = Some(added);
            let made = reference::linear_backward::<Flex>(x, weight, grad, added, wanted, F32);
            made.x.unwrap()
        },
    );
    assert_within(0.85, operation);
}

/// Products are not slower than Burn's own, which use the same crate.
#[test]
fn linear_is_as_fast_as_burn() {
    for size in [[TOKENS, WIDTH, HIDDEN], [TOKENS, HIDDEN, WIDTH]] {
        let operation = Operation::new(
            "linear, plain",
            Work::Flops(2.0 * size.iter().product::<usize>() as f64),
            move |random| plain(random, size),
            |inputs| <Flex as Backend>::linear(inputs, F32),
            |inputs| Flex::float_matmul(inputs.x, inputs.weight),
        );
        assert_within(1.0 / 0.8, operation.against("Burn"));
    }
}

/// A head's logits for several sequences, as in serving, without packing its weight.
#[test]
fn logits_of_several_rows() {
    let inputs = |random: &Random<Flex>| LinearInputs {
        x: random.floats([16, WIDTH]),
        weight: Flex::float_transpose(random.floats([VOCAB, WIDTH])),
        bias: None,
        residual: None,
    };
    let operation = Operation::new(
        "logits",
        Work::numbers(VOCAB * WIDTH),
        inputs,
        |inputs| <Flex as Backend>::linear(inputs, F32),
        |inputs| reference::linear::<Flex>(inputs, F32),
    );
    assert_within(0.7, operation);
}

#[test]
fn linear_in_bf16() {
    if !cpu::bf16::supported() {
        return;
    }
    assert_within(0.75, operations::linear_bf16([TOKENS, HIDDEN, HIDDEN]));
}

#[test]
fn self_attention() {
    assert_within(0.4, operations::self_attention(ATTENTION));
}

#[test]
fn self_attention_backward() {
    assert_within(0.6, operations::self_attention_backward(ATTENTION));
}

/// A single query over many keys, as in generation.
#[test]
fn attention_of_one_query() {
    let size = Attention {
        seq: 4 * SEQ,
        kv_heads: ATTENTION.heads,
        ..ATTENTION
    };
    assert_within(0.85, operations::attention_decode(size));
}

#[test]
fn head_loss() {
    assert_within(0.7, operations::head_loss(HEAD));
}

#[test]
fn head_loss_gradients() {
    assert_within(0.85, operations::head_loss_gradients(HEAD));
}

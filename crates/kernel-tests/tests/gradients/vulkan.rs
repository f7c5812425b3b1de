//! Tests a few shapes of each operation on a Vulkan device, possibly a software device. Only a few, because the
//! device compiles all kernels again.

use burn::tensor::{DType, Tensor};
use burn_flex::Flex;
use emberlm_kernels::{
    Activation, AdamWInputs, AdamWStep, AttentionKernels, AttentionMask, Backend, HeadLossOptions,
    Precision, ops, reference,
};

use crate::{
    activations, attention_case, attention_dropout, attention_options, attention_tiles,
    blocked_attention, cache,
    compare::{self, Reference},
    elementwise, head_loss, precision, pytorch, table_parts,
};

/// The Vulkan backend with its default types, which differ from those of WebGPU.
type Vulkan = burn::backend::Vulkan;

#[test]
fn activations_match_pytorch() {
    activations::check::<Vulkan>(&Default::default());
}

/// Bias, residual and activation are part of the kernel for a few rows, and separate operations for more.
#[test]
fn linear_layers_of_few_rows_match_flex() {
    for (rows, kind) in [1, 2, 3, 8, 9, 4].into_iter().zip(Activation::ALL) {
        let what = format!("{rows} rows, {kind:?}");
        let actual = linear_layers::<Vulkan>(rows, kind);
        compare::assert_all_close(&what, &actual, &linear_layers::<Flex>(rows, kind));
    }
}

/// A linear layer with an activation, one with a gate, and one with a residual, with and without bias; also over a transposed
/// weight.
fn linear_layers<B: Backend>(rows: usize, kind: Activation) -> Vec<Vec<f32>> {
    let tensor = |seed: u64, shape: [usize; 2]| -> Tensor<B, 2> {
        compare::constant(&compare::numbers(seed, shape))
    };
    let (x, weight) = (tensor(1, [rows, 70]), tensor(2, [70, 33]));
    let bias = || compare::constant::<B, 1>(&compare::numbers(3, [33]));
    let transposed = tensor(4, [33, 70]).transpose();
    let residual = || Some(tensor(5, [rows, 33]));
    let wide = Precision::F32;
    let gate = tensor(6, [70, 33]);
    let outputs = [
        ops::gated_linear(
            kind,
            x.clone(),
            (gate.clone(), Some(bias())),
            (weight.clone(), None),
            wide,
        ),
        ops::gated_linear(
            kind,
            x.clone(),
            (gate, None),
            (transposed.clone(), Some(bias())),
            wide,
        ),
        ops::linear_activation(kind, x.clone(), weight.clone(), Some(bias()), wide),
        ops::linear_activation(kind, x.clone(), transposed.clone(), None, wide),
        ops::linear(x.clone(), weight, Some(bias()), residual(), wide),
        ops::linear(x, transposed, None, residual(), wide),
    ];
    outputs.map(compare::host).into()
}

/// More than a launch takes, of different sizes and hyperparameters.
#[test]
fn parameters_updated_together_match_flex() {
    let actual = updated_together::<Vulkan>();
    compare::assert_all_close("adamw", &actual, &updated_together::<Flex>());
}

fn updated_together<B: Backend>() -> Vec<Vec<f32>> {
    let number = |seed: usize, length: usize| -> Tensor<B, 1> {
        compare::constant(&compare::numbers(seed as u64, [length]))
    };
    let inputs = (0..40).map(|n| {
        let of = |seed| number(4 * n + seed, 1 + 37 * n);
        let second = of(3).powi_scalar(2);
        AdamWInputs {
            parameter: compare::primitive(of(0)),
            grad: compare::primitive(of(1)),
            moments: (compare::primitive(of(2)), compare::primitive(second)),
            step: AdamWStep {
                rate: 0.01,
                beta1: 0.9,
                beta2: 0.95,
                epsilon: 1e-8,
                decay: if n % 3 == 0 { 0.1 } else { 0.0 },
                cautious: false,
                step: 3,
            },
        }
    });
    let factor = Tensor::from_data([0.3_f32], &Default::default());
    let updated = ops::adamw_all::<B>(inputs.collect(), Some(factor));
    let all = updated.into_iter().flat_map(|(p, m, v)| [p, m, v]);
    all.map(|of| compare::host(compare::typed::<B, 1>(of)))
        .collect()
}

#[test]
fn head_loss_matches_pytorch() {
    pytorch::check::<Vulkan>(&Default::default());
}

/// One row and many, narrow rows and rows wider than a cube.
#[test]
fn normalization_matches_reference() {
    for (n, (shape, parts)) in [
        ([1, 7], [true, true, true]),
        ([300, 1], [true, false, false]),
        ([1, 1000], [false, false, true]),
        ([300, 130], [true, true, false]),
        ([700, 33], [true, false, true]),
        ([5, 1000], [false, true, true]),
        ([2, 16_384], [true, true, true]),
    ]
    .into_iter()
    .enumerate()
    {
        let wide = shape[1] > 1000;
        for kind in elementwise::NORMS
            .into_iter()
            .take(if wide { 1 } else { 3 })
        {
            elementwise::normalization::<Vulkan>(kind, shape, parts, n as u64);
        }
    }
}

#[test]
fn normalization_of_a_view_matches_reference_in_every_run() {
    let kind = elementwise::NORMS[0];
    let inputs = [
        compare::numbers(1, [130, 300]),
        compare::numbers(2, [1, 130]),
    ];
    compare::assert_same::<Vulkan, _, 2, _>(
        "transposed rows",
        &inputs,
        |[x, gain]| ops::normalize(kind, x.transpose(), Some(gain.squeeze_dim(0)), None),
        |[x, gain]| {
            let [x, gain] = [x.transpose(), gain].map(compare::primitive);
            let gain = compare::primitive(compare::typed::<Reference, 2>(gain).squeeze_dim::<1>(0));
            compare::typed(reference::normalize::<Reference>(kind, x, Some(gain), None))
        },
    );
    compare::assert_repeatable::<Vulkan, _, 2, _>("normalization", &inputs, |[x, gain]| {
        let gain = gain.squeeze_dim::<1>(0);
        ops::normalize(kind, x.transpose(), Some(gain.clone()), Some(gain))
    });
}

/// Inputs and outputs in f16, whose sums are in f32.
#[test]
fn normalization_in_f16_matches_reference() {
    fn of<B: Backend>(kind: DType) -> Vec<Vec<f32>> {
        let rounded = |seed, rows| {
            let data = compare::numbers(seed, [rows, 130]);
            compare::constant::<B, 2>(&data).cast(DType::F16).cast(kind)
        };
        let row = |seed| compare::primitive(rounded(seed, 1).squeeze_dim::<1>(0));
        let rows = |seed| compare::primitive(rounded(seed, 40));
        let (x, gain, norm) = (rows(1), row(2), elementwise::NORMS[0]);
        let y = B::normalize(norm, x.clone(), Some(gain.clone()), Some(row(3)));
        let made = B::normalize_backward(norm, x, Some(gain), true, rows(4), Some(rows(5)));
        let sums = [made.gain, made.bias].map(|sums| compare::typed::<B, 1>(sums.unwrap()));
        [y, made.x]
            .map(|of| compare::host(compare::typed::<B, 2>(of)))
            .into_iter()
            .chain(sums.map(compare::host))
            .collect()
    }
    compare::assert_all_within(
        1e-3,
        "normalization in f16",
        &of::<Vulkan>(DType::F16),
        &of::<Flex>(DType::F32),
    );
}

/// The gradient of the bias is a sum over rows, of one range and of several.
#[test]
fn linear_matches_reference() {
    elementwise::linear::<Vulkan>([1, 7, 33], [true, true], 1);
    elementwise::linear::<Vulkan>([700, 7, 130], [true, false], 2);
    let inputs = [compare::numbers(1, [300, 33]), compare::numbers(2, [33, 7])];
    compare::assert_repeatable::<Vulkan, _, 2, _>("linear", &inputs, |[x, weight]| {
        let bias = weight.clone().narrow(0, 0, 1).squeeze_dim(0);
        ops::linear(x, weight, Some(bias), None, Precision::F32)
    });
}

/// Repeated ids, and rows of the table without any.
#[test]
fn embedding_gradient_matches_flex() {
    elementwise::embedding_gradient::<Vulkan>([1, 1, 1], 1);
    elementwise::embedding_gradient::<Vulkan>([700, 5, 130], 2);
    elementwise::embedding_gradient::<Vulkan>([300, 1000, 7], 3);
    elementwise::embedding::<Vulkan>([2, 70, 9, 300], 4);
}

#[test]
fn adamw_matches_reference() {
    elementwise::adamw::<Vulkan>([1, 1], [false, true], 1);
    elementwise::adamw::<Vulkan>([300, 7], [true, false], 2);
}

#[test]
fn sums_of_squares_match_plain_sums() {
    elementwise::sum_of_squares::<Vulkan>([1, 7], 1);
    elementwise::sum_of_squares::<Vulkan>([3, 5000], 2);
}

/// Vocabularies that are not multiples of 64, more rows than a block has, and weights that are not trained or in parts.
#[test]
fn head_loss_matches_the_reference() {
    let options = |label_smoothing, z_loss, soft_cap| HeadLossOptions {
        label_smoothing,
        z_loss,
        soft_cap,
    };
    let (plain, all) = (options(0.0, 0.0, 0.0), options(0.1, 0.05, 3.0));
    head_loss::head_loss::<Vulkan>([7, 5, 5], plain, 1);
    head_loss::head_loss::<Vulkan>([12, 9, 67], options(0.1, 0.0, 0.0), 2);
    head_loss::head_loss::<Vulkan>([1, 32, 64], options(0.0, 0.05, 0.0), 3);
    head_loss::head_loss::<Vulkan>([33, 24, 130], options(0.0, 0.0, 3.0), 4);
    head_loss::head_loss::<Vulkan>([70, 33, 3000], all, 5);
    head_loss::head_loss::<Vulkan>([65_600, 3, 5], all, 6);
    head_loss::head_losses::<Vulkan>([9, 5, 67], plain, 7);
    head_loss::head_losses::<Vulkan>([33, 8, 1000], all, 8);
    head_loss::untrained_weight::<Vulkan>([9, 5, 67], all, 9);
    head_loss::all_ignored::<Vulkan>([3, 4, 5], all, 10);
    head_loss::same_again::<Vulkan>([33, 24, 130], all, 11);
    head_loss::nan_stays_in_its_row::<Vulkan>();
    table_parts::head_loss_in_parts::<Vulkan>(5, 6, vec![4, 7, 3], all, 12);
}

#[test]
fn blocked_attention_matches_unblocked() {
    use blocked_attention::{far_windows, fused, matches_unblocked};

    matches_unblocked::<Vulkan>([2, 2, 2, 70, 0, 8], [0, 0], false, [[2, 32], [1, 64]], 1);
    matches_unblocked::<Vulkan>([2, 2, 1, 70, 9, 8], [5, 2], true, [[1, 32], [2, 48]], 2);
    far_windows::<Vulkan>(20, 0, 48, 3);
    fused::<Vulkan>([2, 2, 2, 70, 4], [2, 32], true, 4);
}

#[test]
fn attention_with_soft_cap_bias_and_padding() {
    use attention_case::DrawnOptions;
    use attention_options::{matches_loops, matches_reference};

    for (sizes, limits, on) in [
        // Cross-attention.
        (
            [2, 1, 2, 70, 9, 8],
            [0, 0],
            [true, false, true, true, false],
        ),
        (
            [2, 2, 2, 40, 70, 8],
            [9, 2],
            [true, true, false, false, true],
        ),
        // A window in both directions.
        (
            [2, 2, 1, 40, 70, 8],
            [2, 5],
            [false, false, true, false, true],
        ),
    ] {
        let drawn = DrawnOptions {
            sizes,
            limits,
            on,
            seed: 3,
        };
        matches_reference::<Vulkan>(drawn);
        matches_loops::<Vulkan>(drawn);
    }
}

#[test]
fn state_is_linear_in_the_sequence() {
    let _drawing = compare::random_state();
    type InTiles = <Vulkan as Backend>::Attention;
    let kept = blocked_attention::state_len::<Vulkan>;
    let separate = |q_len| {
        let case = blocked_attention::dropout_case(q_len);
        let [q, k, v] = blocked_attention::inputs::<Vulkan>(&case);
        let mask = case.mask::<Vulkan>();
        kept(
            InTiles::attention_training(q, k, v, mask, case.options)
                .1
                .into_reference(),
        )
    };
    assert_eq!(separate(96), 2 * separate(48));
    let config = compare::fused(4, 2, 8);
    let fused = |seq| {
        let qkv = compare::numbers(1, [2, seq, 64]);
        let qkv = compare::primitive(compare::constant::<Vulkan, 3>(&qkv));
        let state = InTiles::self_attention_training(qkv, None, AttentionMask::default(), config).1;
        kept(state.into_reference())
    };
    assert_eq!(fused(96), 2 * fused(48));
}

#[test]
fn vulkan_dropout_matches_flex() {
    blocked_attention::dropout_matches_flex::<Vulkan>();
}

#[test]
fn tiled_attention_matches_reference() {
    use attention_tiles::{case, matches_reference};

    for case in [
        case(
            [2, 2, 2, 130, 130, 64],
            [1, 0],
            [false, true, false, false, true],
            0.3,
        ),
        // Windows with hidden tiles of keys before them, and after the global tokens.
        case(
            [1, 1, 2, 290, 330, 80],
            [50, 3],
            [true, false, true, true, true],
            0.0,
        ),
        // Tiles of 32 rows.
        case(
            [1, 1, 1, 150, 230, 200],
            [50, 0],
            [false, false, true, false, false],
            0.2,
        ),
        // A window in both directions.
        case([1, 2, 1, 33, 250, 24], [2, 70], [false; 5], 0.0),
        case([2, 1, 2, 1, 1, 24], [1, 0], [false; 5], 0.0),
    ] {
        matches_reference::<Vulkan>(case, |state| state.into_reference());
    }
}

#[test]
fn tiled_attention_over_a_fused_projection() {
    use emberlm_kernels::RotaryLayout::{HalfSplit, Interleaved};

    attention_tiles::fused::<Vulkan>([2, 1, 2, 67, 24], 12, HalfSplit);
    attention_tiles::fused::<Vulkan>([2, 2, 2, 9, 24], 5, Interleaved);
    attention_tiles::fused::<Vulkan>([1, 2, 1, 67, 24], 0, HalfSplit);
}

#[test]
fn attention_appends_to_a_cache() {
    use emberlm_kernels::RotaryLayout::{HalfSplit, Interleaved};
    cache::appended::<Vulkan>([2, 2, 2, 24], 12, HalfSplit, &[5, 1, 1, 9]);
    cache::appended::<Vulkan>([1, 1, 3, 16], 4, Interleaved, &[1, 70]);
    cache::appended::<Vulkan>([2, 2, 1, 8], 0, HalfSplit, &[3, 1]);
}

#[test]
fn few_queries_share_the_keys() {
    attention_tiles::decoding::<Vulkan>(1, false, [1, 0]);
    attention_tiles::decoding::<Vulkan>(3, true, [1, 0]);
    attention_tiles::decoding::<Vulkan>(3, false, [700, 2]);
}

#[test]
fn tiled_attention_in_f16() {
    attention_tiles::f16_tensors::<Vulkan>();
}

#[test]
fn dropout_is_independent() {
    attention_dropout::independent::<Vulkan>(0.3);
}

/// Tests the precisions that the device supports.
#[test]
fn products_are_rounded_to_their_precision() {
    for (precision, unit) in precision::NARROW {
        match Vulkan::multiplies_in(precision, &Default::default()) {
            true => {
                precision::rounded_within_bounds::<Vulkan>(precision, unit);
                attention_tiles::products_are_rounded::<Vulkan>(precision, unit);
                let own = precision::own_head::<Vulkan>;
                precision::head_is_rounded_within_bounds::<Vulkan>(own, precision, unit);
                for head in [own, precision::reference_head::<Vulkan>] {
                    let small = precision::small_probabilities_keep_their_gradients::<Vulkan>;
                    small(head, precision, unit);
                }
            }
            false => precision::unsupported_precision_uses_f32::<Vulkan>(precision),
        }
    }
}

#[test]
fn f32_is_always_supported() {
    assert!(Vulkan::multiplies_in(Precision::F32, &Default::default()));
}

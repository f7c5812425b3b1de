//! Tests a few shapes of each operation on a Vulkan device, possibly a software device. Only a few, because the
//! device compiles all kernels again.

use burn::tensor::Tensor;
use burn_flex::Flex;
use emberlm_kernels::{Activation, AttentionKernels, AttentionMask, Backend, Precision, ops};

use crate::{
    activations, attention_case, attention_dropout, attention_options, blocked_attention, compare,
    precision, pytorch,
};

/// The Vulkan backend with its default types, which differ from those of WebGPU.
type Vulkan = burn::backend::Vulkan;

#[test]
fn activations_match_pytorch() {
    activations::check::<Vulkan>(&Default::default());
}

/// Bias, residual and activation are part of the kernel for a few rows, and operations of their own for more.
#[test]
fn linear_layers_of_few_rows_match_flex() {
    for (rows, kind) in [1, 2, 3, 8, 9].into_iter().zip(Activation::ALL) {
        let what = format!("{rows} rows, {kind:?}");
        let actual = linear_layers::<Vulkan>(rows, kind);
        compare::assert_all_close(&what, &actual, &linear_layers::<Flex>(rows, kind));
    }
}

/// A linear layer with an activation and one with a residual, with and without bias; also over a transposed weight.
fn linear_layers<B: Backend>(rows: usize, kind: Activation) -> Vec<Vec<f32>> {
    let tensor = |seed: u64, shape: [usize; 2]| -> Tensor<B, 2> {
        compare::constant(&compare::numbers(seed, shape))
    };
    let (x, weight) = (tensor(1, [rows, 70]), tensor(2, [70, 33]));
    let bias = || compare::constant::<B, 1>(&compare::numbers(3, [33]));
    let transposed = tensor(4, [33, 70]).transpose();
    let residual = || Some(tensor(5, [rows, 33]));
    let wide = Precision::F32;
    let outputs = [
        ops::linear_activation(kind, x.clone(), weight.clone(), Some(bias()), wide),
        ops::linear_activation(kind, x.clone(), transposed.clone(), None, wide),
        ops::linear(x.clone(), weight, Some(bias()), residual(), wide),
        ops::linear(x, transposed, None, residual(), wide),
    ];
    outputs.map(compare::host).into()
}

#[test]
fn head_loss_matches_pytorch() {
    pytorch::check::<Vulkan>(&Default::default());
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
        ([2, 2, 2, 7, 70, 8], [0, 0], [false, false, true, false]),
        ([2, 1, 2, 70, 9, 8], [0, 0], [true, false, true, true]),
        ([2, 2, 2, 40, 70, 8], [9, 2], [true, true, false, false]),
        ([2, 2, 1, 33, 33, 8], [1, 0], [true, true, true, true]),
        // A window in both directions.
        ([2, 2, 1, 40, 70, 8], [2, 5], [false, false, true, false]),
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
    type InBlocks = <Vulkan as Backend>::Attention;
    let kept = blocked_attention::state_len::<Vulkan>;
    let separate = |q_len| {
        let case = blocked_attention::dropout_case(q_len);
        let [q, k, v] = blocked_attention::inputs::<Vulkan>(&case);
        let mask = case.mask::<Vulkan>();
        kept(InBlocks::attention_training(q, k, v, mask, case.options).1)
    };
    assert_eq!(separate(96), 2 * separate(48));
    let config = compare::fused(4, 2, 8);
    let fused = |seq| {
        let qkv = compare::numbers(1, [2, seq, 64]);
        let qkv = compare::primitive(compare::constant::<Vulkan, 3>(&qkv));
        kept(InBlocks::self_attention_training(qkv, None, AttentionMask::default(), config).1)
    };
    assert_eq!(fused(96), 2 * fused(48));
}

#[test]
fn vulkan_dropout_matches_flex() {
    blocked_attention::dropout_matches_flex::<Vulkan>();
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
                precision::small_probabilities_keep_their_gradients::<Vulkan>(precision, unit);
            }
            false => precision::unsupported_precision_uses_f32::<Vulkan>(precision),
        }
    }
}

#[test]
fn f32_is_always_supported() {
    assert!(Vulkan::multiplies_in(Precision::F32, &Default::default()));
}

//! A few shapes of each on a Vulkan device, which may be a software one: all kernels are compiled again on the device.

use emberlm_kernels::{AttentionKernels, AttentionMask, Backend, Precision};

use crate::{
    activations, attention_dropout, attention_options, blocked_attention, compare, precision,
    pytorch,
};

/// With its default types, which are not those of WebGPU.
type Vulkan = burn::backend::Vulkan;

#[test]
fn activations_as_in_pytorch() {
    activations::check::<Vulkan>(&Default::default());
}

#[test]
fn head_loss_as_in_pytorch() {
    pytorch::check::<Vulkan>(&Default::default());
}

#[test]
fn attention_in_blocks() {
    use blocked_attention::{as_a_whole, far_windows, fused};

    as_a_whole::<Vulkan>([2, 2, 2, 70, 0, 8], [0, 0], false, [[2, 32], [1, 64]], 1);
    as_a_whole::<Vulkan>([2, 2, 1, 70, 9, 8], [5, 2], true, [[1, 32], [2, 48]], 2);
    far_windows::<Vulkan>(20, 0, 48, 3);
    fused::<Vulkan>([2, 2, 2, 70, 4], [2, 32], true, 4);
}

#[test]
fn attention_with_soft_cap_bias_and_padding() {
    use attention_options::{Drawn, as_composed, as_in_loops};

    for (sizes, limits, on) in [
        // Cross-attention.
        ([2, 2, 2, 7, 70, 8], [0, 0], [false, false, true, false]),
        ([2, 1, 2, 70, 9, 8], [0, 0], [true, false, true, true]),
        ([2, 2, 2, 40, 70, 8], [9, 2], [true, true, false, false]),
        ([2, 2, 1, 33, 33, 8], [1, 0], [true, true, true, true]),
    ] {
        let drawn = Drawn {
            sizes,
            limits,
            on,
            seed: 3,
        };
        as_composed::<Vulkan>(drawn);
        as_in_loops::<Vulkan>(drawn);
    }
}

#[test]
fn what_is_kept_is_linear_in_the_sequence() {
    type InBlocks = <Vulkan as Backend>::Attention;
    let kept = blocked_attention::kept_numbers::<Vulkan>;
    let separate = |q_len| {
        let case = blocked_attention::dropping(q_len);
        let [q, k, v] = blocked_attention::inputs::<Vulkan>(&case);
        let mask = case.mask::<Vulkan>();
        kept(InBlocks::attention_training(q, k, v, mask, case.options).1)
    };
    assert_eq!(separate(96), 2 * separate(48));
    let how = blocked_attention::how(4, 2, 8);
    let fused = |seq| {
        let qkv = compare::numbers(1, [2, seq, 64]);
        let qkv = compare::primitive(compare::constant::<Vulkan, 3>(&qkv));
        kept(InBlocks::self_attention_training(qkv, None, AttentionMask::default(), how).1)
    };
    assert_eq!(fused(96), 2 * fused(48));
}

#[test]
fn it_drops_as_flex_does() {
    blocked_attention::drops_as_flex_does::<Vulkan>();
}

#[test]
fn what_is_dropped_is_independent() {
    attention_dropout::independent::<Vulkan>(0.3);
}

/// In those precisions that the device has.
#[test]
fn products_are_rounded() {
    for (precision, unit) in precision::NARROW {
        match Vulkan::multiplies_in(precision, &Default::default()) {
            true => {
                precision::rounded_by_no_more_than_that::<Vulkan>(precision, unit);
                precision::small_probabilities_count::<Vulkan>(precision, unit);
            }
            false => precision::where_there_is_none_it_is_f32::<Vulkan>(precision),
        }
    }
}

#[test]
fn f32_is_always_there() {
    assert!(Vulkan::multiplies_in(Precision::F32, &Default::default()));
}

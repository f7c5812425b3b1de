//! Compares the model with PyTorch and `transformers` on each backend: logits, loss, every parameter's gradient, ten
//! AdamW steps and greedy continuations, for each family. `fixtures/make.py` and `make_families.py` generate the
//! fixtures.
//!
//! Linear attention, isolated documents and ragged passes have no fixtures and are compared between backends.

mod adapters;
mod additions;
pub mod checks;
#[cfg(feature = "vulkan")]
mod documents;
mod families;
pub mod fixture;
mod linear_attention;
mod optimize;
mod ragged;

/// Generates the tests of several fixtures on one backend.
macro_rules! on_backend {
    ($module:ident, $backend:ty, $device:expr, $check:ident, [$($name:ident = $fixture:literal,)*]) => {
        mod $module {
            $(
                #[test]
                fn $name() {
                    crate::parity::$check::check::<$backend>($fixture, &$device);
                }
            )*
        }
    };
}

/// Generates the tests on the CPU backends.
macro_rules! on_cpu {
    ($check:ident, [$flex:ident, $ndarray:ident], $fixtures:tt) => {
        on_backend!(
            $flex,
            burn_flex::Flex,
            Default::default(),
            $check,
            $fixtures
        );
        on_backend!(
            $ndarray,
            burn_ndarray::NdArray,
            Default::default(),
            $check,
            $fixtures
        );
    };
}

/// Generates the tests on the CPU backends and Vulkan.
macro_rules! on_all {
    ($check:ident, [$flex:ident, $ndarray:ident, $vulkan:ident], $fixtures:tt) => {
        on_cpu!($check, [$flex, $ndarray], $fixtures);
        #[cfg(feature = "vulkan")]
        on_backend!(
            $vulkan,
            burn::backend::Vulkan,
            crate::parity::vulkan_device(),
            $check,
            $fixtures
        );
    };
}

// Fixtures of reference implementations.
on_all!(
    checks,
    [flex, ndarray, vulkan],
    [
        pocket = "pocket",
        gpt2 = "gpt2",
        gpt2_without_biases = "gpt2_nobias",
        vanilla = "vanilla",
        prenorm = "prenorm",
        cs336 = "cs336",
        palm = "palm",
    ]
);

// Directories written by `transformers`, one per model type, with gradients.
on_all!(
    families,
    [flex_transformers, ndarray_transformers, vulkan_transformers],
    [
        gpt2_tied = "gpt2-tied",
        gptj_partial = "gptj-partial",
        gpt_neox_parallel = "gpt_neox-parallel",
        llama_gqa = "llama-gqa",
        mistral_window = "mistral-window",
        mixtral_top2 = "mixtral-top2",
        qwen3_moe_mixed = "qwen3_moe-mixed",
        olmoe_gqa = "olmoe-gqa",
        qwen2_moe_shared = "qwen2_moe-shared",
        qwen2_tied = "qwen2-tied",
        qwen3_tied = "qwen3-tied",
        gemma2_tied = "gemma2-tied",
        olmo2_gqa = "olmo2-gqa",
        olmo3_mixed = "olmo3-mixed",
        smollm3_tied = "smollm3-tied",
        phi3_window = "phi3-window",
        phi3_longrope = "phi3-longrope",
        granite_tied = "granite-tied",
        gemma3_text_mixed = "gemma3_text-mixed",
        starcoder2_tied = "starcoder2-tied",
        cohere_tied = "cohere-tied",
        glm4_half = "glm4-half",
        bloom_slopes = "bloom-slopes",
        falcon_multiquery = "falcon-multiquery",
        gpt_oss_sinks = "gpt_oss-sinks",
        qwen3_next_delta = "qwen3_next-delta",
        qwen3_5_text_delta = "qwen3_5_text-delta",
    ]
);

// Further configurations of the model types. They run only on CPU backends, because a GPU backend compiles kernels for
// half a minute for each.
on_cpu!(
    families,
    [flex_variants, ndarray_variants],
    [
        gpt2_untied = "gpt2-untied",
        gpt2_hub = "gpt2-hub",
        gptj_whole = "gptj-whole",
        gpt_neox_sequential = "gpt_neox-sequential",
        gpt_neox_hub = "gpt_neox-hub",
        gpt_neox_nobias = "gpt_neox-nobias",
        gpt_neox_odd = "gpt_neox-odd",
        llama_scaled = "llama-scaled",
        llama_bias = "llama-bias",
        llama_oldconfig = "llama-oldconfig",
        mistral_full = "mistral-full",
        mixtral_window = "mixtral-window",
        qwen3_moe_sparse = "qwen3_moe-sparse",
        olmoe_norm = "olmoe-norm",
        qwen2_mixed = "qwen2-mixed",
        qwen3_bias = "qwen3-bias",
        gemma2_bias = "gemma2-bias",
        olmo2_yarn = "olmo2-yarn",
        smollm3_dynamic = "smollm3-dynamic",
        phi3_gqa = "phi3-gqa",
        phi3_longrope_short = "phi3-longrope-short",
        granite_bias = "granite-bias",
        gemma3_text_pattern = "gemma3_text-pattern",
        starcoder2_nobias = "starcoder2-nobias",
        cohere_bias = "cohere-bias",
        glm4_nobias = "glm4-nobias",
        falcon_grouped = "falcon-grouped",
        falcon_sequential = "falcon-sequential",
        gpt_oss_listed = "gpt_oss-listed",
        qwen3_5_text_bias = "qwen3_5_text-bias",
        deepseek_v2_groups = "deepseek_v2-groups",
        deepseek_v2_lite = "deepseek_v2-lite",
        deepseek_v3_groups = "deepseek_v3-groups",
        deepseek_v3_biases = "deepseek_v3-biases",
        glm4_moe_norms = "glm4_moe-norms",
        glm4_moe_groups = "glm4_moe-groups",
        glm4_moe_lite_listed = "glm4_moe_lite-listed",
    ]
);

// Adapters that PEFT wrote: one of each kind.
on_all!(
    adapters,
    [flex_adapters, ndarray_adapters, vulkan_adapters],
    [
        gpt2_lora = "gpt2-lora",
        llama_dora = "llama-dora",
        gpt2_bias_all = "gpt2-bias-all",
        t5_rslora = "t5-rslora",
    ]
);

// Further adapters, whose kernels are those of the others.
on_cpu!(
    adapters,
    [flex_further_adapters, ndarray_further_adapters],
    [
        gpt2_dora = "gpt2-dora",
        llama_lora = "llama-lora",
        llama_rslora = "llama-rslora",
        gpt_neox_lora = "gpt_neox-lora",
        qwen3_lora = "qwen3-lora",
        llama_saved = "llama-saved",
        qwen3_saved_tied = "qwen3-saved-tied",
        gpt2_saved_tied = "gpt2-saved-tied",
        gpt2_saved = "gpt2-saved",
        llama_patterns = "llama-patterns",
        llama_layers = "llama-layers",
        llama_saved_norms = "llama-saved-norms",
        gpt2_bias_lora = "gpt2-bias-lora",
        bert_lora = "bert-lora",
        roberta_dora = "roberta-dora",
        t5_lora = "t5-lora",
    ]
);

#[test]
fn linear_attention_on_ndarray() {
    linear_attention::check::<burn_ndarray::NdArray>(&Default::default());
}

#[cfg(feature = "vulkan")]
#[test]
fn linear_attention_on_vulkan() {
    // Without gradients: they use plain operations, whose kernels would take minutes to compile.
    linear_attention::check_logits::<burn::backend::Vulkan>(&vulkan_device());
}

#[test]
fn ragged_passes_on_ndarray() {
    for preset in ["pocket-tales", "char-nano"] {
        ragged::check::<burn_ndarray::NdArray>(preset, &Default::default());
    }
}

#[cfg(feature = "vulkan")]
#[test]
fn ragged_passes_on_vulkan() {
    // Only one model, because kernels are compiled for each shape.
    ragged::check::<burn::backend::Vulkan>("pocket-tales", &vulkan_device());
}

#[cfg(feature = "vulkan")]
#[test]
fn isolated_documents_on_vulkan() {
    documents::check::<burn::backend::Vulkan>(&vulkan_device());
}

/// The best available Vulkan device, or a software device.
#[cfg(feature = "vulkan")]
pub fn vulkan_device() -> burn::backend::wgpu::WgpuDevice {
    use burn::backend::wgpu::{WgpuDevice, graphics::Vulkan, init_setup};

    static SETUP: std::sync::Once = std::sync::Once::new();
    let device = WgpuDevice::DefaultDevice;
    SETUP.call_once(|| {
        init_setup::<Vulkan>(&device, Default::default());
    });
    device
}

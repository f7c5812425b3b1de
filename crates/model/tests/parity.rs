//! The model against PyTorch and `transformers`: logits, loss, every parameter's gradient, ten AdamW steps and greedy
//! continuations, for each family's fixtures on each backend. `fixtures/make.py` and `make_families.py` wrote them. Linear
//! attention, which has no fixture, is compared between backends, and so are attention within documents and passes over
//! pieces of several sequences.

mod checks;
#[cfg(feature = "vulkan")]
mod documents;
mod families;
mod fixture;
mod linear_attention;
mod optimize;
mod ragged;

/// Every check of some fixtures on one backend.
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

/// The references written from equations.
macro_rules! equations {
    ($module:ident, $backend:ty, $device:expr) => {
        on_backend!(
            $module,
            $backend,
            $device,
            checks,
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
    };
}

/// The directories that `transformers` wrote, one of each type, with its gradients.
macro_rules! transformers {
    ($module:ident, $backend:ty, $device:expr) => {
        on_backend!(
            $module,
            $backend,
            $device,
            families,
            [
                gpt2_tied = "gpt2-tied",
                gptj_partial = "gptj-partial",
                gpt_neox_parallel = "gpt_neox-parallel",
                llama_gqa = "llama-gqa",
                mistral_window = "mistral-window",
                qwen2_tied = "qwen2-tied",
                qwen3_tied = "qwen3-tied",
                gemma2_tied = "gemma2-tied",
                olmo2_gqa = "olmo2-gqa",
                olmo3_mixed = "olmo3-mixed",
                smollm3_tied = "smollm3-tied",
                phi3_window = "phi3-window",
                granite_tied = "granite-tied",
                gemma3_text_mixed = "gemma3_text-mixed",
                starcoder2_tied = "starcoder2-tied",
                cohere_tied = "cohere-tied",
                glm4_half = "glm4-half",
                bloom_slopes = "bloom-slopes",
                falcon_multiquery = "falcon-multiquery",
            ]
        );
    };
}

/// Other configurations of the types: what a GPU backend compiles for each takes it half a minute, so only on CPUs.
macro_rules! variants {
    ($module:ident, $backend:ty, $device:expr) => {
        on_backend!(
            $module,
            $backend,
            $device,
            families,
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
                qwen2_mixed = "qwen2-mixed",
                qwen3_bias = "qwen3-bias",
                gemma2_bias = "gemma2-bias",
                olmo2_yarn = "olmo2-yarn",
                smollm3_dynamic = "smollm3-dynamic",
                phi3_gqa = "phi3-gqa",
                granite_bias = "granite-bias",
                gemma3_text_pattern = "gemma3_text-pattern",
                starcoder2_nobias = "starcoder2-nobias",
                cohere_bias = "cohere-bias",
                glm4_nobias = "glm4-nobias",
                falcon_grouped = "falcon-grouped",
                falcon_sequential = "falcon-sequential",
            ]
        );
    };
}

equations!(flex, burn_flex::Flex, Default::default());
equations!(ndarray, burn_ndarray::NdArray, Default::default());
transformers!(flex_transformers, burn_flex::Flex, Default::default());
transformers!(
    ndarray_transformers,
    burn_ndarray::NdArray,
    Default::default()
);
variants!(flex_variants, burn_flex::Flex, Default::default());
variants!(ndarray_variants, burn_ndarray::NdArray, Default::default());
#[cfg(feature = "vulkan")]
equations!(
    vulkan,
    burn::backend::Vulkan,
    crate::parity::vulkan_device()
);
#[cfg(feature = "vulkan")]
transformers!(
    vulkan_transformers,
    burn::backend::Vulkan,
    crate::parity::vulkan_device()
);

#[test]
fn linear_attention_on_ndarray() {
    linear_attention::check::<burn_ndarray::NdArray>(&Default::default());
}

#[cfg(feature = "vulkan")]
#[test]
fn linear_attention_on_vulkan() {
    // Its gradients are those of plain operations, and would take minutes to compile.
    linear_attention::check_logits::<burn::backend::Vulkan>(&vulkan_device());
}

#[test]
fn pieces_of_several_sequences_on_ndarray() {
    for preset in ["pocket-tales", "char-nano"] {
        ragged::check::<burn_ndarray::NdArray>(preset, &Default::default());
    }
}

#[cfg(feature = "vulkan")]
#[test]
fn pieces_of_several_sequences_on_vulkan() {
    // One model: its kernels are compiled for each shape.
    ragged::check::<burn::backend::Vulkan>("pocket-tales", &vulkan_device());
}

#[cfg(feature = "vulkan")]
#[test]
fn isolated_documents_on_vulkan() {
    documents::check::<burn::backend::Vulkan>(&vulkan_device());
}

/// The best Vulkan device there is, a software one where there is no other.
#[cfg(feature = "vulkan")]
fn vulkan_device() -> burn::backend::wgpu::WgpuDevice {
    use burn::backend::wgpu::{WgpuDevice, graphics::Vulkan, init_setup};

    static SETUP: std::sync::Once = std::sync::Once::new();
    let device = WgpuDevice::DefaultDevice;
    SETUP.call_once(|| {
        init_setup::<Vulkan>(&device, Default::default());
    });
    device
}

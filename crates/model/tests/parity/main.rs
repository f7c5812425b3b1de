//! The model against PyTorch: logits, loss, every parameter's gradient and ten AdamW steps, for each family's fixture
//! on each backend. `fixtures/make.py` wrote what PyTorch computes in float64. Linear attention, which has no fixture, is
//! compared between backends.

#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[cfg(feature = "vulkan")]
#[path = "../../../kernels/tests/activations/check.rs"]
mod activations;
mod checks;
mod fixture;
mod linear_attention;
mod optimize;

/// Every check of every fixture on one backend.
macro_rules! on_backend {
    ($module:ident, $backend:ty, $device:expr) => {
        mod $module {
            #[test]
            fn linear_attention() {
                crate::linear_attention::check::<$backend>(&$device);
            }

            #[test]
            fn pocket() {
                crate::checks::check::<$backend>("pocket", &$device);
            }

            #[test]
            fn gpt2() {
                crate::checks::check::<$backend>("gpt2", &$device);
            }

            #[test]
            fn gpt2_without_biases() {
                crate::checks::check::<$backend>("gpt2_nobias", &$device);
            }
        }
    };
}

on_backend!(flex, burn_flex::Flex, Default::default());
on_backend!(ndarray, burn_ndarray::NdArray, Default::default());
#[cfg(feature = "vulkan")]
on_backend!(vulkan, burn::backend::Vulkan, crate::vulkan_device());

/// The kernels' own test of the activations on one more backend.
#[cfg(feature = "vulkan")]
#[test]
fn activations_on_vulkan() {
    activations::check::<burn::backend::Vulkan>(&vulkan_device());
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

//! Development target.
#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs, dead_code, unused_imports)]
mod encoder_decoder;
mod decoder {
    pub mod gradients {
        use std::sync::{Mutex, MutexGuard, PoisonError};
        pub fn one_at_a_time() -> MutexGuard<'static, ()> {
            static LOCK: Mutex<()> = Mutex::new(());
            LOCK.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
mod parity {
    pub mod fixture;
    pub mod checks {
        pub const LOSS: f64 = 1e-6;
        pub const GRADIENT: f64 = 1e-5;
        pub fn host<B: burn::tensor::backend::Backend, const D: usize>(tensor: burn::tensor::Tensor<B, D>) -> Vec<f32> {
            tensor.into_data().iter::<f32>().collect()
        }
        pub fn relative(a: &[f32], b: &[f32]) -> f64 {
            assert_eq!(a.len(), b.len(), "elements");
            let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
            let pairs = || a.iter().zip(b).map(|(a, b)| (f64::from(*a), f64::from(*b)));
            norm(&mut pairs().map(|(a, b)| a - b)) / norm(&mut pairs().map(|(_, b)| b))
        }
        pub fn within(what: &str, error: f64, tolerance: f64) {
            println!("{what}: {error:.1e}");
            assert!(error <= tolerance, "{what}: relative error {error:.2e} is above {tolerance:.0e}");
        }
    }
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
}

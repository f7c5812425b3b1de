//! Opens a GPU. Converts the runtime's panic into an error if there is none.

use std::sync::OnceLock;

use super::{BackendName, Placement, cache, quietly};
use crate::error::CliError;

/// Opens the process's only GPU with `start`, on the first call only.
///
/// Burn's runtimes panic if the machine has no such device or driver. That panic is returned as an error.
pub fn start(placement: Placement, start: impl FnOnce()) -> Result<(), CliError> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    STARTED
        .get_or_init(|| {
            cache::keep(placement);
            quietly(start)
        })
        .clone()
        .map_err(|reason| unavailable(placement.backend, &reason))
}

/// The error for a device that cannot be opened.
fn unavailable(name: BackendName, reason: &str) -> CliError {
    let or_on_the_cpu = "or compute on the CPU: --backend flex";
    // The driver has a device, but the device lacks features that the runtime requires.
    if reason.contains("Failed to create") || reason.contains("RequestDevice") {
        return CliError::new(format!(
            "the {name} backend's device lacks what it needs: {reason}"
        ))
        .hint("the device or its driver may be too old: update the driver")
        .hint("or use another device: emberlm devices lists them, --device N selects one")
        .hint(or_on_the_cpu);
    }
    let install = match name {
        BackendName::Vulkan | BackendName::Wgpu => {
            "install the GPU's Vulkan driver: Debian's mesa-vulkan-drivers has Intel's and AMD's, NVIDIA's own has its"
        }
        BackendName::Metal => "Metal is available only on macOS: elsewhere use --backend vulkan",
        BackendName::Cuda => {
            "install NVIDIA's driver and NVRTC, which compiles kernels: libnvrtc of the CUDA toolkit"
        }
        BackendName::Rocm => "install ROCm with HIP's runtime compiler",
        BackendName::Flex | BackendName::Ndarray => "list the available devices: emberlm devices",
    };
    CliError::new(format!(
        "the {name} backend finds no device it can use: {reason}"
    ))
    .hint("list the devices of this machine: emberlm devices")
    .hint(install)
    .hint(or_on_the_cpu)
}

/// Forces the runtime to open its device.
pub fn touch<B: burn::tensor::backend::Backend>(device: &B::Device) {
    if let Err(error) = B::sync(device) {
        std::panic::panic_any(error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: BackendName, reason: &str) -> String {
        unavailable(name, reason).lines(false)
    }

    #[test]
    fn the_hint_names_the_backends_driver() {
        let text = message(BackendName::Vulkan, "No possible adapter available");
        let expected =
            "error: the vulkan backend finds no device it can use: No possible adapter available\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("mesa-vulkan-drivers"), "{text}");
        assert!(message(BackendName::Cuda, "cannot load").contains("NVRTC"));
    }

    #[test]
    fn a_device_without_required_features_is_not_reported_as_missing() {
        let reason = "Failed to create Vulkan device: ERROR_FEATURE_NOT_PRESENT";
        let text = message(BackendName::Vulkan, reason);
        assert!(
            text.starts_with("error: the vulkan backend's device lacks what it needs"),
            "{text}"
        );
        assert!(
            text.contains("hint: the device or its driver may be too old"),
            "{text}"
        );
    }
}

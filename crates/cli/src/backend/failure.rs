//! Handles failures of the GPU runtime during a computation.
//!
//! Burn's runtimes report errors by panicking on their own threads. Some of these panics are harmless: when
//! the autotuner tries a kernel that panics, it selects another. After any other panic the thread continues
//! with the next operation, whose input is missing, so the program would panic endlessly or wait forever.
//! This module exits the program instead.

use std::panic;
use std::path::{Component, Path};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;

use emberlm_trainer::dashboard;

use super::{Placement, quiet};
use crate::ending;
use crate::error::CliError;
use crate::output::size;

/// Installs a panic hook that exits with an error when the runtime fails. Panics of this program are printed
/// as before.
pub fn exit_on_failure(placement: Placement) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| watch(placement));
}

fn watch(placement: Placement) {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let from = info.location().map_or("", |location| location.file());
        if !is_runtime_source(Path::new(from)) {
            return print(info);
        }
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            print(info);
        }
        let reason = quiet::reason(info.payload());
        // The latest panic that may have been harmless. The lock is held until the process has exited, so
        // that only one thread ends it.
        static BEFORE: Mutex<Option<String>> = Mutex::new(None);
        let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
        let on_runtime_thread = thread::current().name().is_some_and(is_runtime_thread);
        if on_runtime_thread && !is_fatal(&reason) {
            *before = Some(reason);
            return;
        }
        // A missing input is the consequence of an earlier failure. Report that failure.
        let cause = match is_follow_up_failure(&reason) {
            true => before.take().unwrap_or(reason),
            false => reason,
        };
        dashboard::restore_terminal();
        ending::at_once(failed(placement, &cause).report().into());
    }));
}

/// Returns true if `name` is the name of a CubeCL device thread.
fn is_runtime_thread(name: &str) -> bool {
    name.starts_with("DS")
}

/// Returns true if the program cannot continue after this panic of a runtime thread.
fn is_fatal(reason: &str) -> bool {
    too_big(reason).is_some() || is_full(reason) || is_follow_up_failure(reason)
}

/// Returns true if the result of an earlier operation is missing or no kernel could run at all.
fn is_follow_up_failure(reason: &str) -> bool {
    reason.starts_with("Should have handle for tensor")
        || reason.starts_with("Can't execute the autotune plan")
}

/// Returns true if a source file belongs to Burn, CubeCL or a library that they call.
fn is_runtime_source(file: &Path) -> bool {
    const NAMES: [&str; 6] = ["burn", "cube", "wgpu", "naga", "cudarc", "ash"];
    file.components().any(|part| match part {
        Component::Normal(part) => {
            let part = part.to_string_lossy();
            let name = part.split('-').next().unwrap_or_default();
            // Requires a version, as in `burn-fusion-0.21.0`, so that a folder named `burn` does not match.
            part.ends_with(|end: char| end.is_ascii_digit())
                && NAMES.iter().any(|start| name.starts_with(start))
        }
        _ => false,
    })
}

/// The error for a panic message of the runtime.
fn failed(placement: Placement, reason: &str) -> CliError {
    if let Some(bytes) = too_big(reason) {
        return CliError::new(format!(
            "the {placement} backend's device takes no buffer of {}",
            size(bytes)
        ))
        .hint("buffer limits and other devices: emberlm devices")
        .hint("the largest buffer is a weight matrix, the position table or an activation: try --set train.micro_batch=1")
        .hint("or compute on the CPU: --backend flex");
    }
    if is_full(reason) {
        return CliError::new(format!(
            "the {placement} backend's device has no memory left: {reason}"
        ))
        .hint("use smaller micro-batches for the same step: --set train.micro_batch=1 --accumulation 8")
        .hint("or recompute activations: --recompute")
        .hint("print the memory of a step by component: --memory-report")
        .hint("find a step that fits on the CPU: emberlm fit");
    }
    CliError::new(format!("the {placement} backend failed: {reason}"))
        .hint(format!(
            "find out what it computes wrongly: emberlm doctor --backend {placement}"
        ))
        .hint("set RUST_BACKTRACE=1 to see where it failed")
        .hint("or compute on the CPU: --backend flex")
}

/// Parses N from CubeCL's "can't allocate buffer of size: N", in bytes.
fn too_big(reason: &str) -> Option<u64> {
    let (_, size) = reason.split_once("allocate buffer of size: ")?;
    let digits: String = size.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Returns true if a driver or runtime reports that memory is exhausted.
fn is_full(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    [
        "out of memory",
        "out_of_memory",
        "outofmemory",
        "out of device memory",
        "not enough memory",
    ]
    .iter()
    .any(|phrase| reason.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendName;

    /// Returns the message and the first hint.
    fn message(reason: &str) -> String {
        let error = failed(Placement::of(BackendName::Vulkan), reason);
        error
            .lines(false)
            .lines()
            .take(2)
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn oversized_buffers_are_reported_with_their_size() {
        let reason =
            "called `Result::unwrap()` on an `Err` value: can't allocate buffer of size: 154389504";
        assert_eq!(
            message(reason),
            "error: the vulkan backend's device takes no buffer of 147.2 MiB\n\
             hint: buffer limits and other devices: emberlm devices"
        );
    }

    #[test]
    fn out_of_memory_differs_from_other_failures() {
        let hint = "hint: use smaller micro-batches for the same step: --set train.micro_batch=1 --accumulation 8";
        for reason in [
            "CUDA_ERROR_OUT_OF_MEMORY",
            "Out of Memory",
            "Not enough memory left on device",
        ] {
            let expected =
                format!("error: the vulkan backend's device has no memory left: {reason}\n{hint}");
            assert_eq!(message(reason), expected);
        }
        assert_eq!(
            message("lost"),
            "error: the vulkan backend failed: lost\n\
             hint: find out what it computes wrongly: emberlm doctor --backend vulkan"
        );
    }

    #[test]
    fn autotuning_panics_are_not_fatal() {
        assert!(!is_fatal(
            "index out of bounds: the len is 1 but the index is 1"
        ));
        assert!(is_fatal("Should have handle for tensor TensorId"));
        assert!(is_fatal("can't allocate buffer of size: 154389504"));
        assert!(is_runtime_thread("DSD-4-0") && !is_runtime_thread("main"));
    }

    #[test]
    fn runtimes_are_identified_by_source_path() {
        let registry = Path::new("/home/u/.cargo/registry/src/index-1949cf8c");
        for (file, expected) in [
            ("cubecl-wgpu-0.10.0/src/compute/server.rs", true),
            ("burn-fusion-0.21.0/src/stream.rs", true),
            ("wgpu-29.0.1/src/lib.rs", true),
            ("rayon-core-1.13.0/src/job.rs", false),
            ("safetensors-0.8.0/src/tensor.rs", false),
        ] {
            assert_eq!(is_runtime_source(&registry.join(file)), expected, "{file}");
        }
        assert!(!is_runtime_source(Path::new(
            "/home/u/burn/crates/trainer/src/run.rs"
        )));
    }
}

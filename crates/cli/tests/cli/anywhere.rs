//! Runs are equivalent on all backends: both CPU backends, and Vulkan on a software device if there is no GPU
//! (`.ci/run` installs one).

use super::support::Sandbox;
use super::support::train::TINY;

/// Asserts that two loss curves agree up to rounding.
#[track_caller]
fn alike(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() < tolerance, "{found:?}\n{expected:?}");
    }
}

impl Sandbox {
    /// The losses of a new run of `steps` steps.
    #[cfg(feature = "vulkan")]
    fn curve(&self, run: &str, steps: usize, how: &str) -> Vec<f64> {
        let line = format!("--data data --steps {steps} --out {run} {how}");
        self.trains(&line);
        self.losses(run)
    }

    /// The losses of a run that is stopped every `part` steps and resumed on the next backend.
    fn relay(&self, run: &str, part: usize, backends: &[&str]) -> Vec<f64> {
        // The schedule covers the full length.
        let decay = part * backends.len();
        for (i, backend) in backends.iter().enumerate() {
            let line = match i {
                0 => format!(
                    "{TINY} --data data --out {run} --set train.schedule.decay_steps={decay}"
                ),
                _ => format!("--resume {run} --renderer plain"),
            };
            let steps = part * (i + 1);
            let line = format!("train {line} --steps {steps} --backend {backend}");
            self.succeeds(&line);
        }
        self.losses(run)
    }

    /// The greedy continuation of a prompt.
    #[cfg(feature = "vulkan")]
    fn made(&self, run: &str, backend: &str) -> String {
        let line = format!(
            "generate {run} --tokens 3,1,2 --temperature 0 --max-new-tokens 24 --backend {backend} --json"
        );
        self.succeeds(&line).stdout
    }
}

#[cfg(feature = "ndarray")]
#[test]
fn a_run_resumes_on_the_other_cpu_backend() {
    let sandbox = Sandbox::with_data();
    let expected = sandbox.relay("uninterrupted", 3, &["flex"; 4]);
    let found = sandbox.relay("relay", 3, &["flex", "ndarray", "flex", "ndarray"]);
    alike(&found, &expected, 1e-4);
}

#[cfg(feature = "vulkan")]
mod vulkan {
    use super::*;

    /// Trains thirty steps and generates text on both backends.
    #[test]
    fn training_and_generation_match_the_cpu() {
        let sandbox = Sandbox::with_data();
        let expected = sandbox.curve("flex", 30, "");
        let found = sandbox.curve("vulkan", 30, "--backend vulkan");
        alike(&found, &expected, 1e-3);
        assert!(found[29] < 0.9 * found[0], "it learns: {found:?}");
        assert_eq!(
            sandbox.made("vulkan", "vulkan"),
            sandbox.made("vulkan", "flex")
        );
    }

    #[cfg(feature = "ndarray")]
    #[test]
    fn a_run_moves_to_a_gpu_and_back() {
        let sandbox = Sandbox::with_data();
        let expected = sandbox.relay("uninterrupted", 4, &["flex"; 4]);
        let found = sandbox.relay("relay", 4, &["flex", "vulkan", "ndarray", "vulkan"]);
        alike(&found, &expected, 1e-3);
    }

    /// GPT-2's embedding table takes 147 MiB, but a buffer of Mesa's software device holds at most 128 MiB.
    /// Vulkan stores the table, which is also the head, in several buffers, and checkpoints store it whole.
    /// Flex resumes the run with its weights and moments.
    #[test]
    fn a_table_larger_than_a_buffer_is_trained() {
        let sandbox = Sandbox::with_data();
        let how = "--set model.vocab_size=50257 --set model.d_model=768 --set model.n_layers=1 --set model.seq_len=16 \
            --set model.head.tied=true --set model.init={kind=\"normal\",std=0.02,scale_residual=false} \
            --set train.micro_batch=1 --set train.evaluation.tokens=16 \
            --set train.evaluation.sample_tokens=0 --set train.schedule.decay_steps=3";
        let expected = sandbox.curve("flex", 3, how);
        // A single step, since each takes seconds. The two steps on Flex that follow depend on its weights
        // and moments.
        let found = sandbox.curve("vulkan", 1, &format!("{how} --backend vulkan"));
        alike(&found, &expected[..1], 1e-3);
        let weights = sandbox.weights("vulkan", 1);
        let tensors = safetensors::SafeTensors::deserialize(&weights).unwrap();
        assert_eq!(tensors.tensor("tokens").unwrap().shape(), [50_257, 768]);
        sandbox.succeeds("train --resume vulkan --steps 3 --backend flex --renderer plain");
        alike(&sandbox.losses("vulkan"), &expected, 1e-3);
    }

    /// Dropout masks are a function of the step, so a resumed run is bit-identical to an uninterrupted one.
    #[test]
    fn a_resumed_run_equals_an_uninterrupted_one() {
        let sandbox = Sandbox::with_data().with_own_cache();
        let how = "--set model.dropout=0.1 --set train.schedule.decay_steps=8 --backend vulkan";
        let expected = sandbox.curve("uninterrupted", 8, how);
        sandbox.curve("stopped", 5, how);
        sandbox.succeeds("train --resume stopped --steps 8 --backend vulkan --renderer plain");
        assert_eq!(sandbox.losses("stopped"), expected);
        assert_eq!(
            sandbox.weights("stopped", 8),
            sandbox.weights("uninterrupted", 8)
        );
    }
}

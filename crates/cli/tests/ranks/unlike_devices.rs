//! Ranks on different backends in one job.

use crate::support::train::TINY;
use crate::support::{AssertText, CommandOutput, Sandbox};

impl Sandbox {
    /// Runs one command line on two ranks with different backends.
    fn on_two_backends(&self, backends: [&str; 2], line: &str) -> CommandOutput {
        let [first, second] = backends.map(|backend| format!("{line} --backend {backend}"));
        self.launched(&[(1, &first), (1, &second)])
    }
}

/// Trains with a rank on flex and one on `other`, resumes with the backends of the ranks exchanged, and then in one
/// process. `name` is the backend's name in messages.
#[track_caller]
fn trains_with(other: &str, name: &str) {
    let sandbox = Sandbox::with_data();
    let line = format!(
        "train {TINY} --data data --set train.micro_batch=2 --accumulation 2 --ema 0.9 --set train.schedule.decay_steps=24"
    );
    sandbox.succeeds(&format!("{line} --steps 24 --out one"));

    let ran = sandbox.on_two_backends(["flex", other], &format!("{line} --steps 8 --out ranks"));
    let warning = format!(
        "warning: the ranks compute on different backends: flex (1 rank), {name} (1 rank); results depend on the \
         division of a step among ranks, and differ from those of one process by rounding"
    );
    assert_eq!(ran.stderr.matches(&warning).count(), 1, "{ran}");
    ran.exits(0);

    let resume = |steps: usize| format!("train --resume ranks --renderer plain --steps {steps}");
    let ran = sandbox.on_two_backends([other, "flex"], &resume(16));
    assert_eq!(ran.stderr.matches(&warning).count(), 1, "{ran}");
    ran.stderr.assert_lacks("was computed on");
    ran.exits(0);

    let ran = sandbox.succeeds(&format!("{} --backend flex", resume(24)));
    let moved = format!("the run was computed on flex + {name} and continues on flex");
    assert_eq!(ran.stderr.matches(&moved).count(), 1, "{ran}");

    let (one, ranks) = (sandbox.losses("one"), sandbox.losses("ranks"));
    assert_eq!(ranks.len(), 24);
    for (one, ranks) in one.iter().zip(&ranks) {
        assert!((one - ranks).abs() < 1e-5, "{one} {ranks}");
    }
    assert!(ranks[23] < 0.95 * ranks[0], "it learns: {ranks:?}");
}

#[cfg(feature = "ndarray")]
#[test]
fn ranks_on_both_cpu_backends_train_together() {
    trains_with("ndarray", "ndarray");
}

#[cfg(feature = "vulkan")]
#[test]
fn a_rank_on_a_cpu_and_one_on_a_gpu_train_together() {
    trains_with("vulkan", "fusion<cubecl<wgpu<spirv>>>");
}

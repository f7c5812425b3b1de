//! Training steps on random token ids: forward pass, mean cross-entropy, backward pass and AdamW.

use std::{path::Path, process::Command};

use emberlm_system::measure::Unit;

use super::programs::Field;

/// The figures of training steps, in our program and in PyTorch's.
pub const FIELDS: [Field; 6] = [
    Field("tokens_per_second", "", Unit::TokensPerSecond),
    Field("seconds_per_step", "step", Unit::Seconds),
    Field("peak_rss_mib", "peak", Unit::Bytes),
    Field("device_mib", "device", Unit::Bytes),
    Field("utilization", "of the matrix product", Unit::Percent),
    Field("parameters", "parameters", Unit::Count),
];

/// A model and the size of its steps. All sizes are passed to both programs, so that their defaults do not matter.
#[derive(Debug, Clone)]
pub struct Training {
    /// Our preset.
    pub preset: String,
    /// The name of the model in the PyTorch program.
    pub twin: &'static str,
    /// Values that override the preset.
    pub overrides: Vec<String>,
    /// Measured steps.
    pub steps: usize,
    /// Sequences per step.
    pub batch: usize,
    /// Tokens per sequence.
    pub seq: usize,
    /// The precision of matrix products.
    pub precision: String,
}

impl Training {
    /// A model with the same name in both programs, in f32.
    pub fn new(name: &'static str, [steps, batch, seq]: [usize; 3]) -> Self {
        Self {
            preset: name.to_owned(),
            twin: name,
            overrides: Vec::new(),
            steps,
            batch,
            seq,
            precision: "f32".to_owned(),
        }
    }

    /// The name with the size of a step.
    pub fn title(&self) -> String {
        let Self {
            preset,
            batch,
            seq,
            precision,
            ..
        } = self;
        format!("{preset}, {batch} × {seq}, {precision}")
    }

    /// Adds the arguments of `emberlm-bench`.
    pub fn ours(&self, command: &mut Command, backend: &str) {
        command.args(["bench-train", "--preset", &self.preset]);
        command.args(["--backend", backend]).args(self.sizes());
        command.arg("--json");
        command.args(["--set", &format!("train.seq_len={}", self.seq)]);
        for setting in &self.overrides {
            command.args(["--set", setting]);
        }
    }

    /// The same steps in PyTorch.
    pub fn twin(&self, python: &Path, root: &Path) -> Command {
        let mut command = Command::new(python);
        command.arg(root.join("crates/cli/peers/train.py"));
        command.arg(self.twin).args(self.sizes());
        command.args(["--seq", &self.seq.to_string()]);
        command
    }

    fn sizes(&self) -> [String; 6] {
        let (steps, batch) = (self.steps.to_string(), self.batch.to_string());
        let precision = self.precision.clone();
        let name = |name: &str| name.to_owned();
        [
            name("--steps"),
            steps,
            name("--batch"),
            batch,
            name("--precision"),
            precision,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn both_programs_get_the_same_sizes() {
        let training = Training {
            overrides: vec!["model.n_layers=2".to_owned()],
            ..Training::new("pocket", [7, 12, 64])
        };
        let mut ours = Command::new("emberlm-bench");
        training.ours(&mut ours, "flex");
        assert_eq!(
            workspace::shown(&ours),
            "emberlm-bench bench-train --preset pocket --backend flex --steps 7 --batch 12 --precision f32 --json \
             --set train.seq_len=64 --set model.n_layers=2"
        );
        let twin = workspace::shown(&training.twin(Path::new("python3"), Path::new("root")));
        assert_eq!(
            twin,
            "python3 root/crates/cli/peers/train.py pocket --steps 7 --batch 12 --precision f32 --seq 64"
        );
        assert_eq!(training.title(), "pocket, 12 × 64, f32");
    }
}

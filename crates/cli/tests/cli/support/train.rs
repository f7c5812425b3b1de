//! Fast training runs.

use std::fs;

use serde_json::Value;

use super::{CommandOutput, Sandbox};

/// A model of two small layers, for any dataset.
pub const TINY: &str = "--set model.d_model=24 --set model.n_layers=2 --set model.heads=2 \
    --set model.kv_heads=2 --set model.seq_len=32 --set model.feed_forward.width=48 \
    --set train.micro_batch=4 --set train.log_interval=1 --set train.evaluation.sample_tokens=20 \
    --renderer plain";

/// An encoder of one small layer.
pub const TINY_ENCODER: &str = "--set model.d_model=16 --set model.heads=2 --set model.n_layers=1 \
    --set model.seq_len=24 --set model.feed_forward.width=32 --set train.seq_len=24";

/// A small encoder–decoder.
pub const TINY_ENCODER_DECODER: &str = "--set model.d_model=16 --set model.heads=2 \
    --set model.head_dim=8 --set model.feed_forward.width=32 --set train.seq_len=24";

impl Sandbox {
    /// A sandbox with a char dataset `data` of a text with learnable structure.
    pub fn with_data() -> Self {
        let lines = (0..400).map(|i| format!("{i} and {} make {}\n", i + 1, 2 * i + 1));
        Self::with_text(lines.collect::<String>(), "char")
    }

    /// Writes `sources.jsonl`: numbers, and whether they are odd or even.
    pub fn write_sources(&self) {
        let lines = (0..60).map(|i| {
            let target = ["odd", "even"][usize::from(i % 2 == 0)];
            format!("{{\"source\": \"the number {i}\", \"target\": \"{target}\"}}\n")
        });
        self.write("sources.jsonl", lines.collect::<String>());
    }

    pub fn train(&self, line: &str) -> CommandOutput {
        self.words(&format!("train {TINY} {line}"))
    }

    /// Trains a run, which must succeed. Returns its output.
    #[track_caller]
    pub fn trains(&self, line: &str) -> CommandOutput {
        self.train(line).exits(0)
    }

    /// The events of one kind in a run's `events.jsonl`.
    pub fn events(&self, run: &str, kind: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(run).join("events.jsonl")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines
            .filter(|event: &Value| event["event"] == kind)
            .collect()
    }

    /// The number of events of one kind in the log of a run in progress.
    #[cfg(unix)]
    pub fn events_so_far(&self, run: &str, kind: &str) -> usize {
        let text = fs::read_to_string(self.path(run).join("events.jsonl")).unwrap_or_default();
        let kind = format!("{{\"event\":\"{kind}\",");
        text.lines().filter(|line| line.starts_with(&kind)).count()
    }

    /// The files of a checkpoint that the steps determine, and the manifest with the hashes of all files.
    pub fn checkpoint(&self, run: &str, step: usize) -> [Vec<u8>; 4] {
        let names = [
            "model.safetensors",
            "optimizer.safetensors",
            "state.json",
            "manifest.json",
        ];
        names.map(|name| self.bytes(format!("{run}/checkpoints/step-{step:08}/{name}")))
    }

    /// The steps of a run's checkpoints.
    pub fn steps(&self, run: &str) -> Vec<u64> {
        let names = self.names_in(format!("{run}/checkpoints")).into_iter();
        let steps = names.map(|name| name.strip_prefix("step-").unwrap().parse().unwrap());
        steps.collect()
    }

    pub fn losses(&self, run: &str) -> Vec<f64> {
        let steps = self.events(run, "step");
        steps.iter().map(|e| e["loss"].as_f64().unwrap()).collect()
    }

    pub fn weights(&self, run: &str, step: usize) -> Vec<u8> {
        let folder = self.path(run).join(format!("checkpoints/step-{step:08}"));
        fs::read(folder.join("model.safetensors")).unwrap()
    }
}

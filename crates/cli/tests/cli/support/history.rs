//! Runs that are written without training.

use std::fs;

use serde_json::{Value, json};

use super::Sandbox;

impl Sandbox {
    /// Writes a run of `steps` steps. Its loss decays from 4 towards `floor`.
    pub fn write_history(&self, run: &str, steps: usize, floor: Option<f64>, end: Option<&str>) {
        let mut text = String::new();
        let mut add = |event: Value| text += &format!("{event}\n");
        add(
            json!({"event": "begun", "time": 1000.0, "step": 0, "steps": 40, "backend": "flex",
            "version": "0.1.0", "floor": floor}),
        );
        for step in 1..=steps {
            let loss = floor.unwrap_or(0.0) + 4.0 * 0.9f64.powi(step as i32);
            add(
                json!({"event": "step", "step": step, "tokens": 1024 * step, "loss": loss,
                "perplexity": loss.exp(), "gradient_norm": 1.0, "learning_rate": 1e-3}),
            );
            add(
                json!({"event": "pace", "time": 1000.0 + step as f64, "step": step,
                "tokens_per_second": 1024.0, "utilization": null, "memory_mib": 100, "seconds_left": 1.0}),
            );
            if step % 5 == 0 {
                add(
                    json!({"event": "evaluation", "step": step, "loss": loss + 0.1,
                    "perplexity": (loss + 0.1).exp(), "tokens": 100}),
                );
            }
        }
        if let Some(how) = end {
            add(json!({"event": "ended", "time": 2000.0, "step": steps, "how": how}));
        }
        self.write(&format!("{run}/events.jsonl"), text);
    }

    pub fn append(&self, run: &str, line: &str) {
        let path = self.path(run).join("events.jsonl");
        let before = fs::read_to_string(&path).unwrap();
        fs::write(path, before + line).unwrap();
    }

    /// Writes a run with one logged step per loss, one minute apart, and with the table `train` of its configuration.
    pub fn write_losses(&self, run: &str, losses: &[f64], train: &str) {
        self.write_steps(
            run,
            losses
                .iter()
                .copied()
                .zip(1..)
                .map(|(loss, step)| (step, loss)),
            train,
        );
    }

    /// Writes a run with these steps and losses. A step has 100 tokens and takes one minute.
    pub fn write_steps(
        &self,
        run: &str,
        steps: impl IntoIterator<Item = (usize, f64)>,
        train: &str,
    ) {
        let begun = json!({"event": "begun", "time": 0.0, "step": 0, "steps": 40, "backend": "flex",
            "version": "0.1.0", "floor": null});
        let mut text = format!("{begun}\n");
        for (step, loss) in steps {
            let logged = json!({"event": "step", "step": step, "tokens": 100 * step, "loss": loss,
                "perplexity": loss.exp(), "gradient_norm": 1.0, "learning_rate": 1e-3});
            let pace = json!({"event": "pace", "time": 60.0 * step as f64, "step": step,
                "tokens_per_second": 2.0, "utilization": null, "memory_mib": 100, "seconds_left": 1.0});
            text += &format!("{logged}\n{pace}\n");
        }
        self.write(&format!("{run}/events.jsonl"), text);
        self.write(&format!("{run}/config.toml"), format!("[train]\n{train}\n"));
    }

    /// Three seeds of each of two learning rates.
    pub fn with_seeds() -> Self {
        let sandbox = Self::new();
        for seed in [1, 2, 3] {
            let shift = f64::from(seed);
            for (rate, loss) in [("0.01", 2.0), ("0.001", 5.0)] {
                let train = format!("seed = {seed}\nschedule.learning_rate = {rate}");
                let run = format!("runs/rate-{rate}-{seed}");
                sandbox.write_losses(&run, &[loss + 2.0 + shift, loss + shift], &train);
            }
        }
        sandbox
    }
}

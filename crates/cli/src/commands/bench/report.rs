//! The results as a table and as JSON.

use indicatif::HumanCount;
use serde::{Deserialize, Serialize};

use crate::output::{Align, Table, size};

/// The speed of a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelSpeed {
    /// The model as given on the command line.
    pub model: String,
    /// Size of the weights in memory.
    pub bytes: u64,
    pub parameters: usize,
    /// Format of the weights of linear layers.
    pub weights: String,
    pub backend: String,
    /// The GPU.
    pub device: Option<String>,
    /// Threads of a CPU backend.
    pub threads: Option<usize>,
    /// Concurrent sequences.
    pub batch: usize,
    /// Peak resident memory of the process. `None` except on Linux.
    pub peak_bytes: Option<u64>,
    /// Memory in use on a GPU once the model is loaded.
    pub device_bytes: Option<u64>,
    pub tests: Vec<TestSpeed>,
}

/// The speed of a test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestSpeed {
    /// The test's name, such as `pp512` or `tg128`.
    pub test: String,
    /// Tokens per sequence.
    pub tokens: usize,
    /// Tokens in the cache before them.
    pub depth: usize,
    /// The mean of the runs.
    pub tokens_per_second: f64,
    /// The sample standard deviation of the runs; 0 of a single run.
    pub deviation: f64,
    /// Tokens per second of each run.
    pub runs: Vec<f64>,
}

impl TestSpeed {
    pub fn new(test: String, tokens: usize, depth: usize, runs: Vec<f64>) -> Self {
        let count = runs.len() as f64;
        let mean = runs.iter().sum::<f64>() / count;
        let squares: f64 = runs.iter().map(|run| (run - mean).powi(2)).sum();
        Self {
            test,
            tokens,
            depth,
            tokens_per_second: mean,
            deviation: (squares / (count - 1.0).max(1.0)).sqrt(),
            runs,
        }
    }
}

/// A row per test.
pub fn table(models: &[ModelSpeed]) -> String {
    let mut table = Table::new([
        Align::Left,
        Align::Right,
        Align::Right,
        Align::Left,
        Align::Left,
        Align::Right,
        Align::Left,
        Align::Right,
        Align::Right,
    ]);
    table.row([
        "model",
        "size",
        "parameters",
        "weights",
        "backend",
        "threads",
        "test",
        "tokens/s",
        "peak memory",
    ]);
    for model in models {
        for test in &model.tests {
            table.row([
                model.model.clone(),
                size(model.bytes),
                HumanCount(model.parameters as u64).to_string(),
                model.weights.clone(),
                match &model.device {
                    Some(device) => format!("{}, {device}", model.backend),
                    None => model.backend.clone(),
                },
                or_dash(model.threads.map(|threads| threads.to_string())),
                test.test.clone(),
                format!("{:.2} ± {:.2}", test.tokens_per_second, test.deviation),
                or_dash(model.peak_bytes.map(size)),
            ]);
        }
    }
    table.render()
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        // numpy.std([2, 4, 4, 4, 5, 5, 7, 9], ddof=1)
        let runs = vec![2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        let speed = TestSpeed::new("pp1".to_owned(), 1, 0, runs);
        assert_eq!(speed.tokens_per_second, 5.0);
        assert!((speed.deviation - 2.138_089_935_299_395).abs() < 1e-12);
        assert_eq!(
            TestSpeed::new("pp1".to_owned(), 1, 0, vec![3.0]).deviation,
            0.0
        );
    }

    #[test]
    fn every_test_has_a_row() {
        let model = |model: &str, device: Option<&str>| ModelSpeed {
            model: model.to_owned(),
            bytes: 3 << 19,
            parameters: 134_515_008,
            weights: "q8_0".to_owned(),
            backend: "flex".to_owned(),
            device: device.map(str::to_owned),
            threads: device.is_none().then_some(2),
            batch: 1,
            peak_bytes: device.is_none().then_some(3 << 20),
            device_bytes: None,
            tests: vec![
                TestSpeed::new("pp512".to_owned(), 512, 0, vec![600.0, 604.0]),
                TestSpeed::new("tg128".to_owned(), 128, 0, vec![50.0]),
            ],
        };
        let rows = table(&[model("a", None), model("b.gguf", Some("GPU"))]);
        assert_eq!(
            rows,
            "  \
  model      size   parameters  weights  backend    threads  test        tokens/s  peak memory\n  \
  a       1.5 MiB  134,515,008  q8_0     flex             2  pp512  602.00 ± 2.83      3.0 MiB\n  \
  a       1.5 MiB  134,515,008  q8_0     flex             2  tg128   50.00 ± 0.00      3.0 MiB\n  \
  b.gguf  1.5 MiB  134,515,008  q8_0     flex, GPU        -  pp512  602.00 ± 2.83            -\n  \
  b.gguf  1.5 MiB  134,515,008  q8_0     flex, GPU        -  tg128   50.00 ± 0.00            -\n"
        );
    }
}

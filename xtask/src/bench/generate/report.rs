//! The result of `cargo xtask bench generate`.

use serde_json::{Value, json};

use super::super::report::Column::{Number, Text};
use super::super::report::{Report, Table, median_by};

/// One run of one program. Missing values are NaN.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// The program and its device.
    pub program: String,
    /// Generated tokens per second.
    pub decode: f64,
    /// Prompt tokens per second.
    pub prefill: f64,
    /// Peak resident memory of the process, in MiB.
    pub peak_rss_mib: f64,
    /// Bytes of weights read per token.
    pub bytes_per_token: f64,
    /// The machine's read bandwidth, in bytes per second.
    pub read_bytes_per_second: f64,
    /// The bound on [`Self::decode`] by the read bandwidth.
    pub decode_bound: f64,
    /// The bound on [`Self::prefill`] by matrix products.
    pub prefill_bound: f64,
}

impl Generation {
    /// Reads the output of a program.
    pub fn of(line: &Value) -> Self {
        let number = |name: &str| line[name].as_f64().unwrap_or(f64::NAN);
        Self {
            program: line["peer"].as_str().unwrap_or_default().to_owned(),
            decode: number("decode_tokens_per_second"),
            prefill: number("prefill_tokens_per_second"),
            peak_rss_mib: number("peak_rss_mib"),
            bytes_per_token: number("bytes_per_token"),
            read_bytes_per_second: number("read_bytes_per_second"),
            decode_bound: number("decode_bound"),
            prefill_bound: number("prefill_bound"),
        }
    }

    /// The run with the median decoding speed, or the slower of the two middle ones. All its figures are of the
    /// same run.
    pub fn median(runs: Vec<Self>) -> Option<Self> {
        median_by(runs, |run| run.decode)
    }

    fn to_json(&self) -> Value {
        // NaN becomes null in JSON.
        json!({
            "program": self.program,
            "decode_tokens_per_second": self.decode,
            "prefill_tokens_per_second": self.prefill,
            "peak_rss_mib": self.peak_rss_mib,
            "bytes_per_token": self.bytes_per_token,
            "read_bytes_per_second": self.read_bytes_per_second,
            "decode_bound": self.decode_bound,
            "prefill_bound": self.prefill_bound,
        })
    }
}

/// Both programs on one model.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The model.
    pub workload: &'static str,
    /// The median run of our binary.
    pub ours: Option<Generation>,
    /// The median run of transformers, if it has the model.
    pub peer: Option<Generation>,
}

/// All models.
#[derive(Debug, Clone)]
pub struct GenerateReport {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Generated tokens.
    pub tokens: usize,
    /// Runs per median.
    pub rounds: usize,
    /// The results of each model.
    pub pairs: Vec<Pair>,
}

impl Report for GenerateReport {
    /// All figures.
    fn to_json(&self) -> Value {
        let models: Vec<Value> = self.pairs.iter().map(Pair::to_json).collect();
        json!({
            "prompt": self.prompt,
            "tokens": self.tokens,
            "rounds": self.rounds,
            "models": models,
        })
    }

    /// A table per model.
    fn to_text(&self) -> String {
        let (prompt, tokens, rounds) = (self.prompt, self.tokens, self.rounds);
        let table = |pair: &Pair| {
            let name = pair.workload;
            let head = format!("{name}, {tokens} tokens after {prompt}, medians of {rounds}\n");
            head + &pair.to_table()
        };
        let tables: Vec<String> = self.pairs.iter().map(table).collect();
        tables.join("\n")
    }
}

impl Pair {
    /// Our tokens/s divided by the peer's: for generation, and for the prompt.
    fn ratios(&self) -> Option<(f64, f64)> {
        let (ours, peer) = self.ours.as_ref().zip(self.peer.as_ref())?;
        Some((ours.decode / peer.decode, ours.prefill / peer.prefill))
    }

    fn to_json(&self) -> Value {
        let ratios = self.ratios();
        json!({
            "model": self.workload,
            "ours": self.ours.as_ref().map(Generation::to_json),
            "peer": self.peer.as_ref().map(Generation::to_json),
            "decode_ratio": ratios.map(|(decode, _)| decode),
            "prefill_ratio": ratios.map(|(_, prefill)| prefill),
        })
    }

    fn to_table(&self) -> String {
        let mut table = Table::new([
            Text("program"),
            Number("tokens/s"),
            Number("prompt, tokens/s"),
            Number("peak MiB"),
        ]);
        for run in self.ours.iter().chain(&self.peer) {
            let speeds = [run.decode, run.prefill].map(|speed| format!("{speed:.1}"));
            let peak = format!("{:.0}", run.peak_rss_mib);
            table.row([&run.program, &speeds[0], &speeds[1], &peak]);
        }
        if let Some(ours) = &self.ours {
            let speeds = [ours.decode_bound, ours.prefill_bound].map(|bound| format!("{bound:.1}"));
            table.row(["bound of this machine", &speeds[0], &speeds[1]]);
        }
        let mut text = table.to_text();
        if let Some(ours) = &self.ours {
            let (decode, prefill) = (ours.decode_bound, ours.prefill_bound);
            text.push_str(&format!(
                "reached: {:.0}% of reading {:.0} MiB of weights per token at {:.1} GB/s, {:.0}% of the maps' products \
                 in the prompt's pass\n",
                100.0 * ours.decode / decode,
                ours.bytes_per_token / f64::from(1 << 20),
                ours.read_bytes_per_second / 1e9,
                100.0 * ours.prefill / prefill
            ));
        }
        if let Some((decode, prefill)) = self.ratios() {
            text.push_str(&format!(
                "ours / transformers: {decode:.2} one by one, {prefill:.2} for the prompt\n"
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(decode: f64) -> Generation {
        Generation::of(&json!({
            "peer": "emberlm 0.1.0 flex",
            "decode_tokens_per_second": decode,
            "prefill_tokens_per_second": 600.0,
            "peak_rss_mib": 700,
            "bytes_per_token": 524_288_000,
            "read_bytes_per_second": 50e9,
            "decode_bound": 100.0,
            "prefill_bound": 1200.0,
        }))
    }

    fn report() -> GenerateReport {
        let peer = Generation::of(&json!({
            "peer": "transformers",
            "decode_tokens_per_second": 40.0,
            "prefill_tokens_per_second": 300.0,
            "peak_rss_mib": 1400,
        }));
        let alone = Pair {
            workload: "pocket",
            ours: Some(ours(80.0)),
            peer: None,
        };
        let pair = Pair {
            workload: "gpt2-small",
            peer: Some(peer),
            ..alone.clone()
        };
        GenerateReport {
            prompt: 256,
            tokens: 64,
            rounds: 3,
            pairs: vec![alone, pair],
        }
    }

    #[test]
    fn the_bound_and_the_ratio_follow_the_table() {
        let tables = report().to_text();
        let lines: Vec<&str> = tables.lines().collect();
        assert_eq!(lines.len(), 5 + 1 + 7, "{tables}");
        assert_eq!(lines[0], "pocket, 64 tokens after 256, medians of 3");
        let reached = "reached: 80% of reading 500 MiB of weights per token at 50.0 GB/s, 50% of";
        assert!(lines[4].starts_with(reached), "{tables}");
        assert_eq!(
            lines[12],
            "ours / transformers: 2.00 one by one, 2.00 for the prompt"
        );
    }

    #[test]
    fn json_has_null_for_missing_figures() {
        let value = report().to_json();
        assert!(value["models"][0]["peer"].is_null());
        assert!(value["models"][0]["decode_ratio"].is_null());
        assert_eq!(value["models"][1]["decode_ratio"], 2.0);
        assert!(value["models"][1]["peer"]["decode_bound"].is_null());
    }

    #[test]
    fn the_median_is_an_actual_run() {
        let median = Generation::median(vec![ours(3.0), ours(1.0), ours(2.0)]);
        assert_eq!(median, Some(ours(2.0)));
        assert_eq!(Generation::median(Vec::new()), None);
    }
}

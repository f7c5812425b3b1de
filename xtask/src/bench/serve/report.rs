//! The result of `cargo xtask bench serve`.

use serde_json::{Value, json};

use super::super::report::Column::Number;
use super::super::report::{Report, Table};
use super::load::Level;
use crate::served::percentile::percentile;

const PARTS: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];

/// The results of all levels.
#[derive(Clone, Debug)]
pub struct ServeReport {
    /// The model's name.
    pub model: String,
    /// The backend.
    pub backend: String,
    /// The format of the weights.
    pub weights: String,
    /// The server's slots.
    pub slots: usize,
    /// Tokens per prompt.
    pub prompt: usize,
    /// Tokens per answer.
    pub tokens: usize,
    /// The sampling temperature.
    pub temperature: f64,
    /// The server's resident memory at the end in MiB, if the operating system reports it.
    pub resident_mib: Option<u64>,
    /// The levels, beginning with one client.
    pub levels: Vec<Level>,
}

impl Report for ServeReport {
    fn to_json(&self) -> Value {
        let levels: Vec<Value> = self.levels.iter().map(|level| self.level(level)).collect();
        json!({
            "model": self.model,
            "backend": self.backend,
            "weights": self.weights,
            "slots": self.slots,
            "prompt": self.prompt,
            "tokens": self.tokens,
            "temperature": self.temperature,
            "rss_mib": self.resident_mib,
            "clients": levels,
        })
    }

    /// A row per number of clients.
    fn to_text(&self) -> String {
        let Self {
            model,
            backend,
            weights,
            slots,
            prompt,
            tokens,
            temperature,
            ..
        } = self;
        let resident = self
            .resident_mib
            .map_or_else(String::new, |mib| format!(", {mib} MiB resident"));
        let mut table = Table::new(
            [
                "clients",
                "requests",
                "tokens/s",
                "times one",
                "first token, ms: p50",
                "p90",
                "p99",
                "each next, ms: p50",
                "p90",
                "p99",
            ]
            .map(Number),
        );
        for level in &self.levels {
            let parts = [&level.first, &level.next].into_iter().flat_map(|figures| {
                PARTS.map(|(_, part)| format!("{:.1}", 1e3 * percentile(figures, part)))
            });
            let cells = [
                level.clients.to_string(),
                level.requests.to_string(),
                format!("{:.1}", level.tokens_per_second()),
                format!("{:.2}", self.ratio(level)),
            ];
            table.row(cells.into_iter().chain(parts));
        }
        format!(
            "{model}, {backend} {weights}, {slots} slots, {tokens} tokens after {prompt} at temperature \
             {temperature}{resident}\n\n{}",
            table.to_markdown()
        )
    }
}

impl ServeReport {
    fn level(&self, level: &Level) -> Value {
        let seconds = |figures: &[f64]| {
            let named =
                PARTS.map(|(name, part)| (name.to_owned(), json!(percentile(figures, part))));
            Value::Object(named.into_iter().collect())
        };
        json!({
            "clients": level.clients,
            "requests": level.requests,
            "tokens_per_second": level.tokens_per_second(),
            "ratio": self.ratio(level),
            "first_token_seconds": seconds(&level.first),
            "token_seconds": seconds(&level.next),
        })
    }

    /// The throughput divided by that of one client.
    fn ratio(&self, level: &Level) -> f64 {
        let one = self
            .levels
            .first()
            .map_or(f64::NAN, Level::tokens_per_second);
        level.tokens_per_second() / one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> ServeReport {
        let level = |clients, tokens| Level {
            clients,
            requests: 2,
            tokens,
            seconds: 2.0,
            first: vec![0.25, 0.5],
            next: vec![0.125],
        };
        ServeReport {
            model: "pocket".to_owned(),
            backend: "flex".to_owned(),
            weights: "f32".to_owned(),
            slots: 16,
            prompt: 8,
            tokens: 4,
            temperature: 1.0,
            resident_mib: Some(300),
            levels: vec![level(1, 100), level(16, 350)],
        }
    }

    #[test]
    fn levels_are_compared_with_one_client() {
        let table = report().to_text();
        assert!(table.starts_with(
            "pocket, flex f32, 16 slots, 4 tokens after 8 at temperature 1, 300 MiB resident\n"
        ));
        let row = "| 16 | 2 | 175.0 | 3.50 | 250.0 | 500.0 | 500.0 | 125.0 | 125.0 | 125.0 |\n";
        assert!(table.ends_with(row), "{table}");
    }

    #[test]
    fn json_has_every_level() {
        let value = report().to_json();
        let many = &value["clients"][1];
        assert_eq!(
            (many["clients"].as_u64(), many["ratio"].as_f64()),
            (Some(16), Some(3.5))
        );
        assert_eq!(many["first_token_seconds"]["p90"], 0.5);
    }
}

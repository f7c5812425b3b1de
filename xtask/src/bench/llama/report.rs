//! The result of `cargo xtask bench llama`.

use serde_json::{Value, json};

use super::super::report::Column::{Number, Text};
use super::super::report::{Report, Table, median};
use super::files::ModelFile;
use super::speed::Speed;

/// The runs of both programs on a file: in each round ours, then llama.cpp's.
#[derive(Debug, Clone)]
pub struct Comparison {
    pub file: ModelFile,
    pub runs: Vec<(Speed, Speed)>,
}

/// All files.
#[derive(Debug, Clone)]
pub struct LlamaReport {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Decoded tokens.
    pub decode: usize,
    pub threads: usize,
    /// Runs per median.
    pub rounds: usize,
    pub comparisons: Vec<Comparison>,
}

/// Medians of a figure over the rounds.
#[derive(Debug, Clone, Copy)]
struct Medians {
    ours: f64,
    theirs: f64,
    /// The median of the rounds' ratios, since both runs of a round have about the same load of the machine.
    ratio: f64,
}

impl Comparison {
    fn medians(&self, figure: impl Fn(&Speed) -> f64) -> Medians {
        let of =
            |value: &dyn Fn(&(Speed, Speed)) -> f64| median(self.runs.iter().map(value).collect());
        Medians {
            ours: of(&|(ours, _)| figure(ours)),
            theirs: of(&|(_, theirs)| figure(theirs)),
            ratio: of(&|(ours, theirs)| figure(ours) / figure(theirs)),
        }
    }

    fn decode(&self) -> Medians {
        self.medians(|speed| speed.decode)
    }

    fn prompt(&self) -> Medians {
        self.medians(|speed| speed.prompt)
    }

    fn peak_mib(&self) -> Medians {
        self.medians(|speed| speed.peak_mib)
    }

    fn file_mib(&self) -> f64 {
        self.file.bytes as f64 / f64::from(1 << 20)
    }
}

impl Medians {
    fn to_json(self) -> Value {
        // NaN becomes null in JSON.
        json!({ "emberlm": self.ours, "llama_cpp": self.theirs, "ratio": self.ratio })
    }

    /// The cells of a table, with `digits` after the point.
    fn cells(self, digits: usize) -> [String; 3] {
        let [ours, theirs] = [self.ours, self.theirs].map(|figure| format!("{figure:.digits$}"));
        [ours, theirs, format!("{:.2}", self.ratio)]
    }
}

impl Report for LlamaReport {
    /// All figures.
    fn to_json(&self) -> Value {
        let files = self.comparisons.iter().map(|comparison| {
            json!({
                "model": comparison.file.model,
                "type": comparison.file.kind.to_string(),
                "file_mib": comparison.file_mib(),
                "decode_tokens_per_second": comparison.decode().to_json(),
                "prompt_tokens_per_second": comparison.prompt().to_json(),
                "peak_mib": comparison.peak_mib().to_json(),
            })
        });
        json!({
            "prompt": self.prompt,
            "decode": self.decode,
            "threads": self.threads,
            "rounds": self.rounds,
            "files": files.collect::<Vec<_>>(),
        })
    }

    /// A table in Markdown for speed, and one for memory.
    fn to_text(&self) -> String {
        let mut speed = Table::new([
            Text("model"),
            Text("type"),
            Number("decoding, tokens/s"),
            Number("llama.cpp"),
            Number("ratio"),
            Number("prompt, tokens/s"),
            Number("llama.cpp"),
            Number("ratio"),
        ]);
        let mut memory = Table::new([
            Text("model"),
            Text("type"),
            Number("file, MiB"),
            Number("peak, MiB"),
            Number("llama.cpp"),
            Number("ratio"),
        ]);
        for comparison in &self.comparisons {
            let file = &comparison.file;
            let name = || [file.model.clone(), file.kind.to_string()];
            let (decode, prompt) = (comparison.decode().cells(1), comparison.prompt().cells(0));
            speed.row(name().into_iter().chain(decode).chain(prompt));
            let size = format!("{:.0}", comparison.file_mib());
            let peak = comparison.peak_mib().cells(0);
            memory.row(name().into_iter().chain([size]).chain(peak));
        }
        let (prompt, decode, threads) = (self.prompt, self.decode, self.threads);
        let rounds = self.rounds;
        format!(
            "A prompt of {prompt} tokens, {decode} decoded tokens, {threads} threads, medians of {rounds} rounds\n\n{}\n{}",
            speed.to_markdown(),
            memory.to_markdown()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::Type;
    use super::*;

    fn report() -> LlamaReport {
        let speed = |decode: f64, peak_mib| Speed {
            decode,
            prompt: 10.0 * decode,
            peak_mib,
        };
        // The machine was slow in the second round.
        let runs = vec![
            (speed(60.0, 150.0), speed(50.0, 300.0)),
            (speed(12.0, 150.0), speed(10.0, 300.0)),
            (speed(70.0, 156.0), speed(56.0, 300.0)),
        ];
        LlamaReport {
            prompt: 256,
            decode: 64,
            threads: 2,
            rounds: 3,
            comparisons: vec![Comparison {
                file: ModelFile {
                    model: "tiny".to_owned(),
                    kind: Type::Q4KM,
                    path: "tiny-Q4_K_M.gguf".into(),
                    bytes: 100 << 20,
                },
                runs,
            }],
        }
    }

    #[test]
    fn the_tables_have_medians_and_ratios() {
        let text = report().to_text();
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("tiny")).collect();
        assert_eq!(
            rows,
            [
                "| tiny | Q4_K_M | 60.0 | 50.0 | 1.20 | 600 | 500 | 1.20 |",
                "| tiny | Q4_K_M | 100 | 150 | 300 | 0.50 |"
            ]
        );
        let heading = "A prompt of 256 tokens, 64 decoded tokens, 2 threads, medians of 3 rounds\n";
        assert!(text.starts_with(heading), "{text}");
    }

    #[test]
    fn json_has_all_figures() {
        let value = report().to_json();
        assert_eq!(value["rounds"], 3);
        let file = &value["files"][0];
        assert_eq!(file["type"], "Q4_K_M");
        assert_eq!(file["decode_tokens_per_second"]["llama_cpp"], 50.0);
        assert_eq!(file["peak_mib"]["ratio"], 0.5);
    }
}

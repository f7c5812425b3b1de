//! The workloads: forward pass, mean cross-entropy, backward pass and AdamW on random token ids.

/// A model with the size of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// nanoGPT's CPU model for Shakespeare: 0.8M parameters, 12 × 64 tokens.
    Char,
    /// PocketTransformer: 48M parameters, 4 × 256 tokens.
    Pocket,
    /// PocketTransformer with 12 × 256 tokens.
    #[value(name = "pocket-12")]
    Pocket12,
    /// GPT-2 small: 124M parameters, 4 × 64 tokens.
    #[value(name = "gpt2-small")]
    Gpt2Small,
}

/// The sizes of a workload.
struct Shape {
    name: &'static str,
    /// Our preset, and the values that override it.
    preset: &'static str,
    overrides: &'static [&'static str],
    /// The name of the preset in the PyTorch twin.
    twin: &'static str,
    /// Measured steps, which take a few seconds.
    steps: usize,
    batch: usize,
    seq: usize,
}

impl Workload {
    fn shape(self) -> Shape {
        let pocket = Shape {
            name: "pocket",
            preset: "pocket",
            overrides: &[],
            twin: "pocket",
            steps: 6,
            batch: 4,
            seq: 256,
        };
        match self {
            Self::Char => Shape {
                name: "char",
                preset: "char-nano",
                overrides: &[],
                twin: "char",
                steps: 100,
                batch: 12,
                seq: 64,
            },
            Self::Pocket => pocket,
            Self::Pocket12 => Shape {
                name: "pocket-12",
                steps: 4,
                batch: 12,
                ..pocket
            },
            Self::Gpt2Small => Shape {
                name: "gpt2-small",
                preset: "gpt2-small",
                // Sequences shorter than the context, as in llm.c's training on CPUs; OpenAI's approximation of
                // GELU.
                overrides: &[
                    "train.seq_len=64",
                    "model.feed_forward.activation=gelu_tanh",
                ],
                twin: "gpt2-small",
                steps: 6,
                batch: 4,
                seq: 64,
            },
        }
    }

    /// The name of the workload.
    pub fn name(self) -> &'static str {
        self.shape().name
    }

    /// The name with the size of a step.
    pub fn title(self) -> String {
        let Shape {
            name, batch, seq, ..
        } = self.shape();
        format!("{name}, {batch} × {seq} tokens")
    }

    /// The arguments of our binary.
    pub fn ours(self) -> Vec<String> {
        let shape = self.shape();
        let mut words = vec!["--preset".to_owned(), shape.preset.to_owned()];
        for setting in shape.overrides {
            words.extend(["--set".to_owned(), (*setting).to_owned()]);
        }
        words.extend(size(&shape));
        words
    }

    /// The arguments of the PyTorch twin.
    pub fn twin(self) -> Vec<String> {
        let shape = self.shape();
        let mut words = vec![shape.twin.to_owned()];
        words.extend(size(&shape));
        words
    }
}

/// Passes all sizes explicitly to both programs, so that their defaults do not matter.
fn size(shape: &Shape) -> [String; 4] {
    let (steps, batch) = (shape.steps.to_string(), shape.batch.to_string());
    ["--steps".to_owned(), steps, "--batch".to_owned(), batch]
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for workload in Workload::value_variants() {
            let value = workload.to_possible_value().unwrap();
            assert_eq!(value.get_name(), workload.name());
        }
    }

    #[test]
    fn gpt2_gets_its_sequence_length() {
        let words = Workload::Gpt2Small.ours().join(" ");
        assert!(words.contains("--set train.seq_len=64"), "{words}");
        assert_eq!(Workload::Gpt2Small.title(), "gpt2-small, 4 × 64 tokens");
    }

    #[test]
    fn the_twin_supports_every_workload() {
        let root = crate::workspace::metadata().unwrap().workspace_root;
        let program = std::fs::read_to_string(root.join("crates/cli/peers/train.py")).unwrap();
        for workload in Workload::value_variants() {
            let entry = format!("\n    \"{}\": dict(", workload.shape().twin);
            assert!(program.contains(&entry), "{entry}");
        }
    }
}

//! `cargo xtask bench draft`: the cost of speculative decoding, and the break-even acceptance rate.

use std::{num::NonZero, path::Path, process::Command};

use serde_json::Value;

use super::programs::{OursArgs, Program, last_json};
use crate::{error::Error, workspace};

/// Arguments of `cargo xtask bench draft`.
#[derive(Debug, clap::Args)]
pub struct DraftArgs {
    /// The model.
    #[arg(long, default_value = "gpt2-small")]
    preset: String,
    /// The preset of the draft model.
    #[arg(long, default_value = "gpt2-small")]
    draft: String,
    /// A value that overrides the draft's preset; repeatable.
    #[arg(long, value_name = "KEY=VALUE", default_values = ["model.n_layers=2", "model.d_model=256", "model.heads=4", "model.kv_heads=4"])]
    draft_set: Vec<String>,
    /// Tokens of the prompt.
    #[arg(long, default_value = "128")]
    prompt: NonZero<usize>,
    /// Tokens to generate.
    #[arg(long, default_value = "32")]
    tokens: NonZero<usize>,
    /// The format of the weights, as in `emberlm-bench generate`.
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    weights: String,
    #[command(flatten)]
    ours: OursArgs,
}

/// Builds, measures and prints a table.
pub fn run(args: &DraftArgs) -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    let binary = args.ours.ready(Program::Bench, &metadata)?;
    let result = last_json(&mut command(args, &binary), "draft")?;
    print!("{}", table(&result));
    Ok(())
}

fn command(args: &DraftArgs, binary: &Path) -> Command {
    let mut command = Command::new(binary);
    command.args(["bench-generate", "--preset", &args.preset]);
    command.args(["--draft", &args.draft]);
    for value in &args.draft_set {
        command.args(["--draft-set", value]);
    }
    command.args(["--prompt", &args.prompt.to_string()]);
    command.args(["--tokens", &args.tokens.to_string()]);
    command.args(["--weights", &args.weights]);
    command.args(["--backend", &args.ours.backend, "--json"]);
    command
}

fn table(result: &Value) -> String {
    let plain = result["decode_tokens_per_second"]
        .as_f64()
        .unwrap_or(f64::NAN);
    let mut text = format!(
        "{} without a draft: {plain:.1} tokens/s\n\n\
         | draft tokens a pass | ms a pass | pays from | at 60% | at 80% | at 90% |\n|---|---|---|---|---|---|\n",
        result["workload"].as_str().unwrap_or_default(),
    );
    for row in result["draft"].as_array().into_iter().flatten() {
        let pays = match row["pays_from"].as_f64() {
            Some(share) => format!("{:.0}%", 100.0 * share),
            None => "never".to_owned(),
        };
        let speedup =
            |at: usize| format!("{:.2} ×", row["speedups"][at].as_f64().unwrap_or(f64::NAN));
        text += &format!(
            "| {} | {:.1} | {pays} | {} | {} | {} |\n",
            row["ahead"],
            1e3 * row["seconds_per_pass"].as_f64().unwrap_or(f64::NAN),
            speedup(0),
            speedup(1),
            speedup(2),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_draft_that_never_pays_is_reported() {
        let row = |ahead: usize, pays: Option<f64>| json!({ "ahead": ahead, "seconds_per_pass": 0.0125, "pays_from": pays, "speedups": [0.5, 1.0, 1.5] });
        let result = json!({ "workload": "small", "decode_tokens_per_second": 100.0,
            "draft": [row(1, Some(0.25)), row(8, None)] });
        assert_eq!(
            table(&result),
            "small without a draft: 100.0 tokens/s\n\n\
             | draft tokens a pass | ms a pass | pays from | at 60% | at 80% | at 90% |\n|---|---|---|---|---|---|\n\
             | 1 | 12.5 | 25% | 0.50 × | 1.00 × | 1.50 × |\n| 8 | 12.5 | never | 0.50 × | 1.00 × | 1.50 × |\n"
        );
    }
}

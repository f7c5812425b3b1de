//! `cargo xtask bench draft`: the cost of speculative decoding, and the break-even acceptance rate.

use std::{num::NonZero, path::Path, process::Command};

use emberlm_system::measure::{Comparison, Metric, Ratio, Sample, Unit};
use serde_json::Value;

use super::programs::{OursArgs, Program, last_json};
use super::session::Session;
use crate::error::Error;

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

/// Builds and measures. A run measures every number of draft tokens.
pub fn run(args: &DraftArgs, session: &mut Session) -> Result<(), Error> {
    let binary = args.ours.ready(Program::Bench, session)?;
    let workload = format!("{}, {}", args.preset, args.weights);
    let mut comparison = Comparison::new(workload, Ratio::OtherToFirst);
    for _ in 0..session.rounds(1) {
        add(
            &mut comparison,
            &last_json(&mut command(args, &binary), "draft")?,
        );
    }
    session.record.comparisons.push(comparison);
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

/// Adds the pass of each number of draft tokens. A draft that never pays off has no break-even rate.
fn add(comparison: &mut Comparison, result: &Value) {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let pass = |seconds| (Metric::new("pass", Unit::Milliseconds), seconds);
    let plain = Sample {
        version: result["peer"].as_str().map(str::to_owned),
        values: vec![pass(1.0 / number(&result["decode_tokens_per_second"]))],
    };
    comparison.add("no draft", plain);
    for row in result["draft"].as_array().into_iter().flatten() {
        let mut values = vec![pass(number(&row["seconds_per_pass"]))];
        let rate = 100.0 * number(&row["pays_from"]);
        values.push((Metric::new("pays off from", Unit::Percent), rate));
        for (at, rate) in ["60%", "80%", "90%"].into_iter().enumerate() {
            let speedup = number(&row["speedups"][at]);
            values.push((Metric::new(format!("at {rate}"), Unit::Ratio), speedup));
        }
        let sample = Sample {
            version: None,
            values,
        };
        comparison.add(&format!("{} draft tokens", row["ahead"]), sample);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_draft_that_never_pays_off_has_no_rate() {
        let row = |ahead: usize, pays: Option<f64>| json!({ "ahead": ahead, "seconds_per_pass": 0.0125, "pays_from": pays, "speedups": [0.5, 1.0, 1.5] });
        let result = json!({ "decode_tokens_per_second": 100.0, "draft": [row(1, Some(0.25)), row(8, None)] });
        let mut comparison = Comparison::new("small", Ratio::OtherToFirst);
        add(&mut comparison, &result);
        let [plain, one, eight] = &comparison.programs[..] else {
            panic!("{comparison:?}")
        };
        assert_eq!(plain.figure("pass, ms").unwrap().shown(), "10.000");
        assert_eq!(one.figure("pays off from, %").unwrap().shown(), "25.0");
        assert_eq!(one.figure("at 90%, ×").unwrap().shown(), "1.50");
        assert_eq!(eight.program, "8 draft tokens");
        assert!(eight.figure("pays off from, %").is_none());
    }
}

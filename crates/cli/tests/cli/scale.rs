//! `emberlm scale`: plans and trains small studies, fits known losses, and refuses unusable input.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::support::{AssertText, Sandbox, close};

/// Two budgets of three models with a context of 16 tokens, which train in a second each.
const PLAN: &str = "scale plan study --data data --flops 4e8 --flops-per-second 1e9 --budgets 2 --sizes 3 --ratio 1 \
    --set model.seq_len=16 --set train.micro_batch=2 --set train.evaluation.tokens=64";

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fs::read_to_string(path.join(name)).unwrap()
}

#[test]
fn a_study_is_planned_trained_and_fitted() {
    let sandbox = Sandbox::with_text("a few words to learn from\n".repeat(60), "char");
    let planned = sandbox.ok(&format!("{PLAN} --dry-run"));
    planned.assert_has("6 runs, about");
    assert!(!sandbox.path("study").exists());
    sandbox.ok(PLAN).assert_has("next: emberlm scale run study");
    let refused = sandbox.refusal(PLAN);
    refused.assert_has("scale.toml exists");

    let commands = sandbox.ok("scale run study --dry-run");
    assert_eq!(commands.lines().count(), 6, "{commands}");
    // One run is trained by hand: the others follow.
    let first = commands.lines().next().unwrap();
    sandbox.succeeds(first.strip_prefix("emberlm ").unwrap());
    let ran = sandbox.succeeds("scale run study");
    ran.says("[6/6]").prints("next: emberlm scale fit study");
    let again = sandbox.succeeds("scale run study --dry-run");
    assert_eq!(again.stdout, "");

    // The same runs with the losses of a known law, since those of a second say little.
    let law = |run: &Value| {
        let [parameters, tokens] = ["parameters", "tokens"].map(|name| run[name].as_f64().unwrap());
        0.5 + 30.0 / parameters.sqrt() + 40.0 / tokens.powf(0.4)
    };
    let folders = sandbox.names_in("study").into_iter();
    let folders: Vec<_> = folders.filter(|name| name.starts_with("model")).collect();
    for folder in &folders {
        let info: Value = sandbox.json(&format!("info study/{folder} --json"));
        let steps = folder
            .split("steps=")
            .last()
            .unwrap()
            .split(',')
            .next()
            .unwrap();
        let tokens = 32 * steps.parse::<u64>().unwrap();
        let run = json!({ "parameters": info["parameters"]["total"], "tokens": tokens });
        let events = format!("study/{folder}/events.jsonl");
        let lines = sandbox.text(&events);
        let lines = lines.lines().map(|line| {
            let mut event: Value = serde_json::from_str(line).unwrap();
            if event["event"] == "evaluation" {
                event["loss"] = law(&run).into();
            }
            format!("{event}\n")
        });
        let lines: String = lines.collect();
        sandbox.write(&events, lines);
    }
    let fit: Value = sandbox.json("scale fit study --resamples 20 --json");
    let runs = fit["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 6);
    for run in runs {
        close(&run["loss"], &law(run).into(), 1e-9);
        // The operations of the runs of a budget differ by the rounding to whole steps.
        let flops = run["flops"].as_f64().unwrap();
        let near = |budget: f64| (flops / budget - 1.0).abs() < 0.05;
        assert!(near(4e8) || near(2e8), "{run}");
    }
    let minima = fit["minima"].as_array().unwrap();
    let sizes: Vec<&Value> = minima.iter().map(|one| &one["sizes"]).collect();
    assert_eq!(sizes, [3, 3]);
    close(&fit["parametric"]["alpha"]["value"], &0.5.into(), 0.02);
    let largest = format!("study/{}", folders[folders.len() - 1]);
    let predicted: Value = sandbox.json(&format!(
        "scale predict study --flops 16e8 --resamples 0 --json --run {largest}"
    ));
    let configuration = &predicted["configuration"];
    close(
        &configuration["loss"]["value"],
        &law(configuration).into(),
        1e-3,
    );
    assert!(predicted["run"]["error"].as_f64().unwrap().abs() < 1e-4);
    let command = predicted["command"].as_str().unwrap();
    let made = command.strip_prefix("emberlm ").unwrap();
    let config = sandbox.ok(&format!("{made} --print-config"));
    let tokens = configuration["tokens"].as_f64().unwrap();
    config.assert_has(&format!("\nsteps = {}\n", tokens / 32.0));
}

#[test]
fn the_runs_of_a_plan_take_the_given_time() {
    let sandbox = Sandbox::with_text("a few words to learn from\n".repeat(60), "char");
    let base = "scale plan study --data data --flops-per-second 1e10 --dry-run";
    let planned = sandbox.ok(&format!("{base} --time 10m --seeds 1 2"));
    planned.assert_has("40 runs, about");
    let minutes = planned.split("about ").nth(1).unwrap();
    let minutes: f64 = minutes.split(' ').next().unwrap().parse().unwrap();
    assert!((9.6..=10.0).contains(&minutes), "{planned}");
    // The tokens of the text are few.
    planned.assert_has("the dataset is repeated up to");
}

/// The coefficients of SciPy have five digits.
#[test]
fn fits_match_scipy() {
    let sandbox = Sandbox::new();
    sandbox.write("points.csv", fixture("scaling_points.csv"));
    let expected: Value = serde_json::from_str(&fixture("scaling_laws.json")).unwrap();
    let fit = |options: &str| -> Value {
        sandbox.json(&format!("scale fit --losses points.csv --json {options}"))
    };
    let (free, fixed) = (
        fit("--resamples 50"),
        fit("--irreducible 1.69 --resamples 0"),
    );
    for (found, expected) in [(&free, &expected["free"]), (&fixed, &expected["fixed"])] {
        let law = &found["parametric"];
        for name in ["irreducible", "a", "b", "alpha", "beta"] {
            close(&law[name]["value"], &expected[name], 2e-4);
        }
        close(&law["objective"], &expected["objective"], 2e-4);
    }
    let minima = free["minima"].as_array().unwrap();
    for (found, expected) in minima.iter().zip(expected["minima"].as_array().unwrap()) {
        close(&found["optimum"]["parameters"], expected, 2e-4);
    }
    // The law that made the losses is within the intervals.
    for (name, value) in [("irreducible", 1.69), ("alpha", 0.34), ("beta", 0.28)] {
        let interval = &free["parametric"][name]["interval"];
        let [low, high] = ["low", "high"].map(|end| interval[end].as_f64().unwrap());
        assert!(low < value && value < high, "{name}: {interval}");
    }
}

#[test]
fn a_fit_is_printed_drawn_and_reported() {
    let sandbox = Sandbox::new();
    sandbox.write("points.csv", fixture("scaling_points.csv"));
    let base = "scale fit --losses points.csv --resamples 20";
    let text = sandbox.ok(base);
    for part in ["N*(C)", "D*(C)", "inside", "mean error"] {
        text.assert_has(part);
    }
    sandbox.ok(&format!("{base} --plot laws.svg --out laws.html"));
    sandbox.ok(&format!("{base} --out laws.md"));
    let [svg, html, markdown] = ["laws.svg", "laws.html", "laws.md"].map(|name| sandbox.text(name));
    assert!(svg.starts_with("<svg") && svg.contains("minima"));
    assert_eq!(html.matches("<svg").count(), 2);
    markdown.assert_has("| FLOPs | sizes |");
    let predicted = sandbox.ok("scale predict --losses points.csv --flops 1e20 --resamples 20");
    predicted.assert_has("parametric law");
    predicted.assert_lacks("train it");
}

#[test]
fn unusable_points_are_refused() {
    let sandbox = Sandbox::new();
    let refused = |text: &str| {
        sandbox.write("points.csv", text);
        sandbox.refusal("scale fit --losses points.csv")
    };
    let head = "parameters,tokens,loss\n";
    for (text, expected) in [
        ("", "the first line must have the column parameters"),
        (
            "parameters,loss\n1,2\n",
            "must have the column tokens (got parameters,loss)",
        ),
        (
            &format!("{head}1e6,2e7,NaN\n"),
            "line 2: `loss` must be finite and above 0 (got NaN)",
        ),
        (
            &format!("{head}1e6,2e7,inf\n"),
            "line 2: `loss` must be finite and above 0 (got inf)",
        ),
        (
            &format!("{head}1e6,-1,3\n"),
            "line 2: `tokens` must be finite and above 0 (got -1)",
        ),
        (
            &format!("{head}\n1e6,2e7\n"),
            "line 3: `loss` must be a number (got \"\")",
        ),
        (
            &format!("{head}many,2e7,3\n"),
            "line 2: `parameters` must be a number (got \"many\")",
        ),
        (head, "at least 6 runs (got 0)"),
        (
            &format!("{head}1e6,2e7,3\n2e6,1e7,3.1\n"),
            "at least 6 runs (got 2)",
        ),
    ] {
        let message = refused(text);
        message.assert_has(expected);
    }
    sandbox.write("points.csv", fixture("scaling_points.csv"));
    let message = sandbox.refusal("scale fit --losses points.csv --irreducible 9");
    message.assert_has("below the lowest loss");
}

#[test]
fn unusable_studies_are_refused() {
    let sandbox = Sandbox::with_text("a few words to learn from\n".repeat(60), "char");
    for (line, expected) in [
        ("scale plan study --data data", "--time <TIME>"),
        (
            "scale plan study --data data --time soon",
            "must be a time above 0, such as 90s, 10m or 2h",
        ),
        (
            "scale plan study --data data --time 1m --sizes 2",
            "3 or more",
        ),
        (
            "scale plan study --data data --time 1m --budgets 1",
            "2 or more",
        ),
        (
            "scale plan study --data data --time 1m --spacing 1",
            "must be 1.3 to 100",
        ),
        (
            "scale plan study --data data --flops 1e3 --flops-per-second 1e9",
            "must have at least 3 model sizes (got 1)",
        ),
        (
            "scale plan study --data data --flops 1e9 --preset bert-nano",
            "scaling laws are those of decoders",
        ),
        ("scale run study", "study has no scale.toml"),
        ("scale fit study", "no run or folder study"),
        ("scale fit data", "data has no finished run"),
        (
            "scale fit data --resamples 1e9",
            "must be a whole number, 0 to 100000",
        ),
        ("scale predict data --flops 0", "must be above 0 and finite"),
    ] {
        sandbox.refusal(line).assert_has(expected);
    }
}

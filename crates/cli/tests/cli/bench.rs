//! `emberlm bench`: the table, the JSON, and models and sizes that it refuses.

use emberlm_model::ModelConfig;
use serde_json::{Value, json};

use super::support::Sandbox;
use super::support::model::{tiny, write_run};

/// A model `run` with a context of 32 tokens.
fn with_model() -> Sandbox {
    let sandbox = Sandbox::new();
    let model = ModelConfig {
        seq_len: 32,
        ..tiny(50)
    };
    write_run(&sandbox.path("run"), &model, None, &[1]);
    sandbox
}

/// The names, tokens and depths of the tests of a model.
fn tests(model: &Value) -> Value {
    let tests = model["tests"].as_array().unwrap().iter();
    tests
        .map(|test| json!([test["test"], test["tokens"], test["depth"]]))
        .collect()
}

#[test]
fn the_table_has_a_row_per_test() {
    let sandbox = with_model();
    let text = sandbox.ok("bench run --prompt-tokens 16 --decode 8 --repeat 2");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect();
    assert_eq!(
        rows[0],
        [
            "model",
            "size",
            "parameters",
            "weights",
            "backend",
            "threads",
            "test",
            "tokens/s",
            "peak memory"
        ]
    );
    let names: Vec<[&str; 2]> = rows[1..].iter().map(|row| [row[0], row[6]]).collect();
    assert_eq!(names, [["run", "pp16"], ["run", "tg8"]], "{text}");
    for row in &rows[1..] {
        let (mean, deviation) = row[7].split_once(" ± ").unwrap();
        assert!(mean.parse::<f64>().unwrap() > 0.0, "{text}");
        assert!(deviation.parse::<f64>().unwrap() >= 0.0, "{text}");
    }
}

#[test]
fn json_has_every_run() {
    let sandbox = with_model();
    let line = "bench run --prompt-tokens 16 --decode 8 --repeat 4 --weights int8 --json";
    let models: Value = sandbox.json(line);
    let model = &models[0];
    assert_eq!(models.as_array().unwrap().len(), 1);
    let info: Value = sandbox.json("info run --json");
    assert_eq!(model["parameters"], info["parameters"]["total"]);
    let f32_bytes = 4 * model["parameters"].as_u64().unwrap();
    assert!(model["bytes"].as_u64().unwrap() < f32_bytes, "{model}");
    for (field, expected) in [
        ("model", json!("run")),
        ("weights", json!("int8")),
        ("batch", json!(1)),
    ] {
        assert_eq!(model[field], expected, "{model}");
    }
    assert_eq!(tests(model), json!([["pp16", 16, 0], ["tg8", 8, 0]]));
    for test in model["tests"].as_array().unwrap() {
        let runs: Vec<f64> = serde_json::from_value(test["runs"].clone()).unwrap();
        assert_eq!(runs.len(), 4);
        let mean = runs.iter().sum::<f64>() / 4.0;
        assert!((test["tokens_per_second"].as_f64().unwrap() / mean - 1.0).abs() < 1e-9);
    }
    #[cfg(target_os = "linux")]
    assert!(model["peak_bytes"].as_u64().unwrap() > f32_bytes, "{model}");
}

#[test]
fn sizes_follow_the_context_and_the_options() {
    let sandbox = with_model();
    for (line, expected) in [
        // A context shorter than the default sizes.
        ("", json!([["pp32", 32, 0], ["tg31", 31, 0]])),
        ("-p 0 -n 4", json!([["tg4", 4, 0]])),
        ("-p 4 -n 0", json!([["pp4", 4, 0]])),
        ("-p 0 --depth 20", json!([["tg12 @ d20", 12, 20]])),
        (
            "-p 4 -n 4 -b 3",
            json!([["pp4 × 3", 4, 0], ["tg4 × 3", 4, 0]]),
        ),
        (
            "-p 32 -n 31 -b 2",
            json!([["pp32 × 2", 32, 0], ["tg31 × 2", 31, 0]]),
        ),
    ] {
        let models: Value = sandbox.json(&format!("bench run --repeat 1 --json {line}"));
        assert_eq!(tests(&models[0]), expected, "{line}");
    }
}

#[test]
fn several_models_are_measured_one_after_the_other() {
    let sandbox = with_model();
    let small = json!([["pp8", 8, 0], ["tg4", 4, 0]]);
    write_run(&sandbox.path("larger"), &tiny(400_000), None, &[1]);
    let models: Value = sandbox.json("bench larger run -p 8 -n 4 --repeat 2 --json");
    let [larger, run] = &models.as_array().unwrap()[..] else {
        panic!("{models}");
    };
    assert_eq!(
        (&larger["model"], &run["model"]),
        (&json!("larger"), &json!("run"))
    );
    assert_eq!((tests(larger), tests(run)), (small.clone(), small));
    // Each has a process, so the peak of the second does not include the weights of the first.
    #[cfg(target_os = "linux")]
    assert!(run["peak_bytes"].as_u64() < larger["peak_bytes"].as_u64());
    let text = sandbox.ok("bench larger run -p 8 -n 4 --repeat 1");
    assert_eq!(text.lines().count(), 5, "{text}");
}

#[test]
fn impossible_sizes_and_other_kinds_of_models_are_refused() {
    with_model().check_messages("bench");
}

//! Random search, and runs that are stopped early.

use serde_json::Value;

use super::{Sandbox, TINY};

#[test]
fn random_search_is_reproducible_and_recorded() {
    let random = "\"train.schedule.min_learning_rate\" = 0.0\n[random]\nruns = 3\nseed = 5\n[random.space]\n\"train.schedule.learning_rate\" = { log_uniform = [1e-4, 1e-2] }\n";
    let sandbox = Sandbox::with_sweep(random);
    let commands = sandbox.ok("sweep rates.toml --dry-run");
    assert_eq!(commands.lines().count(), 3, "{commands}");
    assert_eq!(sandbox.ok("sweep rates.toml --dry-run"), commands);
    sandbox.write_sweep(&random.replace("seed = 5", "seed = 6"));
    assert_ne!(sandbox.ok("sweep rates.toml --dry-run"), commands);
    sandbox.write_sweep(random);
    let ran = sandbox.succeeds("sweep rates.toml --json");
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(summary["configurations"].as_array().unwrap().len(), 3);
    let record = sandbox.text("runs/rates/sweep.json");
    let record: Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["random_seed"], 5);
    let seeds = record["runs"].as_object().unwrap().values();
    assert!(seeds.clone().all(|run| run["train"]["seed"].is_u64()));
    // More draws keep the earlier ones.
    sandbox.write_sweep(&random.replace("runs = 3", "runs = 4"));
    let more = sandbox.ok("sweep rates.toml --dry-run");
    assert_eq!(more.lines().count(), 1, "{more}");
}

#[test]
fn bad_runs_are_stopped_early() {
    // The third run learns nothing at a learning rate of almost 0, and would take much longer than the
    // others.
    let list = "[[list]]\n\"train.schedule.learning_rate\" = 1e-2\n\"train.steps\" = 40\n\
        [[list]]\n\"train.schedule.learning_rate\" = 9e-3\n\"train.steps\" = 40\n\
        [[list]]\n\"train.schedule.learning_rate\" = 1e-9\n\"train.steps\" = 4000\n\
        [early_stopping]\nrule = \"median\"\nafter = 2\nruns = 2\n";
    let sandbox = Sandbox::with_sweep("");
    let common = TINY.replace(
        "\"train.steps\" = 3\n",
        "\"train.schedule.warmup_steps\" = 0\n\"train.schedule.min_learning_rate\" = 0.0\n",
    );
    sandbox.write("rates.toml", format!("{common}{list}"));
    let ran = sandbox.succeeds("sweep rates.toml --json");
    ran.says("stopped early (validation loss");
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    let runs = summary["configurations"].as_array().unwrap().iter();
    let runs: Vec<&Value> = runs.map(|one| &one["runs"][0]).collect();
    let stopped: Vec<_> = runs.iter().filter(|run| run["finished"] == false).collect();
    assert_eq!(stopped.len(), 1, "{summary}");
    let early = &stopped[0]["stopped_early"];
    assert!(early["loss"].as_f64().unwrap() > early["limit"].as_f64().unwrap());
    // Nothing is left to do until the rule is removed.
    assert_eq!(sandbox.ok("sweep rates.toml --dry-run"), "");
    let text = sandbox.text("rates.toml");
    let without = text.split("[early_stopping]").next().unwrap().to_owned();
    sandbox.write("rates.toml", without);
    let left = sandbox.ok("sweep rates.toml --dry-run");
    assert!(
        left.contains("--resume") && left.lines().count() == 1,
        "{left}"
    );
}

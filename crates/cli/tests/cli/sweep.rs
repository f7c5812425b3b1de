//! `emberlm sweep`: starts, stops and extends sweeps of small runs.

mod search;

use std::fs;

use serde_json::Value;

use super::support::{AssertText, Sandbox, wait_until};

/// A model that trains quickly.
const TINY: &str = "data = \"data\"
[set]
\"model.d_model\" = 16
\"model.n_layers\" = 1
\"model.heads\" = 2
\"model.kv_heads\" = 2
\"model.seq_len\" = 16
\"model.feed_forward.width\" = 32
\"train.micro_batch\" = 2
\"train.evaluation.sample_tokens\" = 0
\"train.steps\" = 3
\"train.evaluation.interval\" = 1
";

impl Sandbox {
    fn with_sweep(rest: &str) -> Self {
        let sandbox = Self::with_text("a few words to learn from\n".repeat(30), "char");
        sandbox.write_sweep(rest);
        sandbox
    }

    fn write_sweep(&self, rest: &str) {
        self.write("rates.toml", format!("{TINY}{rest}"));
    }

    /// The validation losses of a run, in order.
    fn validation(&self, run: &str) -> Vec<f64> {
        let text = self.text(format!("runs/rates/{run}/events.jsonl"));
        let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
        events
            .filter(|event: &Value| event["event"] == "evaluation")
            .map(|event| event["loss"].as_f64().unwrap())
            .collect()
    }
}

const GRID: &str = "[grid]
\"train.schedule.learning_rate\" = [1e-3, 3e-3]
\"train.seed\" = [1, 2]
";

#[test]
fn a_grid_is_trained_compared_and_extended() {
    let sandbox = Sandbox::with_sweep(GRID);
    let ran = sandbox.succeeds("sweep rates.toml --json --parallel 2");
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    let configurations = summary["configurations"].as_array().unwrap();
    assert_eq!(configurations.len(), 2);
    for configuration in configurations {
        let name = configuration["name"].as_str().unwrap();
        let rate = configuration["settings"]["train.schedule.learning_rate"]
            .as_f64()
            .unwrap();
        assert_eq!(name, format!("schedule.learning_rate={rate}"));
        let [a, b] = [1, 2].map(|seed| sandbox.validation(&format!("{name},seed={seed}")));
        let last = [a[2], b[2]];
        let lowest = [&a, &b].map(|losses| losses.iter().copied().fold(f64::INFINITY, f64::min));
        for (field, [x, y]) in [
            ("validation_loss", last),
            ("lowest_validation_loss", lowest),
        ] {
            let near = |value: &Value, expected: f64| {
                assert!(
                    (value.as_f64().unwrap() - expected).abs() < 1e-9,
                    "{field}: {configuration}"
                );
            };
            let found = &configuration[field];
            assert_eq!(found["count"], 2);
            near(&found["mean"], (x + y) / 2.0);
            // Student's t at 0.975 with one degree of freedom is 12.706, and s / sqrt(2) is half the
            // difference.
            near(
                &found["half_width"],
                12.706_204_736_432_095 * (x - y).abs() / 2.0,
            );
        }
    }
    let means = configurations
        .iter()
        .map(|one| one["validation_loss"]["mean"].as_f64().unwrap());
    assert!(means.is_sorted(), "{summary}");
    for file in [
        "sweep.svg",
        "sweep.html",
        "schedule.learning_rate=0.001,seed=1/log.txt",
    ] {
        let text = fs::read_to_string(sandbox.path("runs/rates").join(file)).unwrap();
        assert!(!text.is_empty(), "{file}");
    }

    // A second invocation has nothing to do.
    let before = sandbox.validation("schedule.learning_rate=0.003,seed=2");
    let again = sandbox.succeeds("sweep rates.toml");
    again.stderr.assert_lacks("started");
    again.prints("configuration");
    again.prints(" ± ");
    assert_eq!(
        sandbox.validation("schedule.learning_rate=0.003,seed=2"),
        before
    );

    // Additional seeds only add new runs.
    sandbox.write_sweep(&GRID.replace("[1, 2]", "[1, 2, 3]"));
    assert_eq!(sandbox.ok("sweep rates.toml --dry-run").lines().count(), 2);
    let more = sandbox.succeeds("sweep rates.toml");
    assert_eq!(more.stderr.matches("started").count(), 2, "{more}");
    assert_eq!(
        more.stderr.matches(" s, step 3/3 loss ").count(),
        2,
        "{more}"
    );

    // A different sweep in the same folder is rejected.
    sandbox.write_sweep(&GRID.replace("[1, 2]", "[1]"));
    sandbox.check_messages("sweep_changed");
    sandbox.write(
        "rates.toml",
        format!("{TINY}{GRID}").replace("= 3\n", "= 4\n"),
    );
    let changed = sandbox.words("sweep rates.toml");
    changed.says("train.steps was 3 and now is 4");
    assert_eq!(changed.code, Some(1));
}

#[test]
fn a_dry_run_prints_commands_that_work() {
    let sandbox = Sandbox::with_sweep(
        "[[list]]\n\"model.norm.epsilon\" = 1e-6\n[[list]]\n\"train.optimizer.beta1\" = 0.8\n",
    );
    let text = sandbox.ok("sweep rates.toml --dry-run --out out");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[1].contains(" --set train.optimizer.beta1=0.8 --out out/optimizer.beta1=0.8 "),
        "{text}"
    );
    assert_eq!(sandbox.names(), ["data", "rates.toml", "text.txt"]);
    sandbox.succeeds(lines[1].strip_prefix("emberlm ").unwrap());
    // Unfinished runs are resumed.
    sandbox.write("out/model.norm.epsilon=0.000001/config.toml", "");
    let text = sandbox.ok("sweep rates.toml --dry-run --out out");
    let expected = "emberlm train --resume out/model.norm.epsilon=0.000001 --restart --renderer plain --backend ";
    assert!(
        text.starts_with(expected) && text.lines().count() == 1,
        "{text}"
    );
}

#[test]
fn adapters_are_swept_on_preferences() {
    let sandbox = Sandbox::with_text("a few words to learn from\n".repeat(30), "byte");
    let pair = |i: usize| {
        let sum = i % 5 + 2;
        format!(
            "{{\"prompt\": \"{}+2=\", \"chosen\": \"{sum}.\", \"rejected\": \"{sum}!\"}}\n",
            i % 5
        )
    };
    sandbox.write("pairs.jsonl", (0..20).map(pair).collect::<String>());
    let base = "train --data data --preset char-nano --steps 2 --out base --renderer plain --set model.n_layers=1 \
        --set model.d_model=16 --set model.heads=2 --set model.seq_len=32 --set train.evaluation.sample_tokens=0";
    sandbox.succeeds(base);
    let sweep = "from = \"base\"\ndata = \"pairs.jsonl\"\n[set]\n\"train.steps\" = 2\n\"train.micro_batch\" = 2\n\
        [grid]\n\"train.objective.beta\" = [0.1, 0.5]\n\"train.objective.kind\" = [\"dpo\"]\n\"train.adapter.rank\" = [2, 4]\n";
    sandbox.write("preferences.toml", sweep);
    let table = sandbox.succeeds("sweep preferences.toml --out out").stdout;
    for rank in [2, 4] {
        for beta in [0.1, 0.5] {
            let run = format!("adapter.rank={rank},objective.beta={beta},objective.kind=dpo");
            table.assert_has(&run);
            let events = sandbox.text(format!("out/{run}/events.jsonl"));
            events.assert_has("reward_accuracy");
        }
    }
}

#[test]
fn failed_runs_are_reported_and_others_are_kept() {
    let sandbox = Sandbox::with_sweep(
        "[[list]]\n\"train.from\" = \"nowhere\"\n[[list]]\n\"train.seed\" = 5\n",
    );
    let ran = sandbox.words("sweep rates.toml").exits(1);
    for part in [
        "from=nowhere: failed",
        "from=nowhere failed; runs/rates/from=nowhere/log.txt ends in",
        "  error: ",
        "error: 1 of 2 runs failed",
        "hint: repeat the command to retry them",
        "seed=5: finished",
    ] {
        ran.says(part);
    }
    ran.prints("\n  all ");
    ran.prints("\n  from=nowhere   0 of 1 ");
}

/// Sweep files whose runs would exhaust memory or time, and keys deep enough to overflow a stack.
#[test]
fn hostile_sweep_files_are_refused() {
    let numbers: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    let list = numbers.join(",");
    let keys = (0..9).map(|key| format!("\"train.k{key}\" = [{list}]\n"));
    let huge = format!("[grid]\n{}", keys.collect::<String>());
    let deep = format!("[grid]\n\"a{}\" = [1]\n", ".a".repeat(50_000));
    let random = |runs: &str| {
        format!(
            "[random]\nruns = {runs}\n[random.space]\n\"train.seed\" = {{ integer = [1, 9] }}\n"
        )
    };
    let sandbox = Sandbox::with_sweep("");
    for (rest, message) in [
        (huge, "it must have at most 10000 runs (got more than 2^64"),
        (
            random("1000000000000"),
            "at most 10000 runs (got 1000000000000,",
        ),
        (
            random("100"),
            "its space has only 9 configurations that differ",
        ),
        (random("-1"), "line "),
        (deep, "expected one of `model`, `data`"),
        (
            "[grid]\n\"train.schedule.learning_rate\" = [nan]\n".to_owned(),
            "must be 0 or above, and finite",
        ),
        (
            "[grid]\n\"train.seed\" = [1, 1]\n".to_owned(),
            "two runs have the name seed=1",
        ),
    ] {
        sandbox.write_sweep(&rest);
        let ran = sandbox.sh("ulimit -v 16777216; timeout 120 \"$EMBERLM\" sweep rates.toml");
        assert!(matches!(ran.code, Some(1 | 2)), "{message}: {ran}");
        ran.says(message);
        assert!(!sandbox.path("runs").exists());
    }
    let key = "a.".repeat(50_000);
    let ran = sandbox.words(&format!("train --data data --set {key}a=1 --out refused"));
    assert!(
        ran.code == Some(2) && ran.stderr.contains("expected one of `model`"),
        "{ran}"
    );
    // Names of runs stay in the sweep's folder, whatever the values are.
    sandbox.write_sweep("[grid]\n\"train.from\" = [\"../../x\", \"/etc\", \"a\\u001b[31m\"]\n");
    let ran = sandbox.words("sweep rates.toml --dry-run");
    let folders = ran.stdout.split("--out runs/rates/").skip(1);
    let names: Vec<&str> = folders.filter_map(|rest| rest.split(' ').next()).collect();
    assert_eq!(names.len(), 3, "{ran}");
    assert!(
        names.iter().all(|name| !name.contains(['/', '\u{1b}'])),
        "{names:?}"
    );
}

#[test]
fn an_invalid_run_prevents_the_sweep() {
    let sandbox = Sandbox::with_sweep("[grid]\n\"train.seed\" = [1]\n");
    for (name, rest) in [
        ("key", "[grid]\n\"train.learning_rat\" = [1]\n"),
        ("type", "[grid]\n\"train.steps\" = [1, \"many\"]\n"),
        ("range", "[grid]\n\"train.micro_batch\" = [1, 0]\n"),
        ("heads", "[grid]\n\"model.heads\" = [2, 3]\n"),
        ("window", "[grid]\n\"train.seq_len\" = [99]\n"),
        ("none", "[grid]\n\"train.seed\" = []\n"),
        ("number", "[grid]\n\"train.seed\" = 1\n"),
        ("twice", "[grid]\n\"train.seed\" = [1, 1]\n"),
        ("empty", ""),
        ("table", "[gird]\n"),
    ] {
        sandbox.write(&format!("{name}.toml"), format!("{TINY}{rest}"));
    }
    let file = sandbox.text("rates.toml");
    for (name, from, to) in [
        ("data", "data = \"data\"", "data = \"nowhere\""),
        ("preset", "data = ", "preset = \"x\"\ndata = "),
        ("config", "data = ", "config = \"x.toml\"\ndata = "),
    ] {
        sandbox.write(&format!("{name}.toml"), file.replace(from, to));
    }
    sandbox.check_messages("sweep");
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_the_runs_with_a_checkpoint() {
    use std::process::Stdio;

    let sandbox = Sandbox::with_sweep("");
    let long = TINY.replace("\"train.steps\" = 3", "\"train.steps\" = 1000000");
    let long = long.replace(
        "\"train.evaluation.interval\" = 1",
        "\"train.evaluation.interval\" = 1000000",
    );
    sandbox.write(
        "rates.toml",
        format!("{long}[grid]\n\"train.seed\" = [1, 2, 3]\n"),
    );
    let mut command = sandbox.command(["sweep", "rates.toml", "--parallel", "2"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let events = |seed: u32| sandbox.path(format!("runs/rates/seed={seed}/events.jsonl"));
    let begun =
        |seed: u32| fs::read_to_string(events(seed)).is_ok_and(|text| text.contains("\"step\""));
    wait_until("a step of both runs", || begun(1) && begun(2));
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    stderr.assert_has("error: stopped with 0 of 3 runs finished");
    stderr.assert_has("hint: repeat the command to continue the sweep");
    for seed in [1, 2] {
        let checkpoints = fs::read_dir(sandbox.path(format!("runs/rates/seed={seed}/checkpoints")));
        assert_eq!(checkpoints.unwrap().count(), 1);
    }
    assert!(!events(3).exists());
}

#[cfg(unix)]
#[test]
fn a_killed_sweep_resumes() {
    use std::time::Duration;

    use rustix::process::{Pid, Signal, kill_process};

    let settings = TINY
        .replace(
            "\"train.steps\" = 3",
            "\"train.steps\" = 1500\n\"train.checkpoints.interval\" = 50",
        )
        .replace(
            "\"train.evaluation.interval\" = 1",
            "\"train.evaluation.interval\" = 300",
        );
    let file = format!("{settings}[grid]\n\"train.seed\" = [1, 2]\n");
    let [alone, killed] = [(), ()].map(|()| {
        let sandbox = Sandbox::with_sweep("");
        sandbox.write("rates.toml", &file);
        sandbox
    });
    alone.succeeds("sweep rates.toml");

    let mut sweep = killed.background("sweep rates.toml");
    let run = killed.path("runs/rates/seed=1");
    let checkpoint = run.join("checkpoints/step-00000050");
    wait_until("a checkpoint", || checkpoint.exists());
    sweep.kill().unwrap();
    sweep.wait().unwrap();
    // The run is a separate process. Its lock file contains the process id.
    let number = fs::read_to_string(run.join("lock")).unwrap();
    let process = Pid::from_raw(number.parse().unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
    // The orphaned process is not a child of this one and cannot be waited for.
    std::thread::sleep(Duration::from_millis(300));

    killed.succeeds("sweep rates.toml");
    let text = fs::read_to_string(run.join("events.jsonl")).unwrap();
    assert_eq!(text.matches("\"event\":\"begun\"").count(), 2, "{text}");
    for seed in [1, 2] {
        let run = format!("seed={seed}");
        assert_eq!(alone.validation(&run), killed.validation(&run));
        let weights = |sandbox: &Sandbox| sandbox.weights(&format!("runs/rates/{run}"), 1500);
        assert!(weights(&alone) == weights(&killed));
    }
}

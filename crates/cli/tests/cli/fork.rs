//! Forks of runs, and settings that a resumed run must keep.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::support::{AssertText, Sandbox};

/// Settings with dropout, whose schedule does not depend on the number of steps.
const LINE: &str = "--data data --set model.dropout=0.1 --set train.schedule.kind=warmup_stable_decay \
    --set train.schedule.warmup_steps=2 --set train.schedule.cooldown_steps=1 --set train.schedule.decay_steps=1000";

/// A run of 8 steps with checkpoints at 2, 4, 6 and 8.
fn with_run() -> Sandbox {
    let sandbox = Sandbox::with_data();
    let line = format!("{LINE} --out run --steps 8 --set train.checkpoints.interval=2");
    sandbox.trains(&line);
    sandbox
}

fn listed(sandbox: &Sandbox, name: &str) -> Value {
    let runs: Value = sandbox.json("runs . --json");
    let runs = runs.as_array().unwrap();
    let run = runs.iter().find(|run| run["name"] == name);
    run.unwrap().clone()
}

#[test]
fn a_fork_without_changes_equals_its_run() {
    let sandbox = with_run();
    let before = sandbox.files("run");
    for (number, target) in [
        "run/checkpoints/step-00000004",
        "run/checkpoints/4",
        "run/checkpoints/4/",
    ]
    .into_iter()
    .enumerate()
    {
        let out = format!("fork{number}");
        let line = format!("train --resume {target} --out {out} --renderer plain");
        let ran = sandbox.succeeds(&line);
        ran.says("after step 4 into");
        assert_eq!(sandbox.losses(&out), sandbox.losses("run"));
        let last = |run: &str, file: &str| {
            sandbox.bytes(format!("{run}/checkpoints/step-00000008/{file}"))
        };
        for file in [
            "model.safetensors",
            "optimizer.safetensors",
            "state.json",
            "settings.toml",
        ] {
            assert_eq!(last(&out, file), last("run", file), "{file}");
        }
        let parent = &listed(&sandbox, &out)["parent"];
        assert!(
            PathBuf::from(parent["run"].as_str().unwrap()).ends_with("run"),
            "{parent}"
        );
        assert_eq!(
            (&parent["step"], &parent["changes"]),
            (&json!(4), &json!({}))
        );
    }
    assert_eq!(sandbox.files("run"), before, "the run is left as it is");
    let text = sandbox.ok("runs .");
    text.assert_has("forked from");
    text.assert_has("run@4");
    // A fork is a run like others.
    sandbox.succeeds("train --resume fork0 --steps 9 --renderer plain");
}

#[test]
fn a_fork_changes_settings_and_records_them() {
    let sandbox = with_run();
    // The cooldown of a schedule without an end.
    let cooled =
        "--set train.schedule.decay_steps=0 --set train.schedule.cooldown_steps=4 --steps 8";
    let line = format!("train --resume run/checkpoints/4 --out cooled --renderer plain {cooled}");
    sandbox.succeeds(&line);
    let rates: Vec<f64> = sandbox
        .events("cooled", "step")
        .iter()
        .map(|step| step["learning_rate"].as_f64().unwrap())
        .collect();
    assert_eq!(rates[3], 0.005);
    assert!(
        rates[4..].is_sorted_by(|a, b| a > b) && rates[7] < 0.002,
        "{rates:?}"
    );
    assert_eq!(sandbox.losses("cooled")[..5], sandbox.losses("run")[..5]);
    assert_ne!(sandbox.weights("cooled", 8), sandbox.weights("run", 8));
    let changes = &listed(&sandbox, "cooled")["parent"]["changes"];
    let expected = json!({
        "train.schedule.cooldown_steps": {"was": 1, "is": 4},
        "train.schedule.decay_steps": {"was": 1000, "is": 0},
    });
    assert_eq!(*changes, expected);
    // A fork of a fork has both as ancestors.
    let line =
        "train --resume cooled --out twice --renderer plain --steps 10 --learning-rate 0.002";
    sandbox.succeeds(line);
    let twice = listed(&sandbox, "twice");
    let of = |run: &Value| PathBuf::from(run["run"].as_str().unwrap());
    assert!(of(&twice["parent"]).ends_with("cooled"), "{twice}");
    assert!(of(&twice["ancestors"][0]).ends_with("run"), "{twice}");
    assert_eq!(twice["ancestors"][0]["step"], 4);
}

#[test]
fn a_fork_keeps_its_position_in_the_same_data() {
    let sandbox = with_run();
    // Half the batch, twice the accumulation: the same sequences.
    let line = "train --resume run/checkpoints/4 --out halves --batch-size 2 --accumulation 2 --renderer plain";
    sandbox.succeeds(line);
    let [halves, whole] = ["halves", "run"].map(|run| sandbox.events(run, "step"));
    assert_eq!(halves[7]["tokens"], whole[7]["tokens"]);
    // Half the batch: half the tokens from there on, and the sequences that follow those of the checkpoint.
    let line =
        "train --resume run/checkpoints/4 --out half --batch-size 2 --renderer plain --steps 12";
    sandbox.succeeds(line);
    let half = sandbox.events("half", "step");
    assert_eq!(half[11]["tokens"], whole[7]["tokens"]);
    assert_eq!(half[4]["tokens"].as_u64(), Some(4 * 4 * 32 + 2 * 32));
    // Resuming keeps the position.
    let line = "train --resume run/checkpoints/4 --out parts --batch-size 2 --renderer plain --steps 6 \
        --set train.checkpoints.interval=1";
    sandbox.succeeds(line);
    sandbox.succeeds("train --resume parts --steps 12 --renderer plain");
    assert_eq!(sandbox.losses("parts"), sandbox.losses("half"));
    assert_eq!(sandbox.weights("parts", 12), sandbox.weights("half", 12));
    // Another order starts again, with a note.
    let ran = sandbox.succeeds("train --resume run --out seed --seed 9 --steps 9 --renderer plain");
    let expected = "the data is read from its beginning: train.seed has changed";
    ran.says(expected);
    let text: String = (0..400)
        .map(|i| format!("{i} and {} make {}\n", i + 2, 2 * i + 2))
        .collect();
    sandbox.write("text.txt", text);
    sandbox.ok("prepare text.txt --out other --tokenizer char");
    let message = sandbox.refusal("train --resume run --data other --steps 9 --renderer plain");
    message.assert_has("--out NEW --data other");
    let ran =
        sandbox.succeeds("train --resume run --out data2 --data other --steps 9 --renderer plain");
    ran.says("read from its beginning: it is other data");
}

#[test]
fn a_fork_with_another_optimizer_has_a_new_state_and_keeps_the_model() {
    let sandbox = with_run();
    let line =
        "train --resume run --out lion --set train.optimizer.kind=lion --steps 9 --renderer plain";
    let ran = sandbox.succeeds(line);
    ran.says("the optimizer starts with a new state");
    sandbox.succeeds("train --resume lion --steps 10 --renderer plain");
    sandbox
        .succeeds("train --resume run --out calm --set model.dropout=0 --steps 9 --renderer plain");
    sandbox.check_messages("fork_changes");
}

#[test]
fn forks_of_adapters_and_preferences_are_exact() {
    let sandbox = with_run();
    let pairs = (0..40).map(|i| {
        let pair = json!({"prompt": format!("{i} and"), "chosen": format!(" {} make", i + 1), "rejected": " 0"});
        pair.to_string() + "\n"
    });
    sandbox.write("pairs.jsonl", pairs.collect::<String>());
    let prompts =
        (0..40).map(|i| json!({"prompt": format!("{i} and"), "answer": "1"}).to_string() + "\n");
    sandbox.write("prompts.jsonl", prompts.collect::<String>());
    let more = "--steps 4 --batch-size 4 --accumulation 1 --set train.checkpoints.interval=1 --renderer plain";
    for (name, options) in [
        ("lora", "--adapter lora --data data"),
        ("dpo", "--objective dpo --data pairs.jsonl"),
        (
            "grpo",
            "--objective grpo --data prompts.jsonl --set train.objective.group=4 --set train.objective.beta=0.1 \
             --set train.objective.max_new_tokens=4 --set train.objective.iterations=2 \
             --set train.objective.rewards=[{kind='exact_match',field='answer'}]",
        ),
    ] {
        sandbox.succeeds(&format!("train --from run --out {name} {options} {more}"));
        // The third step of `grpo` trains on completions of the second.
        let line =
            format!("train --resume {name}/checkpoints/3 --out {name}-fork --renderer plain");
        sandbox.succeeds(&line);
        let fork = sandbox.checkpoint(&format!("{name}-fork"), 4);
        assert!(fork == sandbox.checkpoint(name, 4), "{name}");
    }
    sandbox.write("other.jsonl", sandbox.text("pairs.jsonl").repeat(2));
    sandbox.check_messages("fork_objectives");
}

#[test]
fn an_edited_configuration_is_refused_with_both_values() {
    let sandbox = with_run();
    let config = sandbox.path("run/config.toml");
    let original = fs::read_to_string(&config).unwrap();
    let edited = original
        .replace("beta1 = 0.9\n", "beta1 = 0.8\n")
        .replace("micro_batch = 4\n", "micro_batch = 2\n");
    assert_ne!(edited, original);
    fs::write(&config, &edited).unwrap();
    sandbox.check_messages("fork_edited");
    // An option that restores the value, or the restored file, is the same run.
    let line = "train --resume run --steps 9 --batch-size 4 --set train.optimizer.beta1=0.9";
    sandbox.succeeds(&format!("{line} --renderer plain"));
    // Settings that may change may be edited.
    let config_text = fs::read_to_string(&config).unwrap();
    fs::write(&config, config_text.replace("steps = 9\n", "steps = 10\n")).unwrap();
    sandbox.succeeds("train --resume run --renderer plain");
    assert_eq!(sandbox.losses("run").len(), 10);
    // Runs of earlier versions have no settings in their checkpoints.
    for step in sandbox.steps("run") {
        let folder = format!("run/checkpoints/step-{step:08}");
        fs::remove_file(sandbox.path(&folder).join("settings.toml")).unwrap();
        sandbox.edit(format!("{folder}/manifest.json"), |entries| {
            entries.as_object_mut().unwrap().remove("settings.toml");
        });
    }
    sandbox.succeeds("train --resume run --steps 11 --renderer plain");
}

#[test]
fn the_folder_of_a_checkpoint_is_resumed_or_forked() {
    let sandbox = with_run();
    let ran =
        sandbox.succeeds("train --resume run/checkpoints/step-00000008 --steps 9 --renderer plain");
    ran.says("Resuming run after step 8");
    sandbox.succeeds("train --resume run/checkpoints --steps 10 --renderer plain");
    // A copy of a checkpoint has its settings.
    let copy = sandbox.path("copy");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(sandbox.path("run/checkpoints/step-00000004")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    sandbox.check_messages("fork_checkpoints");
    sandbox.succeeds("train --resume copy --out from-copy --steps 8 --renderer plain");
    assert_eq!(sandbox.weights("from-copy", 8), sandbox.weights("run", 8));
}

#[test]
fn a_fork_whose_creation_was_interrupted_is_not_begun_again() {
    let sandbox = with_run();
    sandbox.succeeds("train --resume run/checkpoints/4 --out fork --renderer plain");
    fs::remove_dir_all(sandbox.path("fork/checkpoints")).unwrap();
    sandbox.check_messages("fork_interrupted");
}

#[test]
fn evaluations_write_checkpoints_that_newer_ones_replace() {
    let sandbox = Sandbox::with_data();
    let steps = |run: &str| sandbox.steps(run);
    let written = |run: &str| -> Vec<u64> {
        let checkpoints = sandbox.events(run, "checkpoint");
        checkpoints
            .iter()
            .map(|event| event["step"].as_u64().unwrap())
            .collect()
    };
    let line = "--data data --steps 10 --eval-interval 3 --set train.checkpoints.interval=4";
    sandbox.trains(&format!("{line} --out run"));
    assert_eq!(written("run"), [3, 4, 6, 8, 9, 10]);
    assert_eq!(steps("run"), [4, 8, 10]);
    sandbox.trains(&format!("{line} --out two --keep-last 2"));
    assert_eq!(steps("two"), [8, 10]);
    let off = "--set train.checkpoints.at_evaluations=false";
    sandbox.trains(&format!("{line} --out off {off}"));
    assert_eq!(written("off"), [4, 8, 10]);
    assert_eq!(sandbox.weights("off", 10), sandbox.weights("run", 10));
}

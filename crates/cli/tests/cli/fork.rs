//! Forks of runs, and settings that a resumed run must keep.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::support::train::trained;
use super::support::{CommandOutput, Sandbox};

fn refused(ran: CommandOutput) -> String {
    assert!(matches!(ran.code, Some(1 | 2)), "{ran}");
    assert_eq!(ran.stdout, "");
    ran.stderr
}

/// Settings with dropout, whose schedule does not depend on the number of steps.
const LINE: &str = "--data data --set model.dropout=0.1 --set train.schedule.kind=warmup_stable_decay \
    --set train.schedule.warmup_steps=2 --set train.schedule.cooldown_steps=1 --set train.schedule.decay_steps=1000";

/// A run of 8 steps with checkpoints at 2, 4, 6 and 8.
fn with_run() -> Sandbox {
    let sandbox = Sandbox::with_data();
    let line = format!("{LINE} --out run --steps 8 --set train.checkpoints.interval=2");
    trained(sandbox.train(&line));
    sandbox
}

/// The bytes of every file of a folder by its path.
fn files(folder: PathBuf) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(path)),
            false => {
                // The lock has the number of the last process.
                if !path.ends_with("lock") {
                    let bytes = fs::read(&path).unwrap();
                    found.push((path, bytes));
                }
            }
        }
    }
    found.sort();
    found
}

fn listed(sandbox: &Sandbox, name: &str) -> Value {
    let runs: Value = sandbox.words("runs . --json").json();
    let runs = runs.as_array().unwrap();
    let run = runs.iter().find(|run| run["name"] == name);
    run.unwrap().clone()
}

#[test]
fn a_fork_without_changes_equals_its_run() {
    let sandbox = with_run();
    let before = files(sandbox.path("run"));
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
        let ran = sandbox.words(&line);
        assert!(ran.stderr.contains("after step 4 into"), "{ran}");
        trained(ran);
        assert_eq!(sandbox.losses(&out), sandbox.losses("run"));
        let last = |run: &str, file: &str| {
            fs::read(sandbox.path(format!("{run}/checkpoints/step-00000008/{file}"))).unwrap()
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
    assert_eq!(
        files(sandbox.path("run")),
        before,
        "the run is left as it is"
    );
    let text = sandbox.words("runs .").ok();
    assert!(
        text.contains("forked from") && text.contains("run@4"),
        "{text}"
    );
    // A fork is a run like others.
    trained(sandbox.words("train --resume fork0 --steps 9 --renderer plain"));
}

#[test]
fn a_fork_changes_settings_and_records_them() {
    let sandbox = with_run();
    // The cooldown of a schedule without an end.
    let cooled =
        "--set train.schedule.decay_steps=0 --set train.schedule.cooldown_steps=4 --steps 8";
    let line = format!("train --resume run/checkpoints/4 --out cooled --renderer plain {cooled}");
    trained(sandbox.words(&line));
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
    trained(sandbox.words(line));
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
    trained(sandbox.words(line));
    let [halves, whole] = ["halves", "run"].map(|run| sandbox.events(run, "step"));
    assert_eq!(halves[7]["tokens"], whole[7]["tokens"]);
    // Half the batch: half the tokens from there on, and the sequences that follow those of the checkpoint.
    let line =
        "train --resume run/checkpoints/4 --out half --batch-size 2 --renderer plain --steps 12";
    trained(sandbox.words(line));
    let half = sandbox.events("half", "step");
    assert_eq!(half[11]["tokens"], whole[7]["tokens"]);
    assert_eq!(half[4]["tokens"].as_u64(), Some(4 * 4 * 32 + 2 * 32));
    // Resuming keeps the position.
    let line = "train --resume run/checkpoints/4 --out parts --batch-size 2 --renderer plain --steps 6 \
        --set train.checkpoints.interval=1";
    trained(sandbox.words(line));
    trained(sandbox.words("train --resume parts --steps 12 --renderer plain"));
    assert_eq!(sandbox.losses("parts"), sandbox.losses("half"));
    assert_eq!(sandbox.weights("parts", 12), sandbox.weights("half", 12));
    // Another order starts again, with a note.
    let ran = sandbox.words("train --resume run --out seed --seed 9 --steps 9 --renderer plain");
    let expected = "the data is read from its beginning: train.seed has changed";
    assert!(ran.stderr.contains(expected), "{ran}");
    trained(ran);
    let text: String = (0..400)
        .map(|i| format!("{i} and {} make {}\n", i + 2, 2 * i + 2))
        .collect();
    sandbox.write("text.txt", text);
    sandbox
        .words("prepare text.txt --out other --tokenizer char")
        .ok();
    let message =
        refused(sandbox.words("train --resume run --data other --steps 9 --renderer plain"));
    assert!(message.contains("--out NEW --data other"), "{message}");
    let ran =
        sandbox.words("train --resume run --out data2 --data other --steps 9 --renderer plain");
    assert!(
        ran.stderr
            .contains("read from its beginning: it is other data"),
        "{ran}"
    );
    trained(ran);
}

#[test]
fn a_fork_with_another_optimizer_has_a_new_state_and_keeps_the_model() {
    let sandbox = with_run();
    let line =
        "train --resume run --out lion --set train.optimizer.kind=lion --steps 9 --renderer plain";
    let ran = sandbox.words(line);
    assert!(
        ran.stderr.contains("the optimizer starts with a new state"),
        "{ran}"
    );
    trained(ran);
    trained(sandbox.words("train --resume lion --steps 10 --renderer plain"));
    trained(
        sandbox.words(
            "train --resume run --out calm --set model.dropout=0 --steps 9 --renderer plain",
        ),
    );
    for change in [
        "--set model.d_model=48",
        "--set train.from=other",
        "--set train.objective.kind=dpo",
        "--set train.adapter.rank=4",
    ] {
        let line = format!("train --resume run --out wrong --steps 9 {change}");
        let message = refused(sandbox.words(&line));
        assert!(message.contains("cannot be forked"), "{message}");
        assert!(message.contains("hint: "), "{message}");
        assert!(!sandbox.path("wrong").exists());
    }
    let message = refused(sandbox.words("train --resume run --out lion --steps 9"));
    assert!(message.contains("lion already holds a run"), "{message}");
    let message = refused(sandbox.words("train --resume run --out new --steps 3"));
    assert!(message.contains("already made 8 steps"), "{message}");
    assert!(!sandbox.path("new").exists());
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
        trained(sandbox.words(&format!("train --from run --out {name} {options} {more}")));
        // The third step of `grpo` trains on completions of the second.
        let line =
            format!("train --resume {name}/checkpoints/3 --out {name}-fork --renderer plain");
        trained(sandbox.words(&line));
        for file in ["model.safetensors", "optimizer.safetensors", "state.json"] {
            let [fork, run] = [format!("{name}-fork"), name.to_owned()].map(|run| {
                fs::read(sandbox.path(format!("{run}/checkpoints/step-00000004/{file}"))).unwrap()
            });
            assert_eq!(fork, run, "{name}: {file}");
        }
    }
    sandbox.write(
        "other.jsonl",
        fs::read_to_string(sandbox.path("pairs.jsonl"))
            .unwrap()
            .repeat(2),
    );
    for (change, expected) in [
        ("dpo --data other.jsonl", "must keep the data"),
        (
            "lora --set train.adapter.alpha=3",
            "lora cannot be forked: train.adapter.alpha was 8.0",
        ),
        (
            "lora --set model.dropout=0.2",
            "model.dropout = 0.2: must be 0.1",
        ),
    ] {
        let line = format!("train --resume {change} --steps 9 --out wrong --renderer plain");
        let message = refused(sandbox.words(&line));
        assert!(message.contains(expected), "{message}");
        assert!(!sandbox.path("wrong").exists(), "{message}");
    }
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
    let before = files(sandbox.path("run"));
    let message = refused(sandbox.words("train --resume run --steps 9 --renderer plain"));
    for expected in [
        "train.micro_batch was 4 and now is 2 in config.toml",
        "train.optimizer.beta1 was 0.9 and now is 0.8 in config.toml",
        "hint: restore the values of the checkpoint in config.toml",
        "emberlm train --resume run --out NEW --set train.micro_batch=2 --set train.optimizer.beta1=0.8",
    ] {
        assert!(message.contains(expected), "{expected}: {message}");
    }
    assert!(!message.contains("start a new run"), "{message}");
    assert_eq!(files(sandbox.path("run")), before);
    // An option that restores the value, or the restored file, is the same run.
    let line = "train --resume run --steps 9 --batch-size 4 --set train.optimizer.beta1=0.9";
    trained(sandbox.words(&format!("{line} --renderer plain")));
    // Settings that may change may be edited.
    let config_text = fs::read_to_string(&config).unwrap();
    fs::write(&config, config_text.replace("steps = 9\n", "steps = 10\n")).unwrap();
    trained(sandbox.words("train --resume run --renderer plain"));
    assert_eq!(sandbox.losses("run").len(), 10);
    // Runs of earlier versions have no settings in their checkpoints.
    for step in [2, 4, 6, 8, 9, 10] {
        let folder = sandbox.path(format!("run/checkpoints/step-{step:08}"));
        if folder.exists() {
            fs::remove_file(folder.join("settings.toml")).unwrap();
            let manifest = folder.join("manifest.json");
            let mut entries: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
            entries.as_object_mut().unwrap().remove("settings.toml");
            fs::write(&manifest, entries.to_string()).unwrap();
        }
    }
    trained(sandbox.words("train --resume run --steps 11 --renderer plain"));
}

#[test]
fn fewer_steps_than_were_made_are_refused() {
    let sandbox = with_run();
    let before = files(sandbox.path("run"));
    let message = refused(sandbox.words("train --resume run --steps 5 --renderer plain"));
    assert!(
        message.contains("run has already made 8 steps, more than train.steps = 5"),
        "{message}"
    );
    assert!(
        message.contains("--resume run/checkpoints/STEP --out NEW --steps 5"),
        "{message}"
    );
    assert!(!message.contains("finished"), "{message}");
    assert_eq!(files(sandbox.path("run")), before);
}

#[test]
fn the_folder_of_a_checkpoint_is_resumed_or_forked() {
    let sandbox = with_run();
    let ran =
        sandbox.words("train --resume run/checkpoints/step-00000008 --steps 9 --renderer plain");
    assert!(ran.stderr.contains("Resuming run after step 8"), "{ran}");
    trained(ran);
    trained(sandbox.words("train --resume run/checkpoints --steps 10 --renderer plain"));
    let message = refused(sandbox.words("train --resume run/checkpoints/4 --renderer plain"));
    assert!(
        message.contains("is not the newest usable checkpoint"),
        "{message}"
    );
    assert!(
        message.contains("train --resume run/checkpoints/4 --out NEW"),
        "{message}"
    );
    // A copy of a checkpoint has its settings.
    let copy = sandbox.path("copy");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(sandbox.path("run/checkpoints/step-00000004")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    let message = refused(sandbox.words("train --resume copy --renderer plain"));
    assert!(
        message.contains("outside of the folder of its run"),
        "{message}"
    );
    trained(sandbox.words("train --resume copy --out from-copy --steps 8 --renderer plain"));
    assert_eq!(sandbox.weights("from-copy", 8), sandbox.weights("run", 8));
    for wrong in ["run/checkpoints/5", "run/samples", "data"] {
        let message = refused(sandbox.words(&format!("train --resume {wrong} --out no")));
        assert!(message.contains("holds no run"), "{message}");
    }
}

#[test]
fn a_fork_whose_creation_was_interrupted_is_not_begun_again() {
    let sandbox = with_run();
    trained(sandbox.words("train --resume run/checkpoints/4 --out fork --renderer plain"));
    fs::remove_dir_all(sandbox.path("fork/checkpoints")).unwrap();
    for restart in ["", "--restart"] {
        let message =
            refused(sandbox.words(&format!("train --resume fork --renderer plain {restart}")));
        assert!(
            message.contains("fork is a fork without a checkpoint"),
            "{message}"
        );
        assert!(
            message.contains("hint: delete the folder fork"),
            "{message}"
        );
    }
}

#[test]
fn evaluations_write_checkpoints_that_newer_ones_replace() {
    let sandbox = Sandbox::with_data();
    let steps = |run: &str| {
        let entries = fs::read_dir(sandbox.path(format!("{run}/checkpoints"))).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut steps: Vec<usize> = names
            .map(|name| name.strip_prefix("step-").unwrap().parse().unwrap())
            .collect();
        steps.sort();
        steps
    };
    let written = |run: &str| -> Vec<u64> {
        let checkpoints = sandbox.events(run, "checkpoint");
        checkpoints
            .iter()
            .map(|event| event["step"].as_u64().unwrap())
            .collect()
    };
    let line = "--data data --steps 10 --eval-interval 3 --set train.checkpoints.interval=4";
    trained(sandbox.train(&format!("{line} --out run")));
    assert_eq!(written("run"), [3, 4, 6, 8, 9, 10]);
    assert_eq!(steps("run"), [4, 8, 10]);
    trained(sandbox.train(&format!("{line} --out two --keep-last 2")));
    assert_eq!(steps("two"), [8, 10]);
    let off = "--set train.checkpoints.at_evaluations=false";
    trained(sandbox.train(&format!("{line} --out off {off}")));
    assert_eq!(written("off"), [4, 8, 10]);
    assert_eq!(sandbox.weights("off", 10), sandbox.weights("run", 10));
}

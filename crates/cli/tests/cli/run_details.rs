//! `emberlm runs show`, `runs rm`, and comma-separated values of runs and plots.

use std::fs::File;

use serde_json::{Value, json};

use super::support::{AssertText, Sandbox};

/// The rows of comma-separated values without quotes.
fn rows(csv: &str) -> Vec<Vec<&str>> {
    let rows = csv.split_terminator("\r\n");
    rows.map(|row| row.split(',').collect()).collect()
}

#[test]
fn a_run_is_shown_with_its_command_and_machine() {
    let sandbox = Sandbox::with_text("a few words to learn from\n".repeat(30), "char");
    let small =
        "--set model.d_model=16 --set model.heads=2 --set model.n_layers=1 --set model.seq_len=16";
    let line = format!(
        "train --preset char-nano --data data --out run {small} --set train.micro_batch=2 \
         --set train.evaluation.interval=2 --steps 4 --renderer plain --tag tiny"
    );
    sandbox.succeeds(&line);
    sandbox.run(["runs", "note", "run", "two words"]).ok();
    let text = sandbox.ok("runs show run");
    let words: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for row in [
        vec!["run:", "finished"],
        vec!["tags", "tiny"],
        vec!["note", "two", "words"],
        vec!["step", "4", "of", "4"],
        vec!["model.d_model", "16"],
        vec!["backend", "flex"],
        vec!["command", "emberlm", "train", "--preset", "char-nano"],
        vec!["Sample", "at", "step", "4"],
    ] {
        let has = |line: &Vec<&str>| line.starts_with(&row);
        assert!(words.iter().any(has), "{row:?} in\n{text}");
    }
    let shown: Value = sandbox.json("runs show run --json");
    assert_eq!(shown["settings"]["train.steps"], 4);
    assert_eq!(shown["samples"][1]["step"], 4);
    assert_eq!(shown["sessions"][0]["step"], 0);
    assert!(
        shown["sessions"][0]["machine"]["CPU"].is_string(),
        "{shown}"
    );
    // A resumed run has another session.
    sandbox.succeeds("train --resume run --steps 6 --renderer plain");
    let shown: Value = sandbox.json("runs show run --json");
    assert_eq!(shown["sessions"][1]["step"], 4);
    assert_eq!(
        shown["sessions"][1]["command"],
        "emberlm train --resume run --steps 6 --renderer plain"
    );
}

#[test]
fn a_run_of_an_earlier_version_is_shown() {
    let sandbox = Sandbox::new();
    sandbox.write_history("run", 10, None, Some("failed"));
    sandbox.write("run/config.toml", "[train]\nsteps = 40\n");
    let shown: Value = sandbox.json("runs show run --json");
    assert_eq!(shown["status"], "failed");
    assert_eq!(shown["best_step"], 10);
    assert_eq!(shown["settings"], json!({"train.steps": 40}));
    assert_eq!(shown["sessions"][0]["backend"], "flex");
    // 4 * 0.9^10, and 0.1 more.
    let text = sandbox.ok("runs show run");
    text.assert_has("lowest validation loss  1.4947 at step 10");
    let line = text
        .lines()
        .find(|line| line.contains("training loss"))
        .unwrap();
    assert!(line.ends_with("1.3947  1.3947"), "{text}");
}

#[test]
fn runs_are_removed_after_a_confirmation() {
    let sandbox = Sandbox::new();
    sandbox.write_history("runs/a", 5, None, None);
    sandbox.write_history("runs/b", 5, None, None);
    sandbox.write_history("runs/c", 5, None, None);
    sandbox.is_misused("runs rm runs/a").says("--yes");
    assert!(sandbox.path("runs/a").is_dir());
    let removed = sandbox.ok("runs rm runs/a runs/b/ runs/b --yes");
    assert_eq!(removed.lines().count(), 2, "{removed}");
    assert_eq!(sandbox.names_in("runs"), ["c"]);
}

#[test]
fn only_unused_runs_are_removed() {
    let sandbox = Sandbox::new();
    sandbox.write_history("running", 5, None, None);
    sandbox.write_history("ended", 5, None, None);
    sandbox.write("settings/config.toml", "[alias]\n");
    sandbox.write("folder/run/events.jsonl", "");
    sandbox.write("file", "");
    let lock = File::create(sandbox.path("running/lock")).unwrap();
    lock.lock().unwrap();
    sandbox.check_messages("runs_rm");
    assert!(sandbox.path("ended").is_dir());
}

#[cfg(unix)]
#[test]
fn links_are_not_followed_when_runs_are_removed() {
    use std::os::unix::fs::symlink;
    let sandbox = Sandbox::new();
    sandbox.write_history("elsewhere", 5, None, None);
    sandbox.write("kept/file", "text");
    sandbox.write_history("run", 5, None, None);
    symlink(sandbox.path("elsewhere"), sandbox.path("link")).unwrap();
    symlink(sandbox.path("kept"), sandbox.path("run/plots")).unwrap();
    for link in ["link", "link/"] {
        sandbox
            .fails(&format!("runs rm {link} --yes"))
            .says("link is a symbolic link");
    }
    sandbox.ok("runs rm run --yes");
    assert_eq!(sandbox.names(), ["elsewhere", "kept", "link"]);
    assert_eq!(sandbox.text("kept/file"), "text");
}

#[cfg(target_os = "linux")]
#[test]
fn the_working_directory_is_not_removed() {
    let sandbox = Sandbox::new();
    sandbox.write_history("run", 5, None, None);
    sandbox
        .sh("cd run && \"$EMBERLM\" runs rm . --yes")
        .exits(1)
        .says("the working directory");
    assert!(sandbox.path("run/events.jsonl").exists());
}

#[test]
fn the_list_has_the_differing_settings_as_comma_separated_values() {
    let sandbox = Sandbox::with_seeds();
    sandbox
        .run(["runs", "note", "runs/rate-0.01-1", "good, \"best\""])
        .ok();
    let csv = sandbox.ok("runs --csv");
    let table = rows(&csv);
    assert_eq!(table.len(), 7, "{csv}");
    let heading = &table[0];
    assert_eq!(heading[..3], ["name", "path", "status"]);
    assert_eq!(
        heading[13..],
        ["train.schedule.learning_rate", "train.seed"]
    );
    let row = table.iter().find(|row| row[0] == "rate-0.001-2").unwrap();
    assert_eq!(row[2..7], ["interrupted", "2", "40", "200", "7"]);
    assert_eq!(row[13..], ["0.001", "2"]);
    csv.assert_has(",\"good, \"\"best\"\"\",0.01,1\r\n");
    sandbox.is_misused("runs --csv --json");
}

#[test]
fn the_data_of_a_plot_are_comma_separated_values() {
    let sandbox = Sandbox::with_seeds();
    assert_eq!(sandbox.ok("plot runs --out p.csv"), "p.csv: 6 runs\n");
    let csv = sandbox.text("p.csv");
    let table = rows(&csv);
    assert_eq!(table.len(), 13, "{csv}");
    let heading = [
        "run",
        "step",
        "tokens",
        "seconds",
        "training_loss",
        "validation_loss",
    ];
    assert_eq!(table[0], heading);
    assert_eq!(table[1], ["rate-0.001-1", "1", "100", "60", "8", ""]);
    // The losses of three seeds are 8, 9 and 10, then 6, 7 and 8.
    sandbox.ok("plot runs --group-by learning_rate --x time --out g.csv");
    let csv = sandbox.text("g.csv");
    let table = rows(&csv);
    assert_eq!(
        table[0][..5],
        [
            "train.schedule.learning_rate",
            "runs",
            "seconds",
            "training_loss",
            "training_loss_deviation"
        ]
    );
    assert_eq!(table[1], ["0.001", "3", "60", "9", "1", "", ""]);
    assert_eq!(table[2], ["0.001", "3", "120", "7", "1", "", ""]);
    assert_eq!(table.len(), 5, "{csv}");
    sandbox.ok("plot runs --x learning_rate --group-by configuration --out c.csv");
    let csv = sandbox.text("c.csv");
    assert_eq!(
        csv,
        "configuration,train.schedule.learning_rate,last_training_loss,last_training_loss_deviation,runs\r\n\
         schedule.learning_rate=0.001,0.001,7,1,3\r\nschedule.learning_rate=0.01,0.01,4,1,3\r\n"
    );
    sandbox.ok("plot runs --x tokens --best --out b.csv");
    let csv = sandbox.text("b.csv");
    assert_eq!(rows(&csv)[0], ["run", "tokens", "lowest_training_loss"]);
    assert_eq!(rows(&csv)[6], ["rate-0.01-3", "200", "5"]);
}

#[test]
fn validation_and_training_values_share_their_rows() {
    let sandbox = Sandbox::new();
    sandbox.write_history("a", 5, None, None);
    sandbox.ok("plot a --out p.csv");
    let csv = sandbox.text("p.csv");
    let table = rows(&csv);
    // 4 * 0.9^5, and 0.1 more.
    let values: Vec<f64> = table[5][4..]
        .iter()
        .map(|cell| cell.parse().unwrap())
        .collect();
    assert_eq!(table[5][1], "5");
    assert!(
        (values[0] - 2.36196).abs() < 1e-9 && (values[1] - 2.46196).abs() < 1e-9,
        "{csv}"
    );
    assert_eq!(table.len(), 6);
}

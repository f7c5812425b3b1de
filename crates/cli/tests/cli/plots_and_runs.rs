//! `emberlm plot` and `emberlm runs`: pictures and lists of runs, for any contents of their events.

use std::fs::File;

use serde_json::{Value, json};

use super::support::{AssertText, Sandbox};

/// A PNG file's width and height, and its number of pixels of a colour.
fn pixels(sandbox: &Sandbox, name: &str, colour: [u8; 3]) -> (u32, u32, usize) {
    let file = sandbox.bytes(name);
    let mut reader = png::Decoder::new(std::io::Cursor::new(file))
        .read_info()
        .unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut pixels).unwrap();
    let count = pixels.chunks(3).filter(|pixel| *pixel == colour).count();
    (frame.width, frame.height, count)
}

#[test]
fn a_plot_compares_runs() {
    let sandbox = Sandbox::new();
    sandbox.write_history("a", 40, Some(0.5), None);
    sandbox.write_history("b", 20, None, None);
    assert_eq!(sandbox.ok("plot a b --out p.svg"), "p.svg: 2 runs\n");
    let svg = sandbox.text("p.svg");
    let words = [
        "Loss, nats per token",
        "floor 0.5000",
        "steps",
        "validation loss",
        "lowest",
    ];
    for word in words
        .into_iter()
        .chain(["\na\n", "\nb\n", "#0072B2", "#E69F00"])
    {
        svg.assert_has(word);
    }
    // Computed by hand: 0.5 + 4 * 0.9^40 + 0.1 and 4 * 0.9^20 + 0.1.
    svg.assert_has("0.6591");
    svg.assert_has("0.5863");
    sandbox.ok("plot a b --out p.PNG --x tokens");
    let (width, height, blue) = pixels(&sandbox, "p.PNG", [0, 114, 178]);
    assert!(
        width == 1600 && height > 900 && blue > 2000,
        "{width} {height} {blue}"
    );
    sandbox.ok("plot a b --out p.html --x time --y perplexity --log-scale");
    let html = sandbox.text("p.html");
    for word in [
        "<!doctype html>",
        "prefers-color-scheme: dark",
        "<td>41k</td>",
        "seconds of training",
    ] {
        html.assert_has(word);
    }
    // The page loads and runs nothing external.
    for word in ["<script", "http-equiv", "src=", "@import", "<link"] {
        html.assert_lacks(word);
    }
    for y in [
        "learning_rate",
        "gradient_norm",
        "tokens_per_second",
        "memory_mib",
    ] {
        sandbox.ok(&format!("plot a --out {y}.svg --y {y}"));
    }
}

#[test]
fn a_hooks_metric_is_plotted_by_its_declaration() {
    let sandbox = Sandbox::new();
    sandbox.write_history("plain", 10, None, None);
    let declared = json!({"name": "accuracy", "title": "Accuracy", "unit": "%", "direction": "higher_is_better",
        "aggregation": "mean", "phase": "validation", "scale": 100.0});
    let begun = json!({"event": "begun", "time": 1000.0, "step": 0, "steps": 40, "backend": "flex",
        "version": "0.1.0", "floor": null, "metrics": [declared]});
    sandbox.write("run/events.jsonl", format!("{begun}\n"));
    for step in [1, 2] {
        let event = json!({"event": "step", "step": step, "tokens": step, "loss": 1.0, "perplexity": 2.7,
            "gradient_norm": 1.0, "learning_rate": 1e-3});
        let evaluated = json!({"event": "evaluation", "step": step, "loss": 1.0, "perplexity": 2.7, "tokens": 9,
            "metrics": {"accuracy": 0.25 * f64::from(step)}});
        sandbox.append("run", &format!("{event}\n{evaluated}\n"));
    }
    sandbox.ok("plot plain run --y accuracy --out p.svg");
    let svg = sandbox.text("p.svg");
    // The axis shows 0 to 50 percent.
    svg.assert_has("Accuracy, %");
    svg.assert_has("\n50\n");
}

#[test]
fn a_folder_selects_all_of_its_runs() {
    let sandbox = Sandbox::new();
    sandbox.write_history("runs/one", 10, None, None);
    sandbox.write_history("runs/two", 10, None, None);
    sandbox.ok("plot runs --out p.svg");
    let svg = sandbox.text("p.svg");
    svg.assert_has("\none\n");
    svg.assert_has("\ntwo\n");
}

#[test]
fn clashing_names_become_paths_and_names_are_escaped() {
    let sandbox = Sandbox::new();
    sandbox.write_history("x/run", 10, None, None);
    sandbox.write_history("y/run", 10, None, None);
    sandbox.write_history("<b>&'\"", 10, None, None);
    sandbox.ok("plot x/run y/run <b>&'\" --out p.html");
    let html = sandbox.text("p.html");
    html.assert_has("x/run");
    html.assert_has("y/run");
    html.assert_has("&lt;b&gt;&amp;");
    html.assert_lacks("<b>");
}

#[test]
fn unusual_histories_are_plotted() {
    let sandbox = Sandbox::new();
    sandbox.write_history("one", 1, None, None);
    sandbox.ok("plot one --out one.png");
    sandbox.ok("plot one --out one.png --log-scale --x time");
    // Infinity and NaN are null in JSON. The last line is incomplete.
    sandbox.write_history("odd", 30, None, None);
    sandbox.append(
        "odd",
        "{\"event\":\"step\",\"step\":31,\"tokens\":31,\"loss\":800.0,\"perplexity\":null,\"gradient_norm\":null,\
         \"learning_rate\":0.1}\n\
         {\"event\":\"skipped\",\"step\":32,\"loss\":null,\"gradient_norm\":null,\"reason\":\"the loss is NaN\"}\n\
         {\"event\":\"evaluation\",\"step\":32,\"loss\":null,\"perplexity\":null,\"tokens\":5}\n{\"event\":\"st",
    );
    for y in ["loss", "perplexity", "gradient_norm"] {
        sandbox.ok(&format!("plot odd one --y {y} --out {y}.svg"));
        assert!(sandbox.text(format!("{y}.svg")).contains("skipped steps"));
        assert!(!sandbox.text(format!("{y}.svg")).contains("NaN"));
    }
}

#[test]
fn impossible_plots_and_lists_are_rejected() {
    let sandbox = Sandbox::new();
    sandbox.write("folder/file", "");
    sandbox.write("begun/config.toml", "");
    sandbox.write("empty/events.jsonl", "");
    sandbox.write("damaged/events.jsonl", "{\"event\":\"nothing\"}\n");
    sandbox.write_history("run", 5, None, None);
    sandbox.write_history("tagged/a", 5, None, None);
    sandbox.check_messages("plots_and_runs");
}

#[test]
fn the_list_shows_the_state_of_runs() {
    let sandbox = Sandbox::new();
    sandbox.write_history("runs/finished", 40, None, Some("finished"));
    sandbox.write_history("runs/ordered", 10, None, Some("interrupted"));
    sandbox.write_history("runs/failed", 10, None, Some("failed"));
    sandbox.write_history("runs/killed", 12, None, None);
    sandbox.append("runs/killed", "{\"event\":\"step\",\"st");
    sandbox.write_history("runs/sweep/inner", 3, None, Some("interrupted"));
    sandbox.write("runs/new/config.toml", "[train]\nsteps = 7\n");
    sandbox.write("runs/damaged/events.jsonl", "no event\n");
    sandbox.write("runs/folder/file", "");
    sandbox.write_history("runs/running", 5, None, Some("finished"));
    let lock = File::create(sandbox.path("runs/running/lock")).unwrap();
    lock.lock().unwrap();

    let text = sandbox.ok("runs");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let line = |name: &str| {
        let line = text.lines().find(|line| line.contains(name)).unwrap();
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(line("best val.")[..3], ["run", "status", "step"]);
    // 4 * 0.9^40, and 0.1 more.
    assert_eq!(
        line("finished")[..6],
        ["finished", "finished", "40/40", "0.0591", "0.1591", "1.02k"]
    );
    assert_eq!(line("running ")[1], "running");
    assert_eq!(line("killed")[1..3], ["interrupted", "12/40"]);
    assert_eq!(line("sweep/inner")[1], "stopped");
    assert_eq!(line("new")[1..4], ["interrupted", "0/7", "-"]);
    assert_eq!(line("damaged")[1], "unreadable");
    assert_eq!(text.lines().count(), 9, "{text}");

    let runs: Value = sandbox.json("runs runs --json");
    let runs = runs.as_array().unwrap();
    let times: Vec<f64> = runs
        .iter()
        .map(|run| run["time"].as_f64().unwrap())
        .collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    let failed = runs.iter().find(|run| run["name"] == "failed").unwrap();
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["step"], 10);
    assert_eq!(failed["time"], 2000.0);
    assert_eq!(failed["best_step"], 10);
}

#[test]
fn runs_are_tagged_noted_and_found() {
    let sandbox = Sandbox::new();
    sandbox.write_history("runs/a", 5, None, Some("finished"));
    sandbox.write_history("runs/b", 5, None, Some("finished"));
    sandbox.ok("runs tag runs/a good baseline");
    sandbox.ok("runs tag runs/a baseline --remove");
    sandbox.run(["runs", "note", "runs/a", "two words"]).ok();
    let text = sandbox.ok("runs");
    assert!(text.lines().next().unwrap().ends_with("tags"), "{text}");
    let line = text.lines().find(|line| line.contains("good")).unwrap();
    assert!(line.trim_start().starts_with("a "), "{text}");
    let runs: Value = sandbox.json("runs --json --tag good");
    assert_eq!(runs.as_array().unwrap().len(), 1);
    assert_eq!(runs[0]["tags"], json!(["good"]));
    assert_eq!(runs[0]["note"], "two words");
}

#[test]
fn two_runs_are_compared() {
    let sandbox = Sandbox::new();
    sandbox.write_history("a", 10, None, None);
    sandbox.write_history("b", 5, None, None);
    sandbox.write("a/config.toml", "[train]\nsteps = 40\nseed = 1\n");
    sandbox.write(
        "b/config.toml",
        "[train]\nsteps = 40\nseed = 2\nfrom = \"x\"\n",
    );
    let text = sandbox.ok("runs diff a b");
    let words: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert!(words.contains(&vec!["train.seed", "1", "2"]), "{text}");
    assert!(words.contains(&vec!["train.from", "-", "x"]), "{text}");
    text.assert_lacks("train.steps");
    // 4 * 0.9^10 and 4 * 0.9^5, and 0.1 more.
    assert!(
        words.contains(&vec!["training", "loss", "last", "1.3947", "2.3620"]),
        "{text}"
    );
    assert!(
        words.contains(&vec!["validation", "loss", "best", "1.4947", "2.4620"]),
        "{text}"
    );
    let json: Value = sandbox.json("runs diff a b --json");
    assert_eq!(
        json["settings"][1],
        json!({"key": "train.seed", "values": [1, 2]})
    );
}

#[test]
fn a_folder_without_runs_has_an_empty_list() {
    let sandbox = Sandbox::new();
    sandbox.write("folder/file", "");
    let none = sandbox.words("runs folder");
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""), "{none}");
    assert_eq!(sandbox.ok("runs folder --json"), "[]\n");
}

//! `emberlm patch`: the effects of replaced activations agree with those of hooks in `transformers` (make_activations.py).

use std::fs;

use serde_json::{Value, json};

use super::support::{AssertText, Sandbox, fixtures};

/// The file with the experiments of a model's expected values.
fn file(expected: &Value) -> String {
    let mut text = String::new();
    for key in ["clean", "corrupted", "answer", "wrong"] {
        text += &format!("{key} = {}\n", expected[key]);
    }
    for experiment in expected["experiments"].as_array().unwrap() {
        let kind = ["patch", "ablate"]
            .into_iter()
            .find(|kind| !experiment[kind].is_null());
        let kind = kind.unwrap();
        text += &format!(
            "[[{kind}]]\nsite = {}\nby = {}\n",
            experiment[kind], experiment["by"]
        );
        if !experiment["with"].is_null() {
            text += &format!("with = {}\n", experiment["with"]);
        }
    }
    text
}

#[track_caller]
fn close(found: &Value, expected: f64, what: &str) {
    let found = found.as_f64().unwrap_or(f64::NAN);
    let bound = 5e-5 * (1.0 + expected.abs());
    assert!(
        (found - expected).abs() < bound,
        "{what}: {found}, not {expected}"
    );
}

#[test]
fn effects_equal_those_of_hooks_in_transformers() {
    let sandbox = Sandbox::new();
    let text = fs::read_to_string(fixtures().join("activations/patches.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    for (model, expected) in all.as_object().unwrap() {
        sandbox.write("patches.toml", file(expected));
        let folder = fixtures().join("families").join(model);
        let report: Value = sandbox
            .run(["patch", folder.to_str().unwrap(), "patches.toml", "--json"])
            .json();
        let clean = expected["clean_score"].as_f64().unwrap();
        let corrupted = expected["corrupted_score"].as_f64().unwrap();
        close(&report["clean"], clean, model);
        close(&report["corrupted"], corrupted, model);
        let experiments = expected["experiments"].as_array().unwrap();
        for (at, experiment) in experiments.iter().enumerate() {
            let found = &report["experiments"][at];
            let is_patch = !experiment["patch"].is_null();
            for (block, row) in experiment["scores"].as_array().unwrap().iter().enumerate() {
                for (place, score) in row.as_array().unwrap().iter().enumerate() {
                    let what = format!("{model}, experiment {at}, block {block}, place {place}");
                    let score = score.as_f64().unwrap();
                    close(&found["scores"][block][place], score, &what);
                    let effect = match is_patch {
                        true => (score - corrupted) / (clean - corrupted),
                        false => score - clean,
                    };
                    let found = found["effects"][block][place].as_f64().unwrap();
                    assert!(
                        (found - effect).abs() < 1e-3 * (1.0 + effect.abs()),
                        "{what}"
                    );
                }
            }
        }
        assert_eq!(
            report["experiments"].as_array().unwrap().len(),
            experiments.len()
        );
    }
}

#[test]
fn a_patch_of_the_whole_stream_restores_the_clean_score() {
    let sandbox = Sandbox::with_char_model();
    let patch = "[[patch]]\nsite = \"hook_resid_post\"\nby = ";
    let texts = "clean = \"hello\"\ncorrupted = \"hollo\"\nanswer = \"w\"\n";
    sandbox.write(
        "patches.toml",
        format!("{texts}{patch}\"layer\"\n{patch}\"position\"\n"),
    );
    let report: Value = sandbox.json("patch run patches.toml --json");
    for block in 0..2 {
        close(&report["experiments"][0]["effects"][block][0], 1.0, "layer");
    }
    // Only the last position is read after the last block.
    let last: Vec<f64> = report["experiments"][1]["effects"][1]
        .as_array()
        .unwrap()
        .iter()
        .map(|effect| (effect.as_f64().unwrap() * 1000.0).round() / 1000.0)
        .collect();
    assert_eq!(json!(last), json!([0.0, 0.0, 0.0, 0.0, 1.0]));
    let text = sandbox.ok("patch run patches.toml");
    text.assert_has(
        "hook_resid_post of the clean text: share of the difference restored, by position\n",
    );
    let row = text
        .lines()
        .last()
        .unwrap()
        .split_whitespace()
        .collect::<Vec<_>>();
    assert_eq!(row, ["1", "0.000", "0.000", "0.000", "0.000", "1.000"]);
}

#[test]
fn messages_of_experiments() {
    let sandbox = Sandbox::with_char_model();
    let texts = "clean = \"hello\"\nanswer = \"w\"\n";
    let corrupted = "corrupted = \"hollo\"\n";
    let table = |kind: &str, site: &str, by: &str| {
        format!("[[{kind}]]\nsite = \"{site}\"\nby = \"{by}\"\n")
    };
    let stream = table("patch", "hook_resid_pre", "position");
    sandbox.write("none.toml", texts);
    sandbox.write("alone.toml", format!("{texts}{stream}"));
    sandbox.write(
        "site.toml",
        format!("{texts}{corrupted}{}", table("patch", "hook_q", "head")),
    );
    sandbox.write(
        "heads.toml",
        format!(
            "{texts}{corrupted}{}",
            table("patch", "hook_mlp_out", "head")
        ),
    );
    sandbox.write(
        "with.toml",
        format!("{texts}{}", table("ablate", "hook_mlp_out", "layer")),
    );
    sandbox.write(
        "lengths.toml",
        format!("{texts}corrupted = \"hell\"\n{stream}"),
    );
    sandbox.write(
        "answer.toml",
        format!(
            "{}{stream}",
            "clean = \"hello\"\ncorrupted = \"hollo\"\nanswer = \"wo\"\n"
        ),
    );
    sandbox.write(
        "ids.toml",
        format!(
            "{}{stream}",
            "clean = [1]\ncorrupted = [99999]\nanswer = 1\n"
        ),
    );
    sandbox.write(
        "empty.toml",
        format!("{}{stream}", "clean = []\ncorrupted = []\nanswer = 1\n"),
    );
    sandbox.write(
        "absent.toml",
        format!(
            "{texts}{corrupted}{}",
            table("patch", "attn.hook_rot_q", "head")
        ),
    );
    sandbox.check_messages("patch");
}

#[test]
fn a_page_has_the_effects_of_each_experiment() {
    let sandbox = Sandbox::with_char_model();
    let file = "clean = \"hello\"\nanswer = \"w\"\n[[ablate]]\nsite = \"attn.hook_z\"\nby = \"head\"\nwith = \"zero\"\n";
    sandbox.write("patches.toml", file);
    let text = sandbox.ok("patch run patches.toml --out page.html");
    assert_eq!(text, "page.html: 1 experiments\n");
    let page = sandbox.text("page.html");
    page.assert_has("<h2>attn.hook_z replaced by zeros: change of the score, by head</h2>");
    let report: Value = sandbox.json("patch run patches.toml --json");
    for effect in report["experiments"][0]["effects"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|row| row.as_array().unwrap())
    {
        let shown = format!(">{:.3}</td>", effect.as_f64().unwrap()).replace("-0.000", "0.000");
        page.assert_has(&shown);
    }
    // The strongest effect has the full colour.
    assert_eq!(page.matches("--share:1.000").count(), 1);
}

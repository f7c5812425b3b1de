//! `emberlm lr-find`: a learning-rate range test.

use serde_json::Value;

use super::support::Sandbox;
use super::support::train::TINY;

fn number(value: &Value, key: &str) -> f64 {
    value[key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key}: {value}"))
}

#[test]
fn the_rates_rise_geometrically_and_the_suggestions_are_among_them() {
    let sandbox = Sandbox::with_data();
    let line = format!("lr-find {TINY} --data data --steps 60 --plot rates.svg --json");
    let found: Value = serde_json::from_str(&sandbox.succeeds(&line).stdout).unwrap();
    assert_eq!(found["run"], "runs/lr-find-pocket-tales-001");
    let points = found["points"].as_array().unwrap();
    let rates: Vec<f64> = points
        .iter()
        .map(|point| number(point, "learning_rate"))
        .collect();
    // From 1e-6 to 1 in 59 intervals.
    for (at, rate) in rates.iter().enumerate() {
        let expected = 10f64.powf(-6.0 + 6.0 * at as f64 / 59.0);
        assert!((rate / expected - 1.0).abs() < 1e-9, "{at}: {rate}");
    }
    let (steepest, lowest) = (
        number(&found, "steepest_learning_rate"),
        number(&found, "lowest_loss_learning_rate"),
    );
    let is_tested = |rate: f64| rates.iter().any(|known| (rate / known - 1.0).abs() < 1e-9);
    assert!(
        steepest <= lowest && is_tested(steepest) && is_tested(lowest),
        "{found}"
    );
    let losses: Vec<f64> = points.iter().map(|point| number(point, "loss")).collect();
    assert_eq!(
        losses,
        sandbox.losses("runs/lr-find-pocket-tales-001")[..losses.len()]
    );
    assert!(number(&found, "lowest_loss") < losses[0]);
    let picture = sandbox.text("rates.svg");
    assert!(picture.contains("learning rate") && !picture.contains("validation"));
    sandbox.ok("plot runs/lr-find-pocket-tales-001 --x rate --log-x --out again.svg");
    assert_eq!(sandbox.text("rates.svg"), sandbox.text("again.svg"));
}

#[test]
fn the_test_ends_when_the_loss_has_grown() {
    let sandbox = Sandbox::with_data();
    let ran = sandbox.succeeds(&format!(
        "lr-find {TINY} --data data --highest 1e4 --out run"
    ));
    assert!(sandbox.losses("run").len() < 100, "{ran}");
    assert!(ran.stdout.contains("Steepest descent  "), "{ran}");
    assert!(!ran.stderr.contains("may be usable"), "{ran}");
}

#[test]
fn rates_without_effect_suggest_nothing() {
    let sandbox = Sandbox::with_data();
    // The loss of a fixed batch stays the same.
    let line = format!(
        "lr-find {TINY} --data data --lowest 1e-30 --highest 1e-29 --overfit-batch --steps 3"
    );
    let ran = sandbox.words(&line);
    assert_eq!(ran.code, Some(1), "{ran}");
    ran.says("error: the loss does not fall at any of the tested learning rates");
}

#[test]
fn impossible_ranges_and_foreign_options_are_refused() {
    Sandbox::with_data().check_messages("lr_find");
}

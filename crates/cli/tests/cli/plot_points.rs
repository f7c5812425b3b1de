//! `emberlm plot --x SETTING`: one point per run, or per mean over seeds.

use super::support::{AssertText, Sandbox};

#[test]
fn a_setting_has_a_point_per_run_or_per_mean() {
    let sandbox = Sandbox::with_seeds();
    assert_eq!(
        sandbox.ok("plot runs --x learning_rate --out p.svg"),
        "p.svg: 6 runs\n"
    );
    let svg = sandbox.text("p.svg");
    svg.assert_has("\nLast training loss, nats per token\n");
    svg.assert_has("\ntrain.schedule.learning_rate\n");
    svg.assert_has("\n6 runs\n");
    // The lowest of the last losses 3, 4, 5 and 6, 7, 8.
    svg.assert_has("\n3.0000\n");
    // One disc per run, and one in the legend.
    assert_eq!(svg.matches("<circle").count(), 7);
    sandbox.ok("plot runs --x learning_rate --group-by configuration --out p.svg");
    let svg = sandbox.text("p.svg");
    svg.assert_has("\n4.0000 ± 1.0000\n");
    svg.assert_has("bar: ± standard deviation");
    assert_eq!(svg.matches("<circle").count(), 3);
    // A curve per seed, over the learning rate.
    sandbox.ok("plot runs --x learning_rate --group-by seed --out p.png");
}

#[test]
fn the_best_value_follows_the_direction_of_the_metric() {
    let sandbox = Sandbox::new();
    sandbox.write_losses("a", &[3.0, 1.5, 2.0], "seed = 1\nsteps = 10");
    sandbox.write_losses("b", &[3.0, 1.25, 2.5], "seed = 1\nsteps = 1000");
    sandbox.ok("plot a b --x train.steps --out last.svg");
    sandbox.text("last.svg").assert_has("\n2.0000\n");
    sandbox.ok("plot a b --x train.steps --best --out best.svg");
    let svg = sandbox.text("best.svg");
    svg.assert_has("\nLowest training loss, nats per token\n");
    svg.assert_has("\n1.2500\n");
    // 10 and 1000 differ by more than a factor of 30: the axis is logarithmic.
    svg.assert_has("\n100\n");
    svg.assert_lacks("\n200\n");
    // The best losses are at step 2, which has 200 tokens.
    sandbox.ok("plot a b --x tokens --best --out tokens.svg");
    sandbox.text("tokens.svg").assert_has("\n200\n");
    // The higher of the equal throughputs.
    sandbox.ok("plot a b --x time --y tokens_per_second --best --out speed.svg");
    sandbox
        .text("speed.svg")
        .assert_has("\nHighest training throughput, tokens per second\n");
}

#[test]
fn texts_are_categories() {
    let sandbox = Sandbox::new();
    sandbox.write_losses("a", &[3.0], "optimizer.kind = \"adamw\"");
    sandbox.write_losses("b", &[2.0], "optimizer.kind = \"lion\"");
    sandbox.write_losses("c", &[1.0], "seed = 1");
    sandbox.ok("plot a b c --x train.optimizer.kind --out p.svg");
    let svg = sandbox.text("p.svg");
    let places = ["\nadamw\n", "\nlion\n", "\nunset\n"].map(|text| {
        svg.assert_has(text);
        svg.rfind(text)
    });
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn a_diverged_run_is_a_cross_at_the_edge() {
    let sandbox = Sandbox::new();
    for (number, loss) in [2.0, 2.1, 2.2, 2.3, 2.4, 1e6].into_iter().enumerate() {
        let train = format!("steps = {}", number + 1);
        sandbox.write_losses(&format!("runs/{number}"), &[loss], &train);
    }
    sandbox.write_losses("runs/nan", &[f64::NAN], "steps = 9");
    let plotted = sandbox.succeeds("plot runs --x train.steps --out p.svg");
    plotted.says("warning: nan has no point: its value is missing or NaN");
    let svg = sandbox.text("p.svg");
    svg.assert_has("crosses: values outside");
    svg.assert_lacks("\n1.0M\n");
    sandbox.succeeds("plot runs --x train.steps --out p.svg --full-range");
    sandbox.text("p.svg").assert_has("\n1.0M\n");
}

#[test]
fn parameters_and_operations_follow_from_the_model() {
    let sandbox = Sandbox::with_text("a few words to learn from\n".repeat(30), "char");
    let sizes = "--set model.seq_len=16 --set train.micro_batch=2 --steps 2 --renderer plain";
    for width in [16, 32] {
        let line = format!(
            "train --preset char-nano --data data --out runs/{width} --set model.d_model={width} \
             --set model.heads=2 --set model.n_layers=1 {sizes}"
        );
        sandbox.succeeds(&line);
    }
    for x in [
        "parameters",
        "flops",
        "flops --points",
        "model.d_model --y gradient_norm",
    ] {
        sandbox.ok(&format!("plot runs --x {x} --out p.svg"));
    }
    sandbox.ok("plot runs --x parameters --out p.svg");
    sandbox.text("p.svg").assert_has("\nparameters\n");
}

#[test]
fn impossible_points_are_rejected() {
    let sandbox = Sandbox::with_seeds();
    sandbox.write_losses("text", &[3.0], "optimizer.kind = \"adamw\"");
    sandbox.write_losses("zero", &[3.0], "seed = 0");
    sandbox.check_messages("plot_points");
}

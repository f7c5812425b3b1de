//! `emberlm plot --group-by`: means over runs, and the selection of runs.

use super::support::{AssertText, Sandbox};

#[test]
fn seeds_become_a_mean_with_a_band() {
    let sandbox = Sandbox::with_seeds();
    let by_rate = "plot runs --group-by train.schedule.learning_rate --out p.svg";
    assert_eq!(sandbox.ok(by_rate), "p.svg: 6 runs\n");
    let svg = sandbox.text("p.svg");
    // The last losses are 6, 7, 8 and 3, 4, 5, whose deviations are 1. Groups are in the order of their values.
    let rows = [
        "0.001 (3 runs)",
        "7.0000 ± 1.0000",
        "0.01 (3 runs)",
        "4.0000 ± 1.0000",
    ];
    let places = rows.map(|row| {
        svg.assert_has(&format!("\n{row}\n"));
        svg.find(row)
    });
    assert!(places.is_sorted(), "{places:?}");
    svg.assert_has("band: mean ± standard deviation");
    svg.assert_has("\ntrain.schedule.learning_rate\n");
    assert_eq!(svg.matches("<polygon").count(), 2);
    // The end of a setting's name is enough, and `configuration` ignores the seed only.
    sandbox.ok("plot runs --group-by learning_rate --out q.svg");
    assert_eq!(sandbox.text("q.svg"), svg);
    sandbox.ok("plot runs --group-by configuration --out c.svg");
    let svg = sandbox.text("c.svg");
    svg.assert_has("\nschedule.learning_rate=0.001 (3 runs)\n");
    svg.assert_has("\n7.0000 ± 1.0000\n");
    sandbox.ok("plot runs --group-by seed --out s.svg");
    // 3 and 6: the deviation is 3 / sqrt(2).
    sandbox.text("s.svg").assert_has("\n4.5000 ± 2.1213\n");
    for out in ["p.png", "p.html"] {
        sandbox.ok(&format!(
            "plot runs --group-by configuration --out {out} --x time --log-x"
        ));
    }
    sandbox.text("p.html").assert_has("(3 runs)");
}

#[test]
fn a_group_of_one_run_has_no_band() {
    let sandbox = Sandbox::new();
    sandbox.write_losses("a", &[3.0, 2.0], "seed = 1");
    sandbox.write_losses("b", &[4.0, 1.0], "seed = 1\noptimizer.kind = \"lion\"");
    sandbox.ok("plot a b --group-by train.optimizer.kind --out p.svg");
    let svg = sandbox.text("p.svg");
    svg.assert_has("\nlion (1 run)\n");
    svg.assert_has("\nunset (1 run)\n");
    svg.assert_has("\n1.0000\n");
    svg.assert_lacks("<polygon");
}

#[test]
fn outliers_do_not_squash_a_curve() {
    let sandbox = Sandbox::new();
    let mut losses = vec![60.0];
    losses.extend((0..30).map(|i| 4.0 - 0.1 * f64::from(i)));
    losses.extend([1e4, 1e5, 1e6]);
    sandbox.write_losses("run", &losses, "seed = 1");
    sandbox.ok("plot run --out p.svg");
    let svg = sandbox.text("p.svg");
    svg.assert_has("4 values are outside");
    svg.assert_has("\n4\n");
    svg.assert_lacks("\n1M\n");
    sandbox.ok("plot run --out p.svg --full-range");
    let svg = sandbox.text("p.svg");
    svg.assert_has("\n1.0M\n");
    svg.assert_lacks("outside");
}

#[test]
fn without_runs_the_newest_are_plotted() {
    let sandbox = Sandbox::new();
    for number in 1..=9 {
        let steps = [(1, 2.0), (number, 1.0)];
        sandbox.write_steps(&format!("runs/sweep/run-{number}"), steps, "seed = 1");
    }
    sandbox.write("runs/new/config.toml", "");
    // The time of the last event is the number in minutes. The first run is the oldest, and it is running.
    let lock = std::fs::File::create(sandbox.path("runs/sweep/run-1/lock")).unwrap();
    lock.lock().unwrap();
    let plotted = sandbox.succeeds("plot --out p.svg");
    assert_eq!(plotted.stdout, "p.svg: 8 runs\n");
    let names = [1, 9, 8, 7, 6, 5, 4, 3].map(|number| format!("runs/sweep/run-{number}"));
    plotted.says(&format!(
        "the newest 8 of 9 runs of runs: {}\n",
        names.join(" ")
    ));
    let svg = sandbox.text("p.svg");
    svg.assert_has("\nrun-1\n");
    svg.assert_lacks("\nrun-2\n");
}

#[test]
fn impossible_groups_are_rejected() {
    let sandbox = Sandbox::with_seeds();
    sandbox.write_history("plain", 5, None, None);
    sandbox.write("bare/text", "");
    sandbox.check_messages("plot_groups");
}

//! `emberlm report`: a run or a sweep as one document.

use super::support::{AssertText, Sandbox};

#[test]
fn a_report_of_a_run_is_one_document() {
    let sandbox = Sandbox::new();
    sandbox.write_history("run", 10, Some(0.5), Some("finished"));
    sandbox.append(
        "run",
        "{\"event\":\"sample\",\"step\":10,\"text\":\"<b>one|two</b>\\n```\"}\n",
    );
    sandbox.write("run/config.toml", "[train]\nsteps = 40\nfrom = \"a|b\"\n");
    assert_eq!(sandbox.ok("report run --out run.html"), "run.html\n");
    let html = sandbox.text("run.html");
    // Loss, gradient norm, learning rate and throughput.
    assert_eq!(html.matches("<svg").count(), 4);
    // 0.5 + 4 * 0.9^10, and 0.1 more.
    for word in [
        "<h1>Run run</h1>",
        "<td>training loss</td><td>1.8947</td><td>1.8947</td>",
        "<tr><td>10</td><td>1.9947</td>",
        "<td>train.steps</td><td>40</td>",
        "<pre>&lt;b&gt;one|two&lt;/b&gt;",
        "Session of 1970-01-01 00:16:40 UTC, from step 0",
    ] {
        html.assert_has(word);
    }
    for word in ["<script", "src=", "@import", "<link", "<b>"] {
        html.assert_lacks(word);
    }
    sandbox.ok("report run --out run.md");
    let text = sandbox.text("run.md");
    for word in [
        "# Run run\n",
        "| status | finished |\n",
        "| train.from | a\\|b |\n",
        "\n````text\n<b>one|two</b>\n```\n````\n",
    ] {
        text.assert_has(word);
    }
}

#[test]
fn a_report_of_a_sweep_compares_its_runs() {
    let sandbox = Sandbox::with_seeds();
    sandbox.ok("report runs --out sweep.html");
    let html = sandbox.text("sweep.html");
    html.assert_has("<h1>Runs of runs</h1>");
    html.assert_has("Means over seeds");
    // The means of the last losses of three seeds.
    html.assert_has("7.0000 ± 1.0000");
    html.assert_has("<th>train.schedule.learning_rate</th>");
    assert_eq!(html.matches("<svg").count(), 2);
    sandbox.ok("report runs --out sweep.md");
    sandbox
        .text("sweep.md")
        .assert_has("| rate-0.001-2 | interrupted | 2 | 7.0000 |");
}

#[test]
fn impossible_reports_are_rejected() {
    let sandbox = Sandbox::new();
    sandbox.write_history("run", 5, None, None);
    sandbox.write("empty/file", "");
    sandbox.check_messages("report");
}

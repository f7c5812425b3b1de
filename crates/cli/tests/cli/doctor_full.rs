//! `emberlm doctor --full`: a report on a device.

use std::fs;

use serde_json::Value;

use super::support::{AssertText, CommandOutput, Sandbox};

/// The report in the sandbox's folder `out`.
fn report(sandbox: &Sandbox) -> Value {
    let text = sandbox.text("out/report.json");
    serde_json::from_str(&text).unwrap()
}

/// The outcome of each check, by name.
fn outcomes(report: &Value) -> Vec<(String, String)> {
    let checks = report["checks"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    checks
        .map(|check| (text(&check["check"]), text(&check["outcome"])))
        .collect()
}

/// Runs the small size and asserts that every check that can run passes.
fn passes(sandbox: &Sandbox, line: &str) -> CommandOutput {
    let ran = sandbox.succeeds(&format!("doctor --full --size small --out out {line}"));
    let report = report(sandbox);
    for (check, outcome) in outcomes(&report) {
        let skipped = match check.as_str() {
            "parity" | "loss-curve" => cfg!(not(feature = "ndarray")),
            // PyTorch may not be installed.
            "pytorch" => true,
            _ => false,
        };
        assert!(outcome == "passed" || skipped, "{check}: {report:#}");
    }
    ran
}

#[test]
fn the_cpu_passes_every_check_in_both_files() {
    let sandbox = Sandbox::new();
    passes(&sandbox, "--minutes 6");
    let report = report(&sandbox);
    assert_eq!(report["backend"], "flex");
    assert!(
        report["machine"]["cpu"]
            .as_str()
            .unwrap()
            .contains("threads")
    );
    let markdown = sandbox.text("out/report.md");
    for (check, outcome) in outcomes(&report) {
        markdown.assert_has(&format!("\n## {check}\n"));
        markdown.assert_has(&format!("\n| {check} | {outcome}"));
    }
    markdown.assert_has("| resume | passed |");
    markdown.assert_has("(equal to the bit)");
    let checks = report["checks"].as_array().unwrap();
    let curve = checks.iter().find(|check| check["check"] == "loss-curve");
    if cfg!(feature = "ndarray") {
        let losses = curve.unwrap()["losses"].as_array().unwrap();
        assert_eq!(losses.last().unwrap()["step"], 50);
        let [first, last] = [0, losses.len() - 1].map(|at| losses[at]["found"].as_f64().unwrap());
        assert!(last < first, "{losses:?}");
    }
    // No other files remain.
    assert_eq!(sandbox.names(), ["out"]);
}

#[test]
fn checks_without_remaining_time_are_skipped() {
    let sandbox = Sandbox::new();
    let ran = sandbox.succeeds("doctor --full --minutes 0.001 --out out");
    ran.prints("skipped (no time was left)");
    let outcomes = outcomes(&report(&sandbox));
    assert!(outcomes.len() >= 4);
    assert!(outcomes.iter().all(|(_, outcome)| outcome == "skipped"));
}

/// The values of a check's rows, by name.
fn rows(report: &Value, check: &str) -> Vec<(String, f64)> {
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|found| found["check"] == check).unwrap();
    let rows = found["rows"].as_array().unwrap().iter();
    rows.filter_map(|row| Some((row["name"].as_str()?.to_owned(), row["value"].as_f64()?)))
        .collect()
}

#[test]
fn a_missing_python_fails_one_check() {
    let sandbox = Sandbox::new();
    let line = "doctor --full --check pytorch --check memory --python /nowhere/python --out out";
    let ran = sandbox.words(line).exits(1);
    ran.says("error: pytorch failed on the flex backend");
    let report = report(&sandbox);
    let expected = [("memory", "passed"), ("pytorch", "failed")];
    let expected = expected.map(|(check, outcome)| (check.to_owned(), outcome.to_owned()));
    assert_eq!(outcomes(&report), expected);
    let reason = report["checks"][1]["reason"].as_str().unwrap();
    reason.assert_has("cannot run /nowhere/python");
    let total = rows(&report, "memory");
    assert!(
        total
            .iter()
            .any(|(name, bytes)| name == "predicted total" && *bytes > 1e6)
    );
}

/// A stand-in for Python prints the output of the PyTorch program.
#[cfg(unix)]
#[test]
fn speeds_are_compared_with_pytorchs() {
    use std::os::unix::fs::PermissionsExt;

    let sandbox = Sandbox::new();
    let script = "#!/bin/sh\necho '{\"peer\": \"torch 9\", \"tokens_per_second\": 100.0}'\n";
    sandbox.write("python", script);
    let path = sandbox.path("python");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    sandbox.succeeds("doctor --full --check training --check pytorch --python ./python --out out");
    let report = report(&sandbox);
    let training = rows(&report, "training");
    let value = |rows: &[(String, f64)], name: &str| {
        let row = rows.iter().find(|(of, _)| of == name);
        row.unwrap_or_else(|| panic!("{name}: {report:#}")).1
    };
    let ours = value(&training, "f32: training");
    let used = value(&training, "f32: utilization");
    assert!(ours > 0.0 && used > 0.0 && used < 150.0, "{training:?}");
    let beside = rows(&report, "pytorch");
    assert_eq!(value(&beside, "torch 9 on cpu, f32"), 100.0);
    let ratio = value(&beside, "emberlm / PyTorch, f32");
    assert!((ratio - ours / 100.0).abs() < 1e-9, "{beside:?}");
}

#[test]
fn a_report_does_not_replace_other_files() {
    let sandbox = Sandbox::new();
    sandbox.write("out/notes.txt", "mine");
    let ran = sandbox.is_misused("doctor --full --out out");
    assert_eq!(
        ran.stderr,
        "error: out is there already\nhint: choose another --out\n"
    );
    let ran = sandbox.is_misused("doctor --minutes 3");
    ran.says("--full");
}

#[cfg(feature = "vulkan")]
mod vulkan {
    use super::*;

    /// A single check, since a software device takes half a minute for a resumed run. `anywhere` resumes a
    /// run on Vulkan.
    #[test]
    fn no_check_fails_on_vulkan() {
        let sandbox = Sandbox::new();
        let line =
            "doctor --full --size small --backend vulkan --minutes 3 --out out --check memory";
        sandbox.succeeds(line);
        let report = report(&sandbox);
        assert_eq!(outcomes(&report).len(), 1);
        assert!(
            report["machine"]["devices"][0]["driver"].is_string(),
            "{report:#}"
        );
    }

    /// Each check fails separately, and the report lists all of them.
    #[test]
    fn a_missing_driver_fails_every_check() {
        let sandbox = Sandbox::new();
        let line = "doctor --full --size small --minutes 5 --backend vulkan --out out";
        let mut command = sandbox.command(line.split(' '));
        command.env("VK_ICD_FILENAMES", "/nowhere");
        let ran = command.env("VK_DRIVER_FILES", "/nowhere").output().unwrap();
        let stderr = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(1), "{stderr}");
        stderr.assert_has("memory failed on the vulkan backend");
        let report = report(&sandbox);
        for check in report["checks"].as_array().unwrap() {
            if check["check"] == "pytorch" {
                continue;
            }
            assert_eq!(check["outcome"], "failed", "{report:#}");
            let reason = check["reason"].as_str().unwrap();
            reason.assert_has("finds no device it can use");
        }
    }
}

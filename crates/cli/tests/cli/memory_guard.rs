//! Models that do not fit into memory are rejected before any large allocation.

use std::fs;
use std::process::{Command, Stdio};

use super::support::train::TINY;
use super::support::{AssertText, CommandOutput, Sandbox};

/// 33 million parameters, which take 130 MiB.
const MEDIUM: &str =
    "--set model.d_model=512 --set model.n_layers=8 --set model.feed_forward.width=2048";

/// Runs a command line with a limit of `kib` KiB.
fn limited(sandbox: &Sandbox, line: &str, kib: usize) -> CommandOutput {
    let shell = format!("ulimit -d {kib}; exec \"$EMBERLM\" {line}");
    sandbox.sh(&shell)
}

/// The size in MiB after `needs about`.
#[track_caller]
fn needed(ran: &CommandOutput) -> f64 {
    let (_, rest) = ran
        .stderr
        .split_once("needs about ")
        .unwrap_or_else(|| panic!("no need is stated in {ran}"));
    let mut words = rest.split_whitespace();
    let size: f64 = words.next().unwrap().parse().unwrap();
    match words.next().unwrap() {
        "MiB" => size,
        "GiB" => size * 1024.0,
        unit => panic!("{unit} in {ran}"),
    }
}

#[track_caller]
fn refused(ran: &CommandOutput, what: &str) {
    assert_eq!(ran.code, Some(1), "{ran}");
    for part in [
        &format!("error: {what} needs about "),
        " are left by the limit of this process (ulimit): weights ",
        "hint: to start anyway: --ignore-memory",
    ] {
        ran.says(part);
    }
}

#[test]
fn train_and_new_reject_models_larger_than_memory() {
    Sandbox::with_data().check_messages("memory_training");
}

#[test]
fn the_proposed_step_fits_when_the_requested_one_does_not() {
    let sandbox = Sandbox::with_data();
    let line = format!(
        "train {TINY} --data data --steps 2 --set train.micro_batch=4096 --set train.evaluation.batch=4"
    );
    let kib = 300_000;
    let ran = limited(&sandbox, &format!("{line} --out refused"), kib);
    refused(&ran, "training");
    assert!(!sandbox.path("refused").exists());
    let (_, hint) = ran.stderr.split_once("in a step: ").unwrap();
    let options = hint.lines().next().unwrap();
    assert!(options.contains("--set train.micro_batch="), "{ran}");
    limited(&sandbox, &format!("{line} --out fits {options}"), kib).exits(0);
    assert_eq!(sandbox.losses("fits").len(), 2);
}

#[test]
fn the_activations_of_a_long_text_are_predicted() {
    let sandbox = Sandbox::new();
    sandbox.ok(
        "new --preset char-nano --tokenizer byte --set model.d_model=16 --set model.heads=2 --set model.kv_heads=2 \
         --set model.n_layers=16 --set model.seq_len=2048 --set model.feed_forward.width=16 --out model",
    );
    let (layers, heads, tokens) = (16, 2, 1800);
    sandbox.write("long.txt", "12 and 13 make 25 ".repeat(tokens / 18));
    let line = "activations model --prompt \"$(cat long.txt)x\" --out a.safetensors --site";
    let kib = 300_000;
    let ran = limited(&sandbox, &format!("{line} '*hook_pattern'"), kib);
    assert_eq!(ran.code, Some(1), "{ran}");
    let expected = (4 * layers * heads * tokens * tokens) as f64 / f64::from(1 << 20);
    assert!((needed(&ran) - expected).abs() < 20.0, "{expected}: {ran}");
    ran.says("hint: choose some of the activations with --site, or a shorter text");
    limited(&sandbox, &format!("{line} '*hook_resid_pre'"), kib).exits(0);
}

#[test]
fn inference_commands_reject_models_larger_than_memory() {
    let sandbox = Sandbox::with_data();
    sandbox.trains(&format!("{MEDIUM} --data data --steps 1 --out run"));
    sandbox.check_messages("memory_inference");
}

#[test]
fn the_memory_check_can_be_skipped() {
    let sandbox = Sandbox::with_data();
    let line = "train --data data --steps 1 --set train.micro_batch=64";
    let line = format!("{line} {}", TINY.replace("--set train.micro_batch=4 ", ""));
    let kib = 60_000;
    refused(
        &limited(&sandbox, &format!("{line} --out run"), kib),
        "training",
    );
    assert!(!sandbox.path("run").exists());
    // The run starts, regardless of how it ends.
    let ran = limited(&sandbox, &format!("{line} --out run --ignore-memory"), kib);
    ran.stderr.assert_lacks("needs about");
    assert!(sandbox.path("run/config.toml").exists(), "{ran}");
}

/// The peak anonymous memory of a process in MiB, sampled every few milliseconds.
///
/// The sum over the mappings is exact. `RssAnon` may lag by megabytes per core.
fn sampled_peak(command: &mut Command) -> f64 {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mappings = format!("/proc/{}/smaps_rollup", child.id());
    let mut peak: u64 = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&mappings).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("Anonymous:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        peak = peak.max(kib.unwrap_or(0));
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert!(child.wait().unwrap().success());
    peak as f64 / 1024.0
}

/// The peak memory of a command in MiB, from at most three runs.
///
/// Sampling may miss the peak but never exceeds it, so the largest result counts.
fn peak(sandbox: &Sandbox, line: &str, predicted: f64) -> f64 {
    let mut peak = 0.0;
    for _ in 0..3 {
        let sampled = sampled_peak(&mut sandbox.command(line.split_whitespace()));
        peak = f64::max(peak, sampled);
        if predicted < peak * 1.25 {
            break;
        }
    }
    peak
}

/// Predictions are within 25% of the measurement. In int8 the peak is far below the size of the f32 weights,
/// both for stored int8 weights and for quantization on load.
#[test]
fn inference_predictions_match_measurements() {
    let sandbox = Sandbox::with_data();
    sandbox.trains(&format!(
        "{MEDIUM} --preset char-nano --data data --steps 1 --out run"
    ));
    sandbox.succeeds("export run --weights int8 --out saved");
    let mut int8_peaks = Vec::new();
    for line in [
        "generate run --max-new-tokens 40",
        "generate run --max-new-tokens 40 --weights int8",
        "generate saved --max-new-tokens 40",
        "eval run --data data",
        "eval run --data data --seq-len 32 --batch 512",
    ] {
        let predicted = needed(&limited(&sandbox, line, 40_000));
        let measured = peak(&sandbox, line, predicted);
        let off = predicted / measured - 1.0;
        println!("{line}: {predicted:.1} MiB predicted, {measured:.1} MiB measured, {off:+.3}");
        assert!(
            off.abs() < 0.25,
            "{line}: {predicted:.1} MiB, but {measured:.1} MiB measured"
        );
        if line.contains("int8") || line.contains("saved") {
            int8_peaks.push(measured);
        }
    }
    // 130 MiB in f32, 33 MiB in int8.
    assert!(int8_peaks.iter().all(|&peak| peak < 90.0), "{int8_peaks:?}");
}

/// A device that runs on the CPU, such as Mesa's, uses main memory.
#[cfg(feature = "vulkan")]
#[test]
fn shared_memory_devices_reject_models_larger_than_memory() {
    let sandbox = Sandbox::with_data();
    // Graphics drivers write to stderr.
    let listed = sandbox.words("devices --json").stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let backends = listed.as_array().unwrap().iter();
    let vulkan = backends.filter(|of| of["backend"] == "vulkan");
    let devices = vulkan.flat_map(|of| of["devices"].as_array().unwrap());
    for device in devices.filter(|device| device["kind"] == "cpu") {
        let number = &device["number"];
        let line = format!(
            "train --preset palm-540b --data data --out run --backend vulkan --device {number}"
        );
        let ran = sandbox.fails(&line);
        let error = "error: training needs about ";
        ran.says(error);
    }
}

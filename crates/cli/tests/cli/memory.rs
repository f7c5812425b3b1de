//! Memory: recomputation, constant memory in training, and `fit`.

use std::fs;

use serde_json::Value;

use super::support::Sandbox;
use super::support::train::TINY;

/// The logged loss and gradient norm of each step.
fn figures(sandbox: &Sandbox, run: &str) -> Vec<(f64, f64)> {
    let steps = sandbox.events(run, "step");
    let number = |event: &Value, name: &str| event[name].as_f64().unwrap();
    steps
        .iter()
        .map(|event| (number(event, "loss"), number(event, "gradient_norm")))
        .collect()
}

#[test]
fn recomputing_trains_the_same_model() {
    let sandbox = Sandbox::with_data();
    let line = format!(
        "train {TINY} --data data --steps 5 --accumulation 2 --set model.dropout=0.2 --out"
    );
    let recomputing = ["--recompute", "--set train.recompute=true"];
    for backend in ["flex", "ndarray"] {
        let run = |name: &str, more: &str| {
            let name = format!("{backend}-{name}");
            sandbox.succeeds(&format!("{line} {name} {more} --backend {backend}"));
            name
        };
        let plain = run("plain", "");
        assert_eq!(figures(&sandbox, &plain).len(), 5);
        for (i, flag) in recomputing.into_iter().enumerate() {
            let again = run(&format!("again-{i}"), flag);
            assert_eq!(figures(&sandbox, &plain), figures(&sandbox, &again));
            assert_eq!(sandbox.weights(&plain, 5), sandbox.weights(&again, 5));
        }
    }
}

/// Reads a run's resident memory from the system each time it logs a step. A leak would appear two hundred
/// times.
#[cfg(target_os = "linux")]
#[test]
fn training_memory_does_not_grow() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    const WARM: usize = 100;
    const INTERVAL: usize = 50;
    for recompute in [false, true] {
        let sandbox = Sandbox::with_data();
        let line = format!(
            "train {TINY} --data data --steps 300 --set train.evaluation.interval={INTERVAL} --accumulation 2 \
             --set train.checkpoints.interval={INTERVAL} --set train.recompute={recompute} --out run"
        );
        let mut command = sandbox.measured_command(line.split_whitespace());
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let status = format!("/proc/{}/status", child.id());
        let resident = || -> Option<u64> {
            let text = fs::read_to_string(&status).ok()?;
            let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        let mut kib = Vec::new();
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            if line.unwrap().contains("  loss ") {
                kib.extend(resident());
            }
        }
        assert!(child.wait().unwrap().success());
        assert!(kib.len() > 250, "{}", kib.len());
        // Steps between two evaluations must not accumulate memory. Compares a late step with an early one in
        // each interval, and takes the median, since a checkpoint in progress raises some of the differences.
        // Memory left by evaluations and checkpoints, through threads that have ended, fluctuates by MiB. A
        // leak there raises the minimum, which is compared between both halves.
        let intervals = kib[WARM..].chunks(INTERVAL);
        let grown = intervals.map(|part| part[part.len() - 2].saturating_sub(part[part.len() / 5]));
        let mut grown: Vec<u64> = grown.collect();
        grown.sort_unstable();
        let grown = grown[grown.len() / 2];
        let half = (kib.len() - WARM) / 2;
        let low = |part: &[u64]| part.iter().min().copied().unwrap_or(0);
        let (before, after) = (low(&kib[WARM..WARM + half]), low(&kib[WARM + half..]));
        println!("recompute {recompute}: {grown} KiB by 40 steps; {before} KiB, then {after} KiB");
        assert!(
            grown <= 512 && after <= before + 8 * 1024,
            "{grown} KiB by 40 steps; {before} KiB before, {after} KiB after: {kib:?}"
        );
    }
}

fn fit(sandbox: &Sandbox, line: &str) -> Value {
    sandbox.json(&format!("fit --json {line}"))
}

/// Three kinds of decoders: nanoGPT's character model with small activations; the built-in tales' model without
/// gains, with grouped heads and rotary positions; and GPT-2's shape, dominated by its vocabulary. Encoders with masked
/// tokens, of which few have logits, and with labels; encoder–decoders with removed spans and with pairs.
#[cfg(target_os = "linux")]
#[test]
fn memory_predictions_match_measurements() {
    let sandbox = Sandbox::new();
    let gpt2 = "--preset gpt2-small --set model.vocab_size=50257 --set model.d_model=192 --set model.heads=6 \
        --set model.kv_heads=6 --set model.n_layers=3 --set model.feed_forward.width=768 \
        --set model.seq_len=256 --set train.micro_batch=4 --set train.accumulation=2";
    for line in [
        "--preset char-nano --set model.vocab_size=65",
        "--preset pocket-tales --set train.micro_batch=16",
        "--preset pocket-tales --set train.micro_batch=16 --set train.recompute=true",
        gpt2,
        "--preset bert-nano --set model.vocab_size=8000",
        "--objective classify --set model.vocab_size=8000",
        "--preset t5-nano --set model.vocab_size=8000",
        "--objective seq2seq --set model.vocab_size=8000 --set train.seq_len=256",
    ] {
        // Peaks vary by a tenth, and by some MiB of thread buffers on a busy machine. If the first
        // measurement is off, takes the median of three.
        const BUFFERS: f64 = 16.0 * 1024.0 * 1024.0;
        let mut offs = Vec::new();
        for _ in 0..3 {
            let found = fit(&sandbox, &format!("{line} --memory 20GiB"));
            let asked = &found["asked"];
            let predicted = asked["predicted"]["total"].as_f64().unwrap();
            let measured = asked["measured"].as_f64().unwrap();
            let off = predicted - measured;
            offs.push(off.signum() * (off.abs() - BUFFERS).max(0.0) / measured);
            if offs[0].abs() < 0.1 {
                break;
            }
        }
        println!("{line}: {offs:+.3?}");
        offs.sort_by(f64::total_cmp);
        let off = offs[offs.len() / 2];
        assert!(off.abs() < 0.15, "{line}: {off:+.3} off");
    }
}

#[test]
fn a_proposal_fits_and_keeps_the_tokens_per_step() {
    let sandbox = Sandbox::new();
    let line = "--preset pocket-tales --set train.accumulation=8 --no-measure";
    let asked = fit(&sandbox, &format!("{line} --memory 100GiB"));
    // 8 micro-batches of 4 fit as one of 32.
    assert_eq!(asked["asked"]["micro_batch"], 4);
    assert_eq!(asked["proposal"]["micro_batch"], 32);
    assert_eq!(asked["proposal"]["accumulation"], 1);
    assert_eq!(asked["proposal"]["recompute"], false);
    assert_eq!(
        asked["command"],
        "emberlm train --preset pocket-tales --set train.accumulation=8 --set train.micro_batch=32 --accumulation 1"
    );
    let all = asked["proposal"]["predicted"]["total"].as_u64().unwrap();
    let mut memory = all;
    // With decreasing memory, micro-batches shrink and recomputation is enabled. Each proposal stays within
    // its limit.
    let mut seen = Vec::new();
    loop {
        memory -= memory / 20;
        let ran = sandbox.words(&format!("fit --json {line} --memory {memory}B"));
        if ran.code != Some(0) {
            ran.says("no micro-batch size makes this step fit in");
            ran.says("hint: raise the limit, such as --memory ");
            break;
        }
        let found: Value = ran.json();
        let proposal = &found["proposal"];
        let number = |name: &str| proposal[name].as_u64().unwrap();
        assert_eq!(number("micro_batch") * number("accumulation"), 32);
        assert!(proposal["predicted"]["total"].as_u64().unwrap() <= memory);
        seen.push(proposal["recompute"].as_bool().unwrap());
    }
    assert!(seen.contains(&true) && seen.contains(&false));
    assert!(seen.is_sorted(), "{seen:?}");
}

#[test]
fn measurements_are_announced() {
    let sandbox = Sandbox::new();
    let line =
        "fit --preset pocket-tales --set train.micro_batch=1 --set model.n_layers=1 --memory 20GiB";
    let ran = sandbox.succeeds(line);
    let mut lines = ran.stderr.lines();
    let first = lines.next().unwrap_or_default();
    assert!(
        first.starts_with("measuring 1 x 1 sequences a step (predicted: "),
        "{ran}"
    );
    assert!(
        lines.any(|line| line.starts_with("measured 1 x 1 sequences a step: ")),
        "{ran}"
    );
    assert_eq!(sandbox.words(&format!("{line} --no-measure")).stderr, "");
}

#[test]
fn recomputation_reduces_memory() {
    let sandbox = Sandbox::new();
    let peak = |more: &str| {
        let large = "--set model.n_layers=16 --set train.micro_batch=16";
        let line = format!("--preset pocket-tales --memory 8GiB {large} {more}");
        fit(&sandbox, &line)["asked"]["measured"].as_u64()
    };
    let (Some(plain), Some(again)) = (peak(""), peak("--set train.recompute=true")) else {
        return; // The system does not report peak memory.
    };
    assert!(again < plain / 2, "{plain}, {again}");
}

#[test]
fn unfittable_requests_are_rejected() {
    let sandbox = Sandbox::new();
    sandbox.check_messages("fit");
    let ran = sandbox
        .words("fit --preset palm-540b --memory 8GiB")
        .exits(1);
    ran.says("no micro-batch size makes this step fit in 8.0 GiB: the smallest, with recomputation, takes about");
}

/// The size in KiB from a line `  name  size unit …` of the output.
fn part(report: &str, name: &str) -> f64 {
    let line = report
        .lines()
        .find(|line| line.trim_start().starts_with(name));
    let mut words = line
        .unwrap_or_else(|| panic!("no {name} in {report}"))
        .split_whitespace()
        .skip(name.split(' ').count());
    let size: f64 = words.next().unwrap().parse().unwrap();
    match words.next().unwrap() {
        "B" => size / 1024.0,
        "KiB" => size,
        "MiB" => size * 1024.0,
        "GiB" => size * 1024.0 * 1024.0,
        unit => panic!("{unit} in {report}"),
    }
}

#[test]
fn memory_report_lists_components() {
    let sandbox = Sandbox::with_data();
    let line = "--data data --steps 1 --out run --memory-report --recompute";
    let report = sandbox.train(line).stderr;
    assert!(report.starts_with("A step's memory, predicted"), "{report}");
    let parts = [
        "program",
        "weights",
        "optimizer",
        "gradients",
        "activations",
        "temporaries",
        "allocator",
    ];
    let sum: f64 = parts.iter().map(|name| part(&report, name)).sum();
    let all = part(&report, "in all");
    assert!((sum / all - 1.0).abs() < 0.02, "{report}");
}

/// Values are held in 32 bits: weights and gradients take 4 bytes each, moments twice that.
#[cfg(feature = "vulkan")]
#[test]
fn memory_report_measures_the_device_on_vulkan() {
    let sandbox = Sandbox::with_data();
    let line = "--data data --steps 1 --out run --memory-report --backend vulkan \
        --set model.d_model=128 --set model.feed_forward.width=512";
    let ran = sandbox.train(line);
    let report = &ran.stderr;
    assert_eq!(ran.code, Some(0), "{report}");
    ran.says("measured on random tokens");
    let info: Value = sandbox.json("info run --json");
    let parameters = info["parameters"]["total"].as_u64().unwrap() as f64;
    let weights = parameters * 4.0 / 1024.0;
    let close = |name: &str, expected: f64| {
        let found = part(report, name);
        assert!(
            (found / expected - 1.0).abs() < 0.1,
            "{name} of {weights}: {report}"
        );
    };
    close("weights", weights);
    close("optimizer", 2.0 * weights);
    close("gradients", weights);
    assert!(
        part(report, "activations") > 0.0 && part(report, "taken") > 4.0 * weights,
        "{report}"
    );
}

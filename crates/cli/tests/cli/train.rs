//! Training of small models.

use std::fs;

use serde_json::Value;

use super::support::tensors::floats;
use super::support::train::TINY;
use super::support::{AssertText, Sandbox};

#[test]
fn train_without_arguments_completes() {
    let sandbox = Sandbox::new();
    let text = sandbox
        .trains("--steps 4 --eval-interval 2 --set train.evaluation.tokens=500")
        .stdout;
    for part in [
        "Validation loss",
        "Floor            0.11",
        "Sample",
        "Run              runs/pocket-tales-001",
        "generate runs/pocket-tales-001",
    ] {
        text.assert_has(part);
    }
    let run = sandbox.path("runs/pocket-tales-001");
    for file in [
        "config.toml",
        "events.jsonl",
        "samples/step-00000004.txt",
        "checkpoints/step-00000004/manifest.json",
    ] {
        assert!(run.join(file).exists(), "{file}");
    }
    let evaluations = sandbox.events("runs/pocket-tales-001", "evaluation");
    assert_eq!(evaluations.len(), 2);
    assert_eq!(evaluations[1]["step"], 4);
    assert_eq!(evaluations[1]["tokens"], 500);
    let more = sandbox
        .succeeds("generate runs/pocket-tales-001 --max-new-tokens 5")
        .stdout;
    assert_eq!(more.chars().count(), 1 + 5 + 1, "{more:?}");
    // A second run gets the next free name.
    sandbox.trains("--steps 1 --set train.evaluation.tokens=50");
    assert!(sandbox.path("runs/pocket-tales-002").exists());
}

#[test]
fn plain_lines_report_progress() {
    let sandbox = Sandbox::with_data();
    let ran = sandbox.train("--data data --out run --steps 3");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 8, "{ran}");
    assert!(lines[0].starts_with("training "), "{}", lines[0]);
    assert!(lines[1].starts_with("validation: "), "{}", lines[1]);
    let warning = "warning: this model cannot be exported as a Hugging Face directory: ";
    assert!(lines[2].starts_with(warning), "{}", lines[2]);
    assert!(lines[2].contains("llama-nano"), "{}", lines[2]);
    assert!(lines[3].starts_with("ln 18 = 2.890: "), "{}", lines[3]);
    let lines = &lines[4..];
    for name in ["loss", "perplexity", "rate", "gradient norm", "tokens/s"] {
        assert!(lines[0].contains(name), "{}", lines[0]);
    }
    assert!(lines[0].starts_with("step 1/3  loss "), "{}", lines[0]);
    assert!(
        lines[3].starts_with("step 3/3  validation loss "),
        "{}",
        lines[3]
    );
}

#[test]
fn a_small_llama_is_trained_and_exported_in_both_formats() {
    let sandbox = Sandbox::with_data();
    sandbox.ok("prepare text.txt --out bytes --tokenizer byte");
    let line = "train --preset llama-nano --data bytes --steps 2 --set model.n_layers=1 --set model.seq_len=32 \
        --set train.micro_batch=2 --renderer plain --out run";
    let ran = sandbox.succeeds(line);
    ran.stderr.assert_lacks("warning");
    sandbox.ok("export run --out hf");
    for file_type in ["f16", "q8_0", "q4_k_m"] {
        let out = format!("{file_type}.gguf");
        let line = format!("export run --format gguf --type {file_type} --out {out}");
        sandbox.ok(&line);
        let info: Value = sandbox.json(&format!("info {out} --json"));
        assert_eq!(info["file_type"], file_type);
    }
    let logits = |model: &str| {
        let out = format!("{model}.logits");
        sandbox.ok(&format!("logits {model} --tokens 1,2,3 --out {out}"));
        sandbox.bytes(&out)
    };
    assert_eq!(logits("hf"), logits("run"));
}

#[test]
fn a_shrunk_preset_learns_the_vocabulary_of_its_dataset() {
    let sandbox = Sandbox::with_data();
    let small = "--set model.n_layers=1 --set model.d_model=32 --set model.heads=4 --set model.kv_heads=2 \
        --set model.seq_len=32";
    let line = format!("train --preset llama-3-8b {small} --data data --print-config");
    let printed = sandbox.ok(&line);
    for setting in [
        "vocab_size = 18\n",
        "micro_batch = 12\n",
        "accumulation = 1\n",
    ] {
        assert!(
            printed.contains(&format!("\n{setting}")),
            "{setting}: {printed}"
        );
    }
    let own = sandbox.ok(&format!(
        "{line} --set model.vocab_size=100 --accumulation 3"
    ));
    for setting in ["vocab_size = 100\n", "accumulation = 3\n"] {
        assert!(own.contains(&format!("\n{setting}")), "{setting}: {own}");
    }
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let sandbox = Sandbox::with_data();
    let line = "--data data --steps 5 --set model.dropout=0.1 --seed";
    for (run, seed) in [("a", 7), ("b", 7), ("c", 8)] {
        sandbox.trains(&format!("{line} {seed} --out {run}"));
    }
    assert_eq!(sandbox.losses("a"), sandbox.losses("b"));
    assert_eq!(sandbox.weights("a", 5), sandbox.weights("b", 5));
    assert_ne!(sandbox.losses("a"), sandbox.losses("c"));
}

#[test]
fn training_lowers_the_loss_and_eval_agrees_with_it() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--data data --out run --steps 60 --set train.schedule.learning_rate=1e-2");
    let losses = sandbox.losses("run");
    assert!(
        losses[0] > 2.5 && losses[59] < 0.8 * losses[0],
        "{losses:?}"
    );
    let last = &sandbox.events("run", "evaluation")[0];
    let found: Value = sandbox.json("eval run --data data --json");
    let (logged, found_loss) = (last["loss"].as_f64(), found["loss"].as_f64());
    let difference = (logged.unwrap() - found_loss.unwrap()).abs();
    assert!(difference < 1e-6, "{last} and {found}");
    assert_eq!(last["tokens"], found["tokens"]);
}

#[test]
fn accumulation_equals_the_large_batch() {
    let sandbox = Sandbox::with_data();
    let line = "--data data --steps 6 --set train.micro_batch";
    sandbox.trains(&format!("{line}=6 --out whole"));
    sandbox.trains(&format!("{line}=2 --accumulation 3 --out parts"));
    let (whole, parts) = (sandbox.losses("whole"), sandbox.losses("parts"));
    for (a, b) in whole.iter().zip(&parts) {
        assert!((a - b).abs() < 1e-4, "{whole:?}\n{parts:?}");
    }
}

#[test]
fn weight_decay_excludes_vectors() {
    let sandbox = Sandbox::with_data();
    // The learning rate is so small that only the weight decay, 0.1 per step, changes the weights.
    let line = "--data data --steps 1 --preset char-nano --set train.schedule.learning_rate=1e-9 \
        --set train.schedule.min_learning_rate=0 --set train.schedule.warmup_steps=0 --set train.optimizer.weight_decay=1e8";
    sandbox.trains(&format!("{line} --out run"));
    let bytes = sandbox.weights("run", 1);
    let gain = floats(&bytes, "norm_final.gain");
    assert!(gain.iter().all(|g| (g - 1.0).abs() < 1e-6), "{gain:?}");
    let values = floats(&bytes, "tokens");
    let squares = values.iter().map(|&x| f64::from(x).powi(2));
    let std = (squares.sum::<f64>() / values.len() as f64).sqrt();
    // The initial standard deviation of 0.02, reduced by a tenth.
    assert!((std - 0.018).abs() < 0.001, "{std}");
}

#[test]
fn the_printed_configuration_makes_the_same_run() {
    let sandbox = Sandbox::with_data();
    let printed = sandbox.train("--data data --steps 2 --print-config").ok();
    printed.assert_has("# Number of steps.\nsteps = 2\n");
    sandbox.write("run.toml", &printed);
    let again = sandbox.ok("train --config run.toml --print-config");
    assert_eq!(printed, again);
    sandbox.succeeds("train --config run.toml --out run --renderer plain");
    let kept = sandbox.text("run/config.toml");
    assert_eq!(kept, printed);
}

#[test]
fn greedy_generation_takes_the_largest_logit() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--data data --out run --steps 5");
    sandbox.ok("logits run --tokens 3,1,2 --out logits.safetensors");
    let logits = floats(&sandbox.bytes("logits.safetensors"), "logits");
    let vocab_size = logits.len() / 3;
    let last = &logits[2 * vocab_size..];
    let largest = (0..vocab_size).max_by(|&a, &b| last[a].total_cmp(&last[b]));
    let line = "generate run --tokens 3,1,2 --temperature 0 --max-new-tokens 1 --json";
    let made: Value = sandbox.json(line);
    assert_eq!(made["tokens"][0], largest.unwrap());
}

#[cfg(feature = "ndarray")]
#[test]
fn backends_agree_on_a_run() {
    let sandbox = Sandbox::with_data();
    for backend in ["flex", "ndarray"] {
        let line = format!("--data data --steps 4 --out {backend} --backend {backend}");
        sandbox.trains(&line);
    }
    let (flex, ndarray) = (sandbox.losses("flex"), sandbox.losses("ndarray"));
    for (a, b) in flex.iter().zip(&ndarray) {
        assert!((a - b).abs() < 1e-4, "{flex:?}\n{ndarray:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_corpus() {
    let sandbox = Sandbox::new();
    let mut peaks = Vec::new();
    for (name, megabytes) in [("small", 1), ("large", 60)] {
        sandbox.write(
            "text.txt",
            "the same words again \n".repeat(megabytes * 47_000),
        );
        let line = format!("prepare text.txt --out {name} --tokenizer byte");
        sandbox.succeeds(&line);
        let line = format!("train {TINY} --data {name} --out {name}-run --steps 40");
        let line = format!("{line} --set train.evaluation.tokens=1000");
        peaks.push(peak_memory(sandbox.command(line.split_whitespace())));
    }
    // The second corpus has 120 MB more of shards.
    assert!(peaks[1] < peaks[0] + 30, "{peaks:?} MiB");
}

/// Runs a command and returns its peak anonymous memory in MiB. Memory-mapped files do not count: the system
/// reclaims them on demand.
#[cfg(target_os = "linux")]
fn peak_memory(mut command: std::process::Command) -> u64 {
    use std::process::Stdio;
    use std::time::Duration;

    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("RssAnon:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0) / 1024);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
    assert!(peak > 0);
    peak
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_run_with_a_checkpoint() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    let sandbox = Sandbox::with_data();
    let line = format!("train {TINY} --data data --out run --steps 1000000");
    let mut command = sandbox.command(line.split_whitespace());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let step = |line: String| -> usize {
        let number = line
            .strip_prefix("step ")
            .and_then(|rest| rest.split('/').next()?.trim().parse().ok());
        number.unwrap_or(0)
    };
    assert!(lines.any(|line| step(line.unwrap()) >= 5));
    let interrupt = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(interrupt.unwrap().success());
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success());
    let told = rest
        .iter()
        .find(|line| line.starts_with("Stopped after step "));
    let step: usize = told
        .and_then(|line| line.trim_end_matches('.').rsplit(' ').next()?.parse().ok())
        .unwrap();
    assert!(step >= 5);
    assert!(!sandbox.weights("run", step).is_empty());
    sandbox.succeeds("generate run --max-new-tokens 3");
}

#[test]
fn linear_attention_learns() {
    let sandbox = Sandbox::with_data();
    let line = "--data data --out run --steps 60 --set model.attention.kind=linear \
        --set model.attention.features=64 --set train.schedule.warmup_steps=5";
    sandbox.trains(line);
    let losses = sandbox.losses("run");
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let (first, last) = (mean(&losses[..5]), mean(&losses[55..]));
    assert!(last < 0.8 * first, "{first} to {last}");
}

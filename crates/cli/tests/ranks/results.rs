//! Runs on several ranks compared with runs of one process.

use std::fs;

use crate::launch::Launcher;
use crate::support::train::TINY;
use crate::support::{AssertText, Sandbox};

/// Dropout, an average of the weights, skipped steps, and a decay that does not depend on the number of steps.
const SETTINGS: &str = "--data data --set train.micro_batch=1 --set model.dropout=0.1 --ema 0.9 \
    --set train.skip.kind=outliers --set train.skip.deviations=0.3 --set train.skip.window=3 --set train.skip.limit=50 \
    --set train.schedule.decay_steps=50 --set train.schedule.warmup_steps=2 --set train.checkpoints.interval=6";

#[test]
fn ranks_equal_accumulated_micro_batches_to_the_bit() {
    let sandbox = Sandbox::with_data();
    for ranks in [2, 4] {
        let line = format!("{SETTINGS} --accumulation {ranks} --steps 12");
        let (one, several) = (format!("one-{ranks}"), format!("ranks-{ranks}"));
        sandbox.trains(&format!("{line} --out {one}"));
        let ran = sandbox.ranks(ranks, &format!("{line} --out {several}"));
        assert!(
            sandbox.checkpoint(&one, 12) == sandbox.checkpoint(&several, 12),
            "{ran}"
        );
        assert_eq!(sandbox.losses(&one), sandbox.losses(&several));
        let skipped = sandbox.events(&several, "skipped");
        // Of the means of two micro-batches some are outliers.
        assert!(!skipped.is_empty() || ranks > 2);
        assert_eq!(sandbox.events(&one, "skipped"), skipped);
        // Only rank 0 prints.
        let notes = ran.stderr.clone();
        let printed = ran.exits(0).stdout;
        assert_eq!(printed.matches("Run  ").count(), 1, "{printed}");
        let costs = format!("each of {ranks} ranks: ");
        assert_eq!(notes.matches(&costs).count(), 1, "{notes}");
    }
}

/// The run is stopped between the two changes of the weights.
#[test]
fn ranks_change_the_weights_of_a_mix_as_one_process() {
    let sandbox = Sandbox::with_data();
    let settings = SETTINGS.replace("--data data ", "--data data=3 data=1 ");
    let line = format!(
        "{settings} --accumulation 4 --set train.stages=[{{step=3,weights=[0,1]}},{{step=8,weights=[1,3]}}]"
    );
    sandbox.trains(&format!("{line} --steps 12 --out one"));
    sandbox.trains_on(4, &format!("{line} --steps 6 --out several"));
    let resumed = "train --resume several --steps 12 --renderer plain";
    sandbox.launched(&[(4, resumed)]).exits(0);
    assert!(sandbox.checkpoint("one", 12) == sandbox.checkpoint("several", 12));
    assert_eq!(sandbox.losses("one"), sandbox.losses("several"));
}

#[test]
fn ranks_stop_early_and_repeat_a_batch_together() {
    let sandbox = Sandbox::with_data();
    // At a learning rate of 0 no evaluation is below the first one.
    let line = "--data data --accumulation 2 --steps 40 --eval-interval 2 --early-stop 3 --overfit-batch \
        --set train.micro_batch=1 --set train.schedule.kind=constant --set train.schedule.learning_rate=0";
    sandbox.trains(&format!("{line} --out one"));
    let ran = sandbox.trains_on(2, &format!("{line} --out several"));
    ran.says("Stopped early after step 8");
    assert!(sandbox.checkpoint("one", 8) == sandbox.checkpoint("several", 8));
    let losses = sandbox.losses("several");
    assert_eq!(losses, vec![losses[0]; 8]);
}

#[test]
fn ranks_with_several_micro_batches_have_the_same_result_each_time() {
    let sandbox = Sandbox::with_data();
    let line = "--data data --set train.micro_batch=1 --accumulation 4 --steps 6";
    sandbox.trains(&format!("{line} --out one"));
    for run in ["first", "second"] {
        sandbox.trains_on(2, &format!("{line} --out {run}"));
    }
    assert!(sandbox.checkpoint("first", 6) == sandbox.checkpoint("second", 6));
    for (one, two) in sandbox.losses("one").iter().zip(sandbox.losses("first")) {
        assert!((one - two).abs() < 1e-4, "{one} {two}");
    }
}

/// On flex the memory of the device is that of the host, but its address is passed to MPI as that of a GPU's memory is.
#[test]
fn exchanges_of_device_memory_have_the_same_bits() {
    if !Launcher::is_mpirun("exchanges of device memory") {
        return;
    }
    let sandbox = Sandbox::with_data();
    for (ranks, optimizer) in [(2, "adamw"), (4, "muon")] {
        let line = format!("{SETTINGS} --accumulation 4 --set train.optimizer.kind={optimizer}");
        let [host, device] = ["host", "device"].map(|memory| format!("{memory}-{optimizer}"));
        sandbox.trains_on(ranks, &format!("{line} --steps 12 --out {host}"));
        let exchange = "--set train.exchange=device";
        let part = format!("{line} --steps 6 --out {device} {exchange}");
        sandbox.trains_on(ranks, &part);
        // A resumed run may exchange another memory.
        let resume = format!("train --resume {device} --renderer plain");
        let line = format!("{resume} --steps 9 --set train.exchange=host");
        sandbox.launches(&[(ranks, &line)]);
        let line = format!("{resume} --steps 12 {exchange}");
        sandbox.launches(&[(ranks, &line)]);
        assert!(
            sandbox.checkpoint(&host, 12) == sandbox.checkpoint(&device, 12),
            "{optimizer}"
        );
        assert_eq!(sandbox.losses(&host), sandbox.losses(&device));
    }
}

#[test]
fn a_run_is_resumed_with_other_numbers_of_ranks_to_the_bit() {
    let sandbox = Sandbox::with_data();
    for optimizer in ["adamw", "muon", "normuon", "soap"] {
        let line = format!("{SETTINGS} --accumulation 4 --set train.optimizer.kind={optimizer}");
        let [whole, run] = ["whole", "run"].map(|name| format!("{name}-{optimizer}"));
        let resumed = |run: &str, ranks: usize, steps: usize| {
            let line = format!("train --resume {run} --steps {steps} --renderer plain");
            match ranks {
                1 => sandbox.words(&line),
                _ => sandbox.launched(&[(ranks, &line)]),
            }
            .exits(0);
        };
        // Four ranks round as one process, two do not.
        sandbox.trains(&format!("{line} --steps 12 --out {whole}"));
        resumed(&whole, 2, 18);
        resumed(&whole, 1, 24);
        sandbox.trains_on(4, &format!("{line} --steps 6 --out {run}"));
        resumed(&run, 1, 12);
        resumed(&run, 2, 18);
        resumed(&run, 4, 24);
        for step in [12, 18, 24] {
            let [whole, run] = [&whole, &run].map(|name| sandbox.checkpoint(name, step));
            assert!(whole == run, "{optimizer}, step {step}");
        }
        assert_eq!(sandbox.losses(&whole), sandbox.losses(&run));
    }
}

#[test]
fn adapters_and_preferences_equal_one_process() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--data data --steps 2 --out base");
    let pairs = (0..40).map(|i| {
        let [good, bad] = [2 * i + 1, i];
        format!(
            "{{\"prompt\": \"{i} and {} \", \"chosen\": \"make {good}\", \"rejected\": \"make {bad}\"}}\n",
            i + 1
        )
    });
    sandbox.write("pairs.jsonl", pairs.collect::<String>());
    let common = "--accumulation 2 --steps 4 --renderer plain --set train.micro_batch=2 --set train.log_interval=1 --from base";
    for (name, line) in [
        (
            "adapter",
            "--data data --adapter lora --set train.adapter.dropout=0.1",
        ),
        ("dpo", "--data pairs.jsonl --objective dpo"),
    ] {
        let line = format!("train {common} {line}");
        let (one, two) = (format!("one-{name}"), format!("two-{name}"));
        sandbox.succeeds(&format!("{line} --out {one}"));
        sandbox.launches(&[(2, &format!("{line} --out {two}"))]);
        assert!(
            sandbox.checkpoint(&one, 4) == sandbox.checkpoint(&two, 4),
            "{name}"
        );
        let logged = sandbox.events(&two, "step");
        assert_eq!(logged.len(), 4);
        assert_eq!(sandbox.events(&one, "step"), logged, "{name}");
    }
    let adapter = sandbox.path("two-adapter/checkpoints/step-00000004/model.safetensors");
    let base = sandbox.path("base/checkpoints/step-00000002/model.safetensors");
    let size = |path| fs::metadata(path).unwrap().len();
    assert!(size(adapter) < size(base), "only the adapter is trained");
}

#[test]
fn encoders_and_encoder_decoders_equal_one_process() {
    let sandbox = Sandbox::new();
    let lines = (0..2000).map(|i| format!("line {i} has the number {}\n", i * 7 % 1000));
    sandbox.write("lines.txt", lines.collect::<String>());
    sandbox.ok("prepare lines.txt --out lines --tokenizer byte");
    let common =
        "--data lines --accumulation 2 --steps 4 --renderer plain --set train.micro_batch=2";
    for preset in ["bert-nano", "t5-nano"] {
        let line = format!("train {common} --preset {preset}");
        let (one, two) = (format!("one-{preset}"), format!("two-{preset}"));
        sandbox.succeeds(&format!("{line} --out {one}"));
        sandbox.launches(&[(2, &format!("{line} --out {two}"))]);
        let [one, two] = [one, two].map(|run| sandbox.checkpoint(&run, 4));
        assert!(one == two, "{preset}");
    }
}

#[test]
fn a_sweep_starts_its_runs_with_a_launcher() {
    if !Launcher::is_mpirun("a sweep with a launcher") {
        return;
    }
    let sandbox = Sandbox::with_data();
    sandbox.write(
        "rates.toml",
        r#"
        preset = "char-nano"
        data = "data"
        set = { "model.d_model" = 24, "model.n_layers" = 2, "model.heads" = 2, "model.kv_heads" = 2, "model.seq_len" = 32, "model.feed_forward.width" = 48, "train.micro_batch" = 1, "train.accumulation" = 2, "train.steps" = 4 }
        grid = { "train.schedule.learning_rate" = [0.001, 0.002] }
        "#,
    );
    let launcher = "mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2";
    let swept = sandbox.run([
        "sweep",
        "rates.toml",
        "--out",
        "ranks",
        "--launcher",
        launcher,
    ]);
    assert_eq!(swept.code, Some(0), "{swept}");
    sandbox.succeeds("sweep rates.toml --out one");
    for rate in ["0.001", "0.002"] {
        let [one, ranks] =
            ["one", "ranks"].map(|out| format!("{out}/schedule.learning_rate={rate}"));
        assert!(sandbox.checkpoint(&one, 4) == sandbox.checkpoint(&ranks, 4));
        let log = fs::read_to_string(sandbox.path(&ranks).join("log.txt")).unwrap();
        log.assert_has(", 2 ranks: ");
    }
}

#[test]
fn ranks_share_the_built_in_tales() {
    let sandbox = Sandbox::new();
    let line =
        format!("train {TINY} --accumulation 4 --steps 1 --out run --set train.micro_batch=1");
    sandbox.launches(&[(4, &line)]);
}

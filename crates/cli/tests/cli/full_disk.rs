//! Full disks, simulated by a limit on the file size.

use std::fs;
use std::os::unix::fs::symlink;

use emberlm_model::{ModelConfig, families};

use super::support::model::write_run;
use super::support::{AssertText, Sandbox};

/// Limits files to a few KiB. The signal is ignored, so that writes fail with an error instead.
const LIMITED: &str = "trap '' XFSZ; ulimit -f 8;";

#[test]
fn export_reports_a_full_disk() {
    let sandbox = Sandbox::with_char_model();
    fs::remove_dir_all(sandbox.path("run")).unwrap();
    let config = ModelConfig {
        seq_len: 8,
        d_model: 16,
        n_layers: 2,
        heads: 2,
        head_dim: Some(8),
        vocab_size: Some(100),
        ..families::preset("gpt2").unwrap().config
    };
    write_run(&sandbox.path("run"), &config, None, &[1]);
    let ran = sandbox.sh(&format!("{LIMITED} exec \"$EMBERLM\" export run --out out"));
    assert_eq!(ran.code, Some(1), "{ran}");
    ran.says("File too large");
    ran.says("hint: a file may not become that large");
    ran.stderr.assert_lacks("weights do not belong");
    assert!(!sandbox.path("out").exists());
    assert_eq!(sandbox.names(), ["data", "run", "text.txt"]);
}

#[test]
fn pictures_are_written_atomically() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--data data --out run --steps 4");
    sandbox.write("a.svg", "before");
    let names = sandbox.names();
    let ran = sandbox.sh(&format!("{LIMITED} exec \"$EMBERLM\" plot run --out a.svg"));
    assert_eq!(ran.code, Some(1), "{ran}");
    ran.says("error: cannot write a.svg: File too large");
    assert_eq!(sandbox.text("a.svg"), "before");
    assert_eq!(sandbox.names(), names);
    symlink("/dev/full", sandbox.path("full.svg")).unwrap();
    let ran = sandbox.fails("plot run --out full.svg");
    ran.says("hint: make room on the disk");
}

#[test]
fn a_failed_checkpoint_is_reported() {
    let sandbox = Sandbox::with_data();
    let line = format!(
        "train {} --data data --out run --steps 2",
        super::support::train::TINY
    );
    let ran = sandbox.sh(&format!(
        "trap '' XFSZ; ulimit -f 40; exec \"$EMBERLM\" {line}"
    ));
    assert_eq!(ran.code, Some(1), "{ran}");
    ran.says("without a checkpoint: ");
    ran.says("File too large");
}

#[test]
fn prepare_reports_a_full_disk() {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "hello small world\n".repeat(2000));
    let ran = sandbox.sh(&format!(
        "{LIMITED} exec \"$EMBERLM\" prepare text.txt --out data --tokenizer char"
    ));
    assert_eq!(ran.code, Some(1), "{ran}");
    ran.says("hint: a file may not become that large");
}

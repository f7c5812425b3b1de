//! Failures of `emberlm prepare`: each message states cause, place and fix, and no files are left behind.

use super::support::Sandbox;

#[test]
fn texts_and_folders_that_cannot_be_prepared() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "some text");
    sandbox.write("latin1.txt", b"caf\xE9 au lait");
    sandbox.write("texts/a.txt", "text");
    sandbox.write("texts/empty.txt", "");
    sandbox.write("hidden/.hidden", "text");
    sandbox.write("x.txt", "x");
    sandbox.write("photos/1.jpg", "");
    sandbox.write(".begun.partial/progress.json", "{}");
    sandbox.write(".begun.partial/data/train_00000.bin", "");
    sandbox.ok("prepare a.txt --out there --tokenizer byte");
    sandbox.check_messages("prepare_errors");
    sandbox.ok("prepare a.txt --out begun --tokenizer byte --force");
    assert!(!sandbox.path(".begun.partial").exists());
}

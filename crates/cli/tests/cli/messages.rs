//! Common mistakes, one per kind, in one table for review: `tests/messages/mistakes.txt`. `support/messages.rs` describes it.

use super::support::Sandbox;

#[test]
fn messages_of_mistakes() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("m.gguf", "GGUF");
    sandbox.write("broken.toml", "[train\nsteps = 3\n");
    sandbox.write("broken.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n");
    sandbox.check_messages("mistakes");
}

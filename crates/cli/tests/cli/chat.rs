//! `emberlm chat`, and the chat template that comes to it from a dataset.

use std::fs;

use serde_json::{Value, json};

use super::support::Sandbox;
use super::support::train::trained;

impl Sandbox {
    /// A dataset `talks` of conversations in ChatML, in bytes.
    fn with_talks() -> Self {
        let sandbox = Self::new();
        let talk = |i: usize| {
            let question = json!({ "role": "user", "content": format!("{i} + 1?") });
            let answer = json!({ "role": "assistant", "content": format!("{}", i + 1) });
            json!({ "messages": [question, answer] }).to_string() + "\n"
        };
        sandbox.write("talks.jsonl", (0..60).map(talk).collect::<String>());
        let line = "prepare talks.jsonl --out talks --tokenizer byte --chat-template chatml";
        assert_eq!(sandbox.words(line).code, Some(0));
        sandbox
    }
}

/// From the dataset into the run, and from the run into what Hugging Face's libraries read.
#[test]
fn a_template_stays_with_what_was_made_by_it() {
    let sandbox = Sandbox::with_talks();
    let json = |path: &str| -> Value {
        serde_json::from_slice(&fs::read(sandbox.path(path)).unwrap()).unwrap()
    };
    let recorded = json("talks/dataset.json")["chat_template"].clone();
    assert_eq!(recorded["name"], "chatml");
    trained(sandbox.train("--preset char-nano --data talks --out run --steps 1"));
    let model = json("run/checkpoints/step-00000001/model.json");
    assert_eq!(model["chat_template"], recorded);
    let ran = sandbox.words("export run --out exported");
    assert_eq!(ran.code, Some(0), "{ran}");
    let exported = fs::read_to_string(sandbox.path("exported/chat_template.jinja")).unwrap();
    assert_eq!(recorded["template"], exported);
    // A text's dataset has none, and says nothing of it.
    sandbox.write("text.txt", "hello small world\n".repeat(20));
    sandbox
        .words("prepare text.txt --out data --tokenizer char")
        .ok();
    assert_eq!(json("data/dataset.json").get("chat_template"), None);
}

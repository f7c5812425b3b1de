//! Fine-tuning a published chat model that uses one token for the end of a turn and of a text, like SmolLM2.

use std::fs;

use emberlm_data::{Dataset, Split};
use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use serde_json::{Value, json};

use super::support::{AssertText, Sandbox, close};

const TURN_BEGINS: u32 = 257;
const TURN_ENDS: u32 = 258;

const TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// The model's tokenizer and generation files, with contents that this program would not write.
fn files() -> [(&'static str, String); 3] {
    let template = json!(TEMPLATE);
    [
        (
            "tokenizer_config.json",
            format!(
                "{{ \"eos_token\":\"<|im_end|>\",   \"bos_token\":\"<|im_start|>\", \"pad_token\":\"<|im_end|>\",\n\
                 \"model_max_length\": 8192, \"chat_template\": {template}, \"tokenizer_class\":\"GPT2Tokenizer\"}}"
            ),
        ),
        (
            "special_tokens_map.json",
            "{\"bos_token\":\"<|im_start|>\",\n\n\"eos_token\":\"<|im_end|>\"}".to_owned(),
        ),
        (
            "generation_config.json",
            format!(
                "{{\"eos_token_id\":{TURN_ENDS},  \"bos_token_id\":{TURN_BEGINS}, \"temperature\":0.3}}\n"
            ),
        ),
    ]
}

/// A sandbox with the published model `base` and conversations `talks.jsonl`.
pub fn with_base() -> Sandbox {
    let sandbox = Sandbox::new();
    let small = "--set model.d_model=16 --set model.n_layers=1 --set model.heads=2 --set model.kv_heads=2 \
        --set model.head_dim=8 --set model.feed_forward.width=32 --set model.seq_len=96";
    let line = format!("new --preset llama-3.2-1b --vocab-size 259 {small} --out new");
    sandbox.ok(&line);
    sandbox.ok("export new --out base");
    sandbox.edit("base/config.json", |config| {
        config["bos_token_id"] = json!(TURN_BEGINS);
        config["eos_token_id"] = json!(TURN_ENDS);
        config["pad_token_id"] = json!(TURN_ENDS);
    });
    let bytes = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
    let mut tokenizer: Value = serde_json::from_slice(&bytes.to_tokenizer_json()).unwrap();
    let added = tokenizer["added_tokens"].as_array_mut().unwrap();
    for (name, id) in [("<|im_start|>", TURN_BEGINS), ("<|im_end|>", TURN_ENDS)] {
        let mut token = added[0].clone();
        token["id"] = json!(id);
        token["content"] = json!(name);
        added.push(token);
    }
    sandbox.write("base/tokenizer.json", tokenizer.to_string());
    for (name, text) in files() {
        sandbox.write(&format!("base/{name}"), text);
    }
    // Turns repeat, but no two conversations are equal.
    let talk = |number: usize| {
        let say = |role: &str, content: String| json!({ "role": role, "content": content });
        let messages = [
            say("user", "Hello".to_owned()),
            say("assistant", "Hi".to_owned()),
            say("user", "A number?".to_owned()),
            say("assistant", number.to_string()),
        ];
        json!({ "messages": messages }).to_string() + "\n"
    };
    sandbox.write("talks.jsonl", (0..60).map(talk).collect::<String>());
    sandbox.succeeds("prepare talks.jsonl --chat-template base --tokenizer base --out talks");
    sandbox
}

fn read(sandbox: &Sandbox, name: &str) -> String {
    sandbox.text(name)
}

#[test]
fn the_datasets_index_separates_conversations() {
    let sandbox = with_base();
    let dataset = Dataset::open(sandbox.path("talks")).unwrap();
    let manifest = dataset.manifest();
    let documents = Split::ALL.map(|split| manifest.split(split).documents);
    assert!(documents.iter().sum::<u64>() == 60 && !documents.contains(&0));
    // The template itself starts the conversation, so nothing is added before it.
    let first = dataset.split(Split::Train).unwrap().read(0, 5).unwrap();
    assert_eq!(first, [TURN_BEGINS, 117, 115, 101, 114]);
    sandbox.ok("data verify talks");
    let found: Value = sandbox.json("data inspect talks --json");
    for (split, count) in ["train", "val"].into_iter().zip(documents) {
        let found = &found[split]["found"];
        assert_eq!(found["count"], count, "{split}");
        assert_eq!(found["duplicates"], 0, "{split}");
    }
    assert_eq!(found["leaked"], 0);
    let text = found["excerpts"][0]["text"].as_str().unwrap();
    assert!(
        text.starts_with("<|im_start|>user\nHello<|im_end|>\n"),
        "{text}"
    );
    assert!(text.matches("<|im_start|>").count() == 4, "{text}");
}

#[test]
fn a_fine_tuned_chat_model_keeps_its_files() {
    let sandbox = with_base();
    let train = "train --from base --data talks --documents isolated --out run --steps 2 --renderer plain \
        --set train.micro_batch=2 --accumulation 1";
    let ran = sandbox.succeeds(train);
    ran.says("talks: documents ");
    // The sample answers the first prompt of the data, and the next step is a conversation.
    ran.prints("chat run\n");
    ran.stdout.assert_lacks("generate run");
    let samples = sandbox.events("run", "sample");
    let text = samples.last().unwrap()["text"].as_str().unwrap();
    let prompt = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n";
    assert!(text.starts_with(prompt), "{text}");
    let found: Value = sandbox.json("eval run --data talks --json");
    assert_eq!(found["documents"], "isolated");
    close(
        &found["loss"],
        &sandbox.events("run", "evaluation").last().unwrap()["loss"],
        1e-6,
    );

    // A resumed run keeps the files, too.
    sandbox.succeeds("train --resume run --steps 3 --renderer plain");
    sandbox.ok("export run --out tuned");
    for (name, text) in files() {
        assert_eq!(read(&sandbox, &format!("tuned/{name}")), text, "{name}");
    }
    assert_eq!(
        read(&sandbox, "tuned/tokenizer.json"),
        read(&sandbox, "base/tokenizer.json")
    );
    assert!(!sandbox.path("tuned/chat_template.jinja").exists());
    let config: Value = serde_json::from_str(&read(&sandbox, "tuned/config.json")).unwrap();
    assert_eq!(
        [
            &config["bos_token_id"],
            &config["eos_token_id"],
            &config["pad_token_id"]
        ],
        [TURN_BEGINS, TURN_ENDS, TURN_ENDS]
            .map(|id| json!(id))
            .each_ref()
    );

    // The exported model prepares the same dataset.
    sandbox.succeeds("prepare talks.jsonl --chat-template tuned --tokenizer tuned --out again");
    for file in [
        "train_00000.bin",
        "train_00000.mask",
        "val_00000.bin",
        "val_00000.mask",
    ] {
        let read = |folder: &str| fs::read(sandbox.path(folder).join(file)).unwrap();
        assert!(read("talks") == read("again"), "{file}");
    }
}

/// A dataset of an earlier version: its masks have no index, and each conversation starts with an end-of-text
/// token.
#[test]
fn datasets_without_an_index_split_at_end_of_text() {
    let sandbox = with_base();
    sandbox.edit("talks/dataset.json", |manifest| {
        for split in ["train", "val"] {
            let mask = &mut manifest["splits"][split]["shards"][0]["mask"];
            let file = format!("talks/{}", mask["file"].as_str().unwrap());
            let bytes: Vec<u8> = sandbox.bytes(&file).iter().map(|byte| byte & 1).collect();
            mask["blake3"] = json!(blake3::hash(&bytes).to_hex().as_str());
            mask.as_object_mut().unwrap().remove("indexes_documents");
            sandbox.write(&file, bytes);
        }
    });
    let ran =
        sandbox.fails("train --from base --data talks --documents isolated --out run --steps 1");
    ran.says("cannot be distinguished");
    sandbox.succeeds("train --from base --data talks --out run --steps 1 --renderer plain");
}

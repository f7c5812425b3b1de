//! One conversation has the same ids in every form of a model: those of `transformers`, recorded by
//! `crates/tokenizer/tests/fixtures/make_conversations.py`.

use std::fs;

use emberlm_checkpoint::Model;
use emberlm_data::{Dataset, Split};
use serde::Deserialize;
use serde_json::{Value, json};

use super::support::Sandbox;

#[derive(Deserialize)]
struct Case {
    name: String,
    /// The fields of `tokenizer_config.json`.
    config: Value,
    post_processor: Value,
    conversations: Vec<Conversation>,
}

#[derive(Deserialize)]
struct Conversation {
    record: Value,
    ids: Vec<u32>,
    /// The ids before the last answer.
    prompt: Vec<u32>,
}

fn case(name: &str) -> Case {
    let cases = include_str!("../../../tokenizer/tests/fixtures/conversations.json");
    let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
    cases.into_iter().find(|case| case.name == name).unwrap()
}

impl Case {
    /// The case's records as JSON Lines.
    fn records(&self) -> String {
        let records = self.conversations.iter();
        records
            .map(|conversation| format!("{}\n", conversation.record))
            .collect()
    }

    /// The published model `base` with the case's tokenizer and template, and its GGUF file.
    fn published(&self) -> Sandbox {
        let sandbox = Sandbox::new();
        let small = "--set model.d_model=16 --set model.n_layers=1 --set model.heads=2 --set model.kv_heads=2 \
            --set model.head_dim=8 --set model.feed_forward.width=32 --set model.seq_len=512";
        sandbox.succeeds(&format!(
            "new --preset llama-3.2-1b --vocab-size 261 {small} --out new"
        ));
        sandbox.succeeds("export new --out base");
        let tokenizer =
            include_str!("../../../tokenizer/tests/fixtures/conversations/tokenizer.json");
        let mut tokenizer: Value = serde_json::from_str(tokenizer).unwrap();
        tokenizer["post_processor"] = self.post_processor.clone();
        sandbox.write("base/tokenizer.json", tokenizer.to_string());
        sandbox.write("base/tokenizer_config.json", self.config.to_string());
        sandbox.write("talks.jsonl", self.records());
        sandbox.succeeds("export base --format gguf --type f32 --out base.gguf");
        sandbox
    }

    /// Checks the ids of prompts of the model at `path`, as `chat` and `serve` make them, and of a dataset that is prepared
    /// with the template of the model at `source`.
    fn check(&self, sandbox: &Sandbox, path: &str, source: Option<&str>) {
        let name = format!("{}, {path}", self.name);
        let model = Model::open(sandbox.path(path)).unwrap();
        let tokenizer = model.require_tokenizer().unwrap();
        let encoder = model.chat(&tokenizer, None).unwrap().unwrap();
        let with_tools = model.tool_chat(&tokenizer, None).unwrap();
        for Conversation {
            record,
            ids,
            prompt,
        } in &self.conversations
        {
            let mut asked = record.clone();
            asked["messages"].as_array_mut().unwrap().pop();
            let encoder = match record.get("tools") {
                Some(_) => with_tools.as_ref().unwrap(),
                None => &encoder,
            };
            assert_eq!(
                encoder.prompt(&asked.to_string()).unwrap(),
                *prompt,
                "{name}"
            );
            let trained = encoder.encode_documents(&[&record.to_string()]).pop();
            assert_eq!(trained.unwrap().unwrap().ids, *ids, "{name}");
        }
        if let Some(source) = source {
            let out = format!("{}-talks", path.replace(['.', '/'], "-"));
            let line = format!(
                "prepare talks.jsonl --chat-template {source} --tokenizer {source} --val-fraction 0 --out {out}"
            );
            sandbox.succeeds(&line);
            let dataset = Dataset::open(sandbox.path(&out)).unwrap();
            let expected: Vec<u32> = self
                .conversations
                .iter()
                .flat_map(|c| c.ids.clone())
                .collect();
            let split = Split::Train;
            assert_eq!(
                dataset.manifest().split(split).tokens,
                expected.len() as u64,
                "{name}"
            );
            let read = dataset
                .split(split)
                .unwrap()
                .read(0, expected.len() as u64)
                .unwrap();
            assert_eq!(read, expected, "{name}");
        }
    }

    /// Checks that `transformers` finds the case's templates and special tokens in a directory.
    fn check_directory(&self, sandbox: &Sandbox, folder: &str) {
        let read = |name: &str| fs::read_to_string(sandbox.path(folder).join(name)).ok();
        let config: Value = serde_json::from_str(&read("tokenizer_config.json").unwrap()).unwrap();
        for token in ["bos_token", "eos_token"] {
            assert_eq!(config[token], self.config[token], "{}, {folder}", self.name);
        }
        let listed = |config: &Value, which: &str| {
            let templates = config["chat_template"].as_array()?;
            let template = templates
                .iter()
                .find(|template| template["name"] == which)?;
            Some(template["template"].as_str()?.to_owned())
        };
        let main = |config: &Value| {
            let single = config["chat_template"].as_str().map(str::to_owned);
            single.or_else(|| listed(config, "default")).unwrap()
        };
        let template = read("chat_template.jinja").unwrap_or_else(|| main(&config));
        assert_eq!(template, main(&self.config), "{}, {folder}", self.name);
        let tools = read("additional_chat_templates/tool_use.jinja")
            .or_else(|| listed(&config, "tool_use"));
        assert_eq!(
            tools,
            listed(&self.config, "tool_use"),
            "{}, {folder}",
            self.name
        );
    }
}

/// A model that emberlm did not train, and everything that it writes of it.
#[track_caller]
fn published_forms_have_the_same_ids(name: &str) {
    let case = case(name);
    let sandbox = case.published();
    let check = |path: &str| case.check(&sandbox, path, Some(path));
    let check_directory = |folder: &str| case.check_directory(&sandbox, folder);
    check("base");
    check("base.gguf");
    sandbox.succeeds("export base.gguf --out directory");
    sandbox.succeeds("export base --out copy");
    for folder in ["directory", "copy"] {
        check(folder);
        check_directory(folder);
    }

    sandbox.write("many.jsonl", case.records().repeat(12));
    sandbox.succeeds("prepare many.jsonl --chat-template base.gguf --tokenizer base.gguf --val-fraction 0.3 --out many");
    let train = "--data many --steps 1 --set train.micro_batch=1 --accumulation 1 --set train.seq_len=64 \
        --renderer plain";
    sandbox.succeeds(&format!(
        "train --from base.gguf --adapter lora {train} --out run"
    ));
    case.check(&sandbox, "run", None);
    sandbox.succeeds("export run --out adapter");
    check_directory("adapter");
    sandbox.succeeds("merge run --out merged");
    check("merged");
    check_directory("merged");
    sandbox.succeeds("merge base --adapter adapter --out merged-base");
    check("merged-base");
    check_directory("merged-base");
    sandbox.succeeds("export merged --format gguf --type f32 --out again.gguf");
    check("again.gguf");
    sandbox.succeeds("export again.gguf --out once-more");
    check("once-more");
    check_directory("once-more");
    sandbox.succeeds(&format!("train --from directory {train} --out full"));
    case.check(&sandbox, "full", None);
    sandbox.succeeds("export full --out tuned");
    check("tuned");
    check_directory("tuned");

    // A run on plain text keeps the template, too.
    sandbox.write("text.txt", "hello small world\n".repeat(60));
    sandbox.succeeds("prepare text.txt --tokenizer base.gguf --out text");
    let train = train.replace("many", "text");
    sandbox.succeeds(&format!(
        "train --from base.gguf --adapter lora {train} --out on-text"
    ));
    case.check(&sandbox, "on-text", None);

    let models = ["base.gguf", "directory", "run", "merged", "again.gguf"];
    let server = sandbox.serve(&format!("serve {}", models.join(" ")));
    for Conversation { record, prompt, .. } in &case.conversations {
        // A server needs the template's form of calls for tools.
        if record.get("tools").is_some() {
            continue;
        }
        let mut messages = record["messages"].as_array().unwrap().clone();
        messages.pop();
        for path in models {
            let request = json!({ "model": path, "messages": messages, "max_tokens": 1 });
            let answer = server.post("/v1/chat/completions", &request);
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            assert_eq!(
                answer.json()["usage"]["prompt_tokens"],
                prompt.len(),
                "{path}"
            );
        }
    }
}

#[test]
fn a_model_with_special_tokens_keeps_its_ids() {
    published_forms_have_the_same_ids("chatml");
}

#[test]
fn a_model_with_bos_keeps_its_ids() {
    published_forms_have_the_same_ids("bos");
    published_forms_have_the_same_ids("bos of a text only");
}

#[test]
fn a_model_without_a_token_before_conversations_keeps_its_ids() {
    published_forms_have_the_same_ids("headings");
    published_forms_have_the_same_ids("system without a token");
}

#[test]
fn a_model_with_a_template_for_tools_keeps_its_ids() {
    published_forms_have_the_same_ids("tool use");
}

/// The ids of a run from scratch begin with the end of text, wherever they are made.
#[test]
fn runs_have_the_ids_that_transformers_has_for_their_exports() {
    let bos = case("bos").config["chat_template"].clone();
    for (name, template) in [("run", "chatml"), ("run with bos_token", "bos.jinja")] {
        let case = case(name);
        let sandbox = Sandbox::new();
        sandbox.write("bos.jinja", bos.as_str().unwrap());
        sandbox.write("talks.jsonl", case.records());
        sandbox.write("many.jsonl", case.records().repeat(40));
        let prepare = format!("--chat-template {template} --tokenizer byte");
        sandbox.succeeds(&format!("prepare many.jsonl {prepare} --out many"));
        let small = "--preset char-nano --set model.d_model=48 --set model.seq_len=64 --steps 1 --renderer plain";
        sandbox.succeeds(&format!("train {small} --data many --out run"));
        case.check(&sandbox, "run", None);
        sandbox.succeeds(&format!(
            "prepare talks.jsonl {prepare} --val-fraction 0 --out talks"
        ));
        let dataset = Dataset::open(sandbox.path("talks")).unwrap();
        let expected: Vec<u32> = case
            .conversations
            .iter()
            .flat_map(|c| c.ids.clone())
            .collect();
        let read = dataset
            .split(Split::Train)
            .unwrap()
            .read(0, expected.len() as u64);
        assert_eq!(read.unwrap(), expected, "{name}");

        sandbox.succeeds("export run --out exported");
        case.check(&sandbox, "exported", Some("exported"));
        case.check_directory(&sandbox, "exported");
        sandbox.succeeds("export exported --out copy");
        case.check(&sandbox, "copy", Some("copy"));
        // A run on the exported model, by the template that it was made with.
        let options = format!("--chat-template {template} --tokenizer exported");
        sandbox.succeeds(&format!("prepare many.jsonl {options} --out tuned-talks"));
        let train = "train --from exported --data tuned-talks --adapter lora --steps 1 --renderer plain --out tuned";
        sandbox.succeeds(train);
        case.check(&sandbox, "tuned", None);
        sandbox.succeeds("merge tuned --out merged");
        case.check(&sandbox, "merged", Some("merged"));
    }
}

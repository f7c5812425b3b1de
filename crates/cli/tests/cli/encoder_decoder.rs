//! `emberlm generate` with an encoder–decoder, and with beams.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::support::{CommandOutput, Sandbox, fixtures, tensors};

/// The first source of the fixture, and `transformers`' targets.
const SOURCE: [u32; 9] = [46, 4, 42, 24, 57, 6, 19, 15, 37];
const GREEDY: [u32; 17] = [
    12, 55, 55, 55, 55, 55, 55, 55, 55, 55, 55, 55, 28, 55, 28, 55, 17,
];
const TWO_BEAMS: [u32; 7] = [12, 55, 12, 55, 28, 55, 17];
const DECODER_BEAMS: [u32; 12] = [20, 30, 62, 70, 23, 62, 70, 62, 70, 19, 19, 46];

fn generate(model: &Path, options: &[&str]) -> CommandOutput {
    let command = [&["generate", model.to_str().unwrap()], options].concat();
    Sandbox::new().run(command)
}

fn tokens(model: &Path, options: &[&str]) -> (Vec<u32>, Value) {
    let value: Value = generate(model, &[options, &["--json"]].concat()).json();
    let tokens = value["tokens"].as_array().unwrap().iter();
    let tokens = tokens.map(|id| id.as_u64().unwrap() as u32).collect();
    (tokens, value)
}

fn ids(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    ids.join(",")
}

/// The fixture with a tokenizer whose words are `w0`, `w1`, … and whose template ends a text with token 1.
pub fn with_tokenizer() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(
            fixtures().join("encoder_decoder/t5-untied").join(file),
            folder.path().join(file),
        )
        .unwrap();
    }
    let mut vocab: serde_json::Map<String, Value> =
        (0..67).map(|id| (format!("w{id}"), json!(id))).collect();
    vocab.remove("w1");
    vocab.insert("</s>".to_owned(), json!(1));
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [{
            "id": 1, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true
        }],
        "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "</s>", "type_id": 0}}
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 0}}
            ],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}
        },
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "w2"}
    });
    fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    folder
}

#[test]
fn targets_are_those_of_transformers() {
    let model = fixtures().join("encoder_decoder/t5-untied");
    let source = ids(&SOURCE);
    let (greedy, value) = tokens(&model, &["--tokens", &source]);
    assert_eq!(greedy, GREEDY);
    assert_eq!(value["finish"], "stop");
    let length = ["--tokens", &source, "--max-new-tokens", "5"];
    let (greedy, value) = tokens(&model, &length);
    assert_eq!(greedy, GREEDY[..5]);
    assert_eq!(value["finish"], "length");
    let beams = [
        "--tokens",
        &source,
        "--max-new-tokens",
        "12",
        "--beams",
        "2",
    ];
    assert_eq!(tokens(&model, &beams).0, TWO_BEAMS);
    let drawn = ["--tokens", &source, "--temperature", "1", "--seed", "3"];
    assert_eq!(tokens(&model, &drawn), tokens(&model, &drawn));
}

#[test]
fn a_text_is_encoded_with_the_tokenizers_template() {
    let folder = with_tokenizer();
    let model = folder.path();
    let text = generate(
        model,
        &[
            "--prompt",
            "w5 w6 w7",
            "--beams",
            "3",
            "--length-penalty",
            "0.6",
        ],
    );
    let options = [
        "--tokens",
        "5,6,7,1",
        "--beams",
        "3",
        "--length-penalty",
        "0.6",
    ];
    let (expected, _) = tokens(model, &options);
    let words: Vec<String> = expected.iter().map(|id| format!("w{id}")).collect();
    assert_eq!(text.ok().trim_end(), words.join(" "));
    let (greedy, value) = tokens(model, &["--prompt", "w5 w6 w7"]);
    assert_eq!(greedy, tokens(model, &["--tokens", "5,6,7,1"]).0);
    assert!(value["text"].as_str().unwrap().starts_with('w'));
}

#[test]
fn decoders_search_with_beams_too() {
    let model = fixtures().join("families/llama-gqa");
    let expected = fs::read(fixtures().join("encoder_decoder/decoder_beams.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    assert_eq!(expected["llama-gqa"][0]["tokens"], json!(DECODER_BEAMS));
    let prompt = fs::read(model.join("expected.safetensors")).unwrap();
    let prompt: Vec<u32> = tensors::ids(&prompt, "prompt")[..5]
        .iter()
        .map(|&id| id as u32)
        .collect();
    let options = [
        "--tokens",
        &ids(&prompt),
        "--max-new-tokens",
        "12",
        "--beams",
        "2",
    ];
    assert_eq!(tokens(&model, &options).0, DECODER_BEAMS);
}

#[test]
fn options_that_do_not_apply_are_refused() {
    Sandbox::new().check_messages("encoder_decoder");
}

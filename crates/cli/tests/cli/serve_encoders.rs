//! `emberlm serve` with an encoder and beside models of other kinds: `/v1/embeddings` and what it refuses.

use std::fs;
use std::path::Path;

use emberlm_model::TransformerConfig;
use emberlm_model::encoder::EncoderSettings;
use emberlm_model::hugging_face::{ExportOptions, export};
use serde_json::{Value, json};

use super::support::model::Cpu;
use super::support::server::{Answer, Server, together};
use super::support::{AssertText, Sandbox};
use super::{encoder as encoders, encoder_decoder as encoder_decoders};

/// An encoder wide enough for matrix products of different kernels, with a tokenizer of words.
fn wide_encoder() -> tempfile::TempDir {
    let folder = encoders::model();
    let settings = EncoderSettings {
        vocab_size: 59,
        positions: 64,
        n_layers: 3,
        ..EncoderSettings::new(192, 4)
    };
    let config = TransformerConfig::try_from(settings).unwrap();
    let model = config.init::<Cpu>(5, &Default::default());
    export(&model, folder.path(), &ExportOptions::default()).unwrap();
    folder
}

pub fn serve(sandbox: &Sandbox, model: &Path, options: &str) -> Server {
    sandbox.serve(&format!("serve run={} {options}", model.display()))
}

/// Text `number`, of 1 to 60 words.
pub fn text(number: usize) -> String {
    let count = 1 + number * 17 % 60;
    let words: Vec<String> = (0..count)
        .map(|i| format!("w{}", (i * 7 + number * 3) % 59))
        .collect();
    words.join(" ")
}

/// The vectors of `emberlm embed`.
fn embedded(sandbox: &Sandbox, model: &Path, texts: &[String]) -> Vec<Value> {
    sandbox.write("texts.txt", texts.join("\n") + "\n");
    let model = model.to_str().unwrap();
    let ran = sandbox.run(["embed", model, "texts.txt"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    let lines = ran.stdout;
    let parse = |line| serde_json::from_str::<Value>(line).unwrap()["embedding"].take();
    lines.lines().map(parse).collect()
}

fn vectors(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let data = answer.json()["data"].take();
    let data = data.as_array().unwrap().iter().enumerate();
    data.map(|(index, item)| {
        assert_eq!(
            (&item["object"], &item["index"]),
            (&json!("embedding"), &json!(index))
        );
        item["embedding"].clone()
    })
    .collect()
}

/// The f32 of a vector of numbers.
fn floats(vector: &Value) -> Vec<f32> {
    let numbers = vector.as_array().unwrap().iter();
    numbers.map(|x| x.as_f64().unwrap() as f32).collect()
}

/// Decodes base64 with padding.
fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.trim_end_matches('=').chars();
    let bits = digits.flat_map(|digit| {
        let value = DIGITS.find(digit).unwrap();
        (0..6).rev().map(move |bit| value >> bit & 1)
    });
    let bits: Vec<usize> = bits.collect();
    let bytes = bits.chunks_exact(8);
    bytes
        .map(|bits| bits.iter().fold(0, |byte, &bit| byte << 1 | bit as u8))
        .collect()
}

#[test]
fn embeddings_equal_those_of_embed_bit_for_bit() {
    let (sandbox, model) = (Sandbox::new(), wide_encoder());
    let texts: Vec<String> = (0..60).map(text).collect();
    let expected = embedded(&sandbox, model.path(), &texts);
    let server = serve(&sandbox, model.path(), "");
    let ask = |body: Value| server.post("/v1/embeddings", &body);
    let answer = ask(json!({ "model": "run", "input": texts }));
    assert_eq!(vectors(&answer), expected);
    let tokens: usize = texts.iter().map(|text| text.split(' ').count()).sum();
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    assert_eq!(answer.json()["usage"], usage);
    assert_eq!(answer.json()["model"], "run");

    let ids: Vec<Vec<u32>> = texts
        .iter()
        .map(|text| {
            text.split(' ')
                .map(|word| word[1..].parse().unwrap())
                .collect()
        })
        .collect();
    let answer = ask(json!({ "model": "run", "input": ids, "dimensions": 192 }));
    assert_eq!(vectors(&answer), expected);
    let encoded = ask(json!({ "model": "run", "input": texts, "encoding_format": "base64" }));
    for (found, expected) in vectors(&encoded).iter().zip(&expected) {
        let bytes = floats(expected).into_iter().flat_map(f32::to_le_bytes);
        assert_eq!(decoded(found.as_str().unwrap()), bytes.collect::<Vec<u8>>());
    }
    let single = embedded(&sandbox, model.path(), &texts[3..4]);
    let answer = ask(json!({ "model": "run", "input": texts[3] }));
    assert_eq!(vectors(&answer), single);
    let answer = ask(json!({ "model": "run", "input": ids[3] }));
    assert_eq!(vectors(&answer), single);
}

#[test]
fn embeddings_have_the_models_pooling_and_normalization() {
    let (sandbox, model) = (Sandbox::new(), encoders::model());
    let modules = json!([
        { "idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer" },
        { "idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling" },
    ]);
    fs::write(model.path().join("modules.json"), modules.to_string()).unwrap();
    fs::create_dir(model.path().join("1_Pooling")).unwrap();
    let pooling = r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#;
    fs::write(model.path().join("1_Pooling/config.json"), pooling).unwrap();
    let texts = vec![text(1), text(4)];
    let server = serve(&sandbox, model.path(), "");
    let found = vectors(&server.post("/v1/embeddings", &json!({ "model": "run", "input": texts })));
    assert_eq!(found, embedded(&sandbox, model.path(), &texts));
    let square: f32 = floats(&found[0]).iter().map(|x| x * x).sum();
    assert!((square - 1.0).abs() > 0.01, "{square}");
}

/// Asks for requests of several texts at once. Returns the vectors of each.
fn asked_together(server: &Server, requests: &[Vec<String>]) -> Vec<Vec<Value>> {
    together(requests, |texts| {
        let body = json!({ "model": "run", "input": texts });
        vectors(&server.post("/v1/embeddings", &body))
    })
}

#[test]
fn concurrent_embeddings_share_passes() {
    let (sandbox, model) = (Sandbox::new(), wide_encoder());
    let requests: Vec<Vec<String>> = (0..40)
        .map(|request| (0..=request % 7).map(|i| text(request * 5 + i)).collect())
        .collect();
    let expected: Vec<Vec<Value>> = requests
        .iter()
        .map(|texts| embedded(&sandbox, model.path(), texts))
        .collect();
    let server = serve(&sandbox, model.path(), "");
    for (found, expected) in asked_together(&server, &requests).iter().zip(&expected) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            let pairs = floats(found).into_iter().zip(floats(expected));
            for (found, expected) in pairs {
                assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
            }
        }
    }
    let server = serve(&sandbox, model.path(), "--deterministic");
    assert_eq!(asked_together(&server, &requests), expected);
}

#[test]
fn encoders_are_listed_and_generate_nothing() {
    let (sandbox, model) = (Sandbox::new(), encoders::model());
    let server = serve(&sandbox, model.path(), "--alias small");
    let models = server.json("/v1/models");
    let named = |at: usize| models["data"][at]["id"].clone();
    assert_eq!((named(0), named(1)), (json!("run"), json!("small")));
    assert_eq!(models["data"][0]["max_model_len"], 32);
    let shown = server.json("/api/models")["models"].take();
    assert_eq!(shown[0]["kind"], "encoder");
    assert_eq!(shown[0]["aliases"], json!(["small"]));
    assert_eq!(shown[0]["labels"], json!(["LABEL_0", "LABEL_1", "LABEL_2"]));
    server.check_answers("http_encoders");
}

#[test]
fn labels_equal_those_of_classify_bit_for_bit() {
    let (sandbox, model) = (Sandbox::new(), encoders::model());
    let texts: Vec<String> = (0..20).map(text).collect();
    sandbox.write("texts.txt", texts.join("\n") + "\n");
    let ran = sandbox.run(["classify", model.path().to_str().unwrap(), "texts.txt"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    let expected = ran.stdout.lines().map(serde_json::from_str);
    let expected: Vec<Value> = expected.collect::<Result<_, _>>().unwrap();
    let server = serve(&sandbox, model.path(), "");
    let body = json!({ "model": "run", "input": texts, "truncate": true });
    let answer = server.post("/classify", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = answer.json();
    let data = answer["data"].as_array().unwrap();
    assert_eq!(data.len(), expected.len());
    for (found, expected) in data.iter().zip(&expected) {
        assert_eq!(found["label"], expected["label"], "{found}");
        let probs = floats(&found["probs"]);
        let best = probs.into_iter().fold(f32::MIN, f32::max);
        let probability = expected["probability"].as_f64().unwrap() as f32;
        assert_eq!(best, probability, "{found}");
    }
}

/// A text that is too long has the vector that `embed` computes, which truncates it with its special tokens.
#[test]
fn long_texts_are_truncated_if_requested() {
    let (sandbox, model) = (Sandbox::new(), encoders::model());
    let server = serve(&sandbox, model.path(), "");
    let words: Vec<String> = (0..50).map(|i| format!("w{}", 1 + i * 7 % 50)).collect();
    let texts = [words.join(" "), "w1 w2".to_owned()];
    let body = json!({ "model": "run", "input": texts, "truncate": true });
    let answer = server.post("/v1/embeddings", &body);
    assert_eq!(
        answer.json()["usage"]["prompt_tokens"],
        32 + 2,
        "{}",
        answer.body
    );
    let found = vectors(&answer);
    let expected = embedded(&sandbox, model.path(), &texts);
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(floats(found), floats(expected));
    }
    // Tokens are cut off as they are.
    let ids: Vec<usize> = (0..40).map(|i| i % 50).collect();
    let cut = json!({ "model": "run", "input": [ids, ids[..32]], "truncate": true });
    let cut = vectors(&server.post("/v1/embeddings", &cut));
    assert_eq!(cut[0], cut[1]);
}

#[test]
fn invalid_texts_to_embed_are_refused() {
    let (sandbox, model) = (Sandbox::new(), encoders::model());
    let server = serve(&sandbox, model.path(), "");
    server.check_answers("http_embeddings");

    let fails = |line: &str, message: &str| {
        let output = sandbox.fails(&line.replace("MODEL", model.path().to_str().unwrap()));
        output.stderr.assert_has(message);
    };
    fails(
        "serve MODEL --context 33",
        "context = 33: must be at most 32",
    );
    fails(
        "serve MODEL --weights int8",
        "is an encoder, whose weights are held in f32",
    );
    fails("serve --follow MODEL", "is not a run");
    fs::remove_file(model.path().join("tokenizer.json")).unwrap();
    fails(
        "serve MODEL",
        "put the model's tokenizer.json into this directory",
    );
}

#[test]
fn models_of_all_kinds_are_served_together() {
    let sandbox = super::serve::with_model(64, &[1]);
    let (encoder, target) = (encoders::model(), encoder_decoders::with_tokenizer());
    let server = sandbox.serve(&format!(
        "serve run embed={} t5={} --slots 2 --alias text-embedding-3-small=embed",
        encoder.path().display(),
        target.path().display(),
    ));
    let body = json!({ "model": "text-embedding-3-small", "input": "w1 w2" });
    assert_eq!(vectors(&server.post("/v1/embeddings", &body)).len(), 1);
    for model in ["run", "t5"] {
        let body = json!({ "model": model, "prompt": [5, 6], "max_tokens": 3, "temperature": 0 });
        assert_eq!(server.post("/v1/completions", &body).status, 200, "{model}");
    }
    let shown = server.json("/api/models")["models"].take();
    let shown = shown.as_array().unwrap().iter();
    let kinds: Vec<_> = shown.map(|model| (&model["id"], &model["kind"])).collect();
    let expected = [
        json!("run"),
        "decoder".into(),
        "embed".into(),
        "encoder".into(),
        "t5".into(),
        "encoder_decoder".into(),
    ];
    let expected: Vec<_> = expected
        .chunks(2)
        .map(|pair| (&pair[0], &pair[1]))
        .collect();
    assert_eq!(kinds, expected);
}

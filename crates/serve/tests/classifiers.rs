//! Classification, ranking and embeddings by encoders over HTTP, with the scores of the embedder. Tokens are bytes.

use std::fs;

use burn_flex::Flex;
use emberlm_checkpoint::{Embedder, EncoderModel};
use emberlm_model::TransformerConfig;
use emberlm_model::config::Init;
use emberlm_model::encoder::{
    EncoderHeadConfig, EncoderSettings, PooledActivation, ProblemType, most_probable,
};
use emberlm_model::hugging_face::{ExportOptions, export};
use emberlm_serve::{EncoderPlan, ServeOptions};
use emberlm_tokenizer::{EncodedSequence, TOKENIZER_FILE, Tokenizer, TokenizerKind};
use serde_json::{Value, json};

use super::tools::entry::{PLAIN, Server};

const CLASSIFY: &str = "/classify";
const RERANK: &str = "/rerank";
const EMBEDDINGS: &str = "/v1/embeddings";

/// An encoder with these labels, and a server of it with a context of 60 tokens.
fn served(labels: &[&str], problem: ProblemType) -> (Embedder<Flex>, Server) {
    let labels = labels.iter().map(|&label| label.to_owned()).collect();
    let mut head = EncoderHeadConfig::sequence(labels, PooledActivation::Tanh);
    if let EncoderHeadConfig::Sequence { problem: of, .. } = &mut head {
        *of = problem;
    }
    let settings = EncoderSettings {
        vocab_size: 257,
        positions: 64,
        n_layers: 2,
        head: Some(head),
        init: Init::Normal {
            std: 0.3,
            scale_residual: false,
        },
        ..EncoderSettings::new(32, 4)
    };
    let config = TransformerConfig::try_from(settings).unwrap();
    let device = Default::default();
    let folder = tempfile::tempdir().unwrap();
    let options = ExportOptions::default();
    export(&config.init::<Flex>(4, &device), folder.path(), &options).unwrap();
    let tokenizer = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
    let file = folder.path().join(TOKENIZER_FILE);
    fs::write(file, tokenizer.to_tokenizer_json()).unwrap();
    let model = EncoderModel::open(folder.path()).unwrap();
    let embedder = || model.embedder(&device).unwrap();
    let options = ServeOptions {
        name: "m".to_owned(),
        context: Some(60),
        ..ServeOptions::default()
    };
    let plan = EncoderPlan::new(&model, options).unwrap();
    let served = plan.load::<Flex>(embedder(), None).unwrap();
    (embedder(), Server::of_model(served))
}

fn cross_encoder() -> (Embedder<Flex>, Server) {
    served(&["relevant"], ProblemType::default())
}

#[track_caller]
fn assert_refused(server: &Server, path: &str, fields: Value, message: &str) {
    let (status, body) = server.send(path, fields.clone());
    let found = body["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 400 && found.contains(message), "{fields}: {body}");
}

fn scores(embedder: &Embedder<Flex>, texts: &[EncodedSequence]) -> Vec<Vec<f32>> {
    embedder.class_scores(texts).unwrap().unwrap()
}

fn floats(list: &Value) -> Vec<f32> {
    let numbers = list.as_array().unwrap().iter();
    numbers.map(|x| x.as_f64().unwrap() as f32).collect()
}

#[test]
fn labels_and_probabilities_are_those_of_the_classifier() {
    let labels = ["bad", "so", "good"];
    let texts = ["a text", "another one", "Größe", "x"];
    for problem in [
        ProblemType::SingleLabelClassification,
        ProblemType::MultiLabelClassification,
        ProblemType::Regression,
    ] {
        let (embedder, server) = served(&labels, problem);
        let encoded = texts.map(|text| embedder.sequences().encode(text).unwrap());
        let expected = scores(&embedder, &encoded);
        let ids: Vec<_> = encoded.iter().map(|text| &text.ids).collect();
        for input in [json!(texts), json!(ids)] {
            let body = server.answered_at(CLASSIFY, json!({ "input": input }));
            let data = body["data"].as_array().unwrap();
            assert_eq!(data.len(), texts.len(), "{body}");
            for (index, (item, expected)) in data.iter().zip(&expected).enumerate() {
                assert_eq!(
                    (&item["index"], &item["num_classes"]),
                    (&json!(index), &json!(3))
                );
                let names = labels.map(str::to_owned);
                let (label, _) = most_probable(&names, expected).unwrap();
                assert_eq!(item["label"], label, "{problem:?}: {item}");
                for (found, expected) in floats(&item["probs"]).iter().zip(expected) {
                    assert!((found - expected).abs() < 1e-6, "{problem:?}: {item}");
                }
            }
            let tokens: usize = texts.iter().map(|text| text.len()).sum();
            let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
            assert_eq!((&body["object"], &body["usage"]), (&json!("list"), &usage));
        }
    }
    let (_, server) = served(&labels, ProblemType::default());
    let one = server.answered_at(CLASSIFY, json!({ "input": "a text" }));
    assert_eq!(one["data"].as_array().unwrap().len(), 1);
    let long = json!({ "input": "a".repeat(100), "truncate": true });
    assert_eq!(
        server.answered_at(CLASSIFY, long)["usage"]["prompt_tokens"],
        60
    );
}

#[test]
fn documents_are_ranked_by_the_scores_of_their_pairs() {
    let (embedder, server) = cross_encoder();
    let query = "which one?";
    let documents = ["first", "the second", "a third document", "4"];
    let pairs = documents.map(|text| embedder.sequences().encode_pair(query, text).unwrap());
    // The segments of a pair count.
    assert!(pairs[0].segments.contains(&1));
    let expected: Vec<f32> = scores(&embedder, &pairs).concat();
    let mut order: Vec<usize> = (0..documents.len()).collect();
    order.sort_by(|&a, &b| expected[b].total_cmp(&expected[a]));
    let fields = |more: Value| {
        let mut fields = json!({ "query": query, "documents": documents });
        fields
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        fields
    };
    for path in [RERANK, "/v1/rerank", "/v2/rerank"] {
        let body = server.answered_at(path, fields(json!({})));
        let results = body["results"].as_array().unwrap();
        assert_eq!(results.len(), 4, "{body}");
        for (result, &index) in results.iter().zip(&order) {
            assert_eq!(result["index"], index, "{body}");
            assert_eq!(result["document"], json!({ "text": documents[index] }));
            let score = result["relevance_score"].as_f64().unwrap() as f32;
            assert!((score - expected[index]).abs() < 1e-6 && (0.0..=1.0).contains(&score));
        }
        let tokens: usize = pairs.iter().map(|pair| pair.ids.len()).sum();
        assert_eq!(body["usage"]["total_tokens"], tokens);
        assert_eq!(body["model"], "m");
        assert!(body["id"].as_str().unwrap().starts_with("rerank-"));
    }
    let objects = documents.map(|text| json!({ "text": text }));
    let few = json!({ "documents": objects, "top_n": 2, "return_documents": false });
    let body = server.answered_at(RERANK, fields(few));
    let results = body["results"].as_array().unwrap();
    let indices: Vec<&Value> = results.iter().map(|result| &result["index"]).collect();
    assert_eq!(indices, [&json!(order[0]), &json!(order[1])]);
    assert!(
        results
            .iter()
            .all(|result| result.get("document").is_none())
    );
    let all = server.answered_at(RERANK, fields(json!({ "top_n": 9 })));
    assert_eq!(all["results"].as_array().unwrap().len(), 4);
    // More documents than other requests may have texts, and equal ones in their order.
    let many = fields(json!({ "documents": vec!["the same"; 200] }));
    let many = server.answered_at(RERANK, many);
    let indices = many["results"].as_array().unwrap().iter();
    let indices: Vec<u64> = indices
        .map(|result| result["index"].as_u64().unwrap())
        .collect();
    assert_eq!(indices.len(), 200);
}

#[test]
fn long_pairs_are_refused_or_truncated() {
    let (embedder, server) = cross_encoder();
    let (query, document) = ("which one?", "d".repeat(100));
    let mut fields = json!({ "query": query, "documents": ["short", document] });
    assert_refused(
        &server,
        RERANK,
        fields.clone(),
        "longer than this model's context of 60",
    );
    // Each of the texts fits.
    fields["documents"] = json!(["d".repeat(55)]);
    let (status, body) = server.send(RERANK, fields.clone());
    assert_eq!(
        (status, &body["error"]["param"]),
        (400, &json!("documents[0]")),
        "{body}"
    );
    fields["documents"] = json!([document]);
    fields["truncate"] = true.into();
    let body = server.answered_at(RERANK, fields);
    assert_eq!(body["usage"]["total_tokens"], 60);
    let pair = embedder.sequences().with_max_tokens(60);
    let pair = pair.encode_pair(query, &document).unwrap();
    let expected = scores(&embedder, &[pair])[0][0];
    let score = body["results"][0]["relevance_score"].as_f64().unwrap() as f32;
    assert!((score - expected).abs() < 1e-6, "{body}");
}

#[test]
fn invalid_requests_are_refused() {
    let (_, server) = cross_encoder();
    let (_, labels) = served(&["a", "b"], ProblemType::default());
    let decoder = Server::new(PLAIN);
    for (fields, message) in [
        (
            json!({ "documents": [] }),
            "documents: must be between 1 and 1000",
        ),
        (
            json!({ "documents": vec!["a"; 1001] }),
            "documents: must be between 1 and 1000",
        ),
        (json!({ "documents": "a" }), "documents: "),
        (json!({ "documents": ["a", 5] }), "documents[1]: "),
        (json!({ "documents": [{ "title": "a" }] }), "documents[0]: "),
        (json!({ "documents": [null] }), "documents[0]: "),
        (json!({ "query": ["a"] }), "query: "),
        (json!({ "top_n": -1 }), "top_n: "),
        (json!({ "top_k": 1 }), "top_k: this field is not supported"),
        (
            json!({ "max_tokens_per_doc": 5 }),
            "max_tokens_per_doc: is not supported: `truncate`",
        ),
        (json!({ "query": null }), "missing field `query`"),
    ] {
        let mut body = json!({ "query": "q", "documents": ["a"] });
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        assert_refused(&server, RERANK, body, message);
    }
    let good = json!({ "query": "q", "documents": ["a"] });
    assert_refused(
        &labels,
        RERANK,
        good.clone(),
        "whose classifier has one label; that of \"m\" has 2",
    );
    let message = "the model \"m\" is a decoder without a classifier of texts";
    assert_refused(&decoder, RERANK, good, message);
    assert_refused(&decoder, CLASSIFY, json!({ "input": "a" }), message);
    for (fields, message) in [
        (json!({ "input": [] }), "no tokens given"),
        (json!({ "input": "" }), "input: must not be empty"),
        (json!({ "input": [[300]] }), "token 300 at position 0"),
        (
            json!({ "input": "a".repeat(61) }),
            "longer than this model's context of 60",
        ),
        (
            json!({ "inputs": "a", "input": "a" }),
            "did you mean input?",
        ),
        (
            json!({ "input": "a", "activation": false }),
            "activation: must be true",
        ),
    ] {
        assert_refused(&server, CLASSIFY, fields, message);
    }
}

#[test]
fn shorter_vectors_have_the_first_values_and_length_1() {
    let (_, encoder) = cross_encoder();
    for (server, width) in [(encoder, 32), (Server::new(PLAIN), 8)] {
        let vector = |dimensions: Value| {
            let fields = json!({ "input": "a text", "dimensions": dimensions });
            floats(&server.answered_at(EMBEDDINGS, fields)["data"][0]["embedding"])
        };
        let whole = vector(Value::Null);
        assert_eq!((whole.len(), vector(json!(width))), (width, whole.clone()));
        for dimensions in [1, 5, width - 1] {
            let cut = vector(json!(dimensions));
            assert_eq!(cut.len(), dimensions);
            let length = |vector: &[f32]| vector.iter().map(|x| x * x).sum::<f32>().sqrt();
            assert!((length(&cut) - 1.0).abs() < 1e-5);
            let scale = length(&whole[..dimensions]);
            for (found, whole) in cut.iter().zip(&whole) {
                assert!((found - whole / scale).abs() < 1e-5, "{dimensions}");
            }
        }
        for dimensions in [0, width + 1] {
            let fields = json!({ "input": "a", "dimensions": dimensions });
            let message = format!("dimensions: must be between 1 and {width}, this model's width");
            assert_refused(&server, EMBEDDINGS, fields, &message);
        }
    }
}

//! Feeds arbitrary bytes to the server as request bodies. The server must return a result or a client error.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use burn_flex::Flex;
use emberlm_generate::{Engine, EngineConfig};
use emberlm_model::{ModelConfig, TransformerConfig, WeightFormat, families};
use emberlm_serve::api::{Service, router};
use emberlm_serve::model::{ChatFormat, Tables};
use emberlm_serve::{
    Card, Limits, ModelSource, SamplingDefaults, ServedKind, ServedModel, ServedModels, Worker,
};
use emberlm_tokenizer::chat::{ChatEncoder, ChatTemplate};
use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

/// The paths of the fuzzed endpoints.
pub const PATHS: [&str; 5] = [
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/api/play",
];

/// The template of conversations with functions.
const TOOL_TEMPLATE: &str =
    include_str!("../../crates/tokenizer/tests/fixtures/chat/templates/qwen.jinja");

/// Sends `bytes` as the body of a request. Returns true if the request succeeds.
pub fn body(path: &str, bytes: &[u8]) -> bool {
    let (runtime, router) = &*SERVER;
    runtime.block_on(async {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(bytes.to_vec()))
            .unwrap();
        let Ok(response) = router.clone().oneshot(request).await;
        let status = response.status();
        assert!(!status.is_server_error(), "{status}");
        let streams = response.headers()[header::CONTENT_TYPE] == "text/event-stream";
        let body = to_bytes(response.into_body(), 1 << 24).await.unwrap();
        if streams {
            let text = String::from_utf8(body.to_vec()).unwrap();
            let pieces = text.lines().filter_map(|line| line.strip_prefix("data: "));
            for piece in pieces.filter(|piece| *piece != "[DONE]") {
                serde_json::from_str::<Value>(piece).unwrap();
            }
            return true;
        }
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            answer["error"].is_object(),
            !status.is_success(),
            "{answer}"
        );
        status.is_success()
    })
}

/// A server with an untrained byte-level model.
static SERVER: LazyLock<(Runtime, Router)> = LazyLock::new(|| {
    let config = ModelConfig {
        vocab_size: Some(257),
        seq_len: 512,
        d_model: 8,
        n_layers: 1,
        heads: 1,
        ..families::preset("char-nano").unwrap().config
    };
    let config = TransformerConfig::try_from(config).unwrap();
    let decoder = config.init::<Flex>(1, &Default::default());
    let engine = EngineConfig {
        slots: 4,
        ..EngineConfig::for_model(&config)
    };
    let decoder = Arc::new(decoder.with_weights(WeightFormat::F32).unwrap());
    let (worker, _) = Worker::start(Engine::new(decoder, engine).unwrap(), 512).unwrap();
    let tokenizer = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
    let chat = |template| {
        let encoder = ChatEncoder::new(template, &tokenizer);
        Some(ChatFormat {
            stops: encoder.stops(),
            encoder,
        })
    };
    let model = ServedModel {
        name: "m".to_owned(),
        aliases: Vec::new(),
        created: 0,
        chat: chat(ChatTemplate::chatml().unwrap()),
        tool_chat: chat(ChatTemplate::parse("tools", TOOL_TEMPLATE).unwrap()),
        stop_tokens: vec![256],
        kind: ServedKind::Decoder {
            beginning: Some(256),
        },
        sampling: SamplingDefaults::default(),
        card: Box::new(Card::default),
        tokenizer,
        worker,
        tables: Tables::new(None),
        source: ModelSource::default(),
    };
    let limits = Limits {
        body: 1 << 16,
        tokens: 16,
        time: Duration::from_secs(60),
        ..Limits::default()
    };
    let service = Service {
        models: ServedModels::new(vec![model]).into(),
        limits,
        key: None,
        admin: None,
        log: None,
    };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    (runtime, router(service))
});

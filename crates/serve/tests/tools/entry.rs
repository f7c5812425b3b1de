//! An in-process server of a byte-level model with random weights and a template that supports tools.

use std::fs;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use burn_flex::Flex;
use emberlm_checkpoint::{Description, Model, write_untrained};
use emberlm_model::{ModelConfig, TransformerConfig, families};
use emberlm_serve::api::{Service, router};
use emberlm_serve::{Limits, ServeOptions, ServedModel, ServedModels, load};
use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

/// Writes tools, calls and results like Hermes.
pub const HERMES: &str = "{% if tools %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}\
    {% for m in messages %}[{{ m.role }}]{{ m.content or '' }}{% for call in m.tool_calls or [] %}<tool_call>\n\
    {\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}\n\
    {% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

/// Like Llama 3.
pub const LLAMA: &str = "{% if tools %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}\
    {% for m in messages %}[{{ m.role }}]{{ m.content or '' }}{% for call in m.tool_calls or [] %}\
    {\"name\": \"{{ call.function.name }}\", \"parameters\": {{ call.function.arguments | tojson }}}{% endfor %}\n\
    {% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

/// Like Mistral models of tokenizer version 3.
pub const MISTRAL: &str = "{% if tools %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}\
    {% for m in messages %}{% if m.tool_calls is defined and m.tool_calls %}[TOOL_CALLS] [{% for call in m.tool_calls %}\
    {% if call.id | length != 9 %}{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}\
    {{ (call.function | tojson)[:-1] }}, \"id\": \"{{ call.id }}\"}{% if not loop.last %}, {% endif %}{% endfor %}]\
    {% elif m.role == 'tool' %}[TOOL_RESULTS] {\"content\": {{ m.content }}, \"call_id\": \"{{ m.tool_call_id }}\"}[/TOOL_RESULTS]\
    {% else %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}";

/// Like Mistral models of tokenizer version 13.
pub const MISTRAL_13: &str = "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}\
    {% for m in messages %}[{{ m.role }}]{{ m.content or '' }}{% for call in m.tool_calls or [] %}\
    [TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}{% endfor %}{% endfor %}";

/// Like Qwen3-Coder: parameters between tags.
pub const CODER: &str = "{% if tools %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}\
    {% for m in messages %}[{{ m.role }}]{{ m.content or '' }}{% for call in m.tool_calls or [] %}\
    {{ '<tool_call>\n<function=' + call.function.name + '>\n' }}{% for k, v in call.function.arguments | items %}\
    {{ '<parameter=' + k + '>\n' }}{{ v if v is string else v | tojson }}{{ '\n</parameter>\n' }}{% endfor %}\
    {{ '</function>\n</tool_call>' }}{% endfor %}\n\
    {% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

/// Like FunctionGemma: parameters as in an object, with quotes of the format around strings.
pub const GEMMA: &str = "{% if tools %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}\
    {% for m in messages %}[{{ m.role }}]{{ m.content or '' }}{% for call in m.tool_calls or [] %}\
    {{ '<start_function_call>call:' + call.function.name + '{' }}{% for k, v in call.function.arguments | items %}\
    {{ k + ':' }}{{ '<escape>' + v + '<escape>' if v is string else v | tojson }}{{ ',' if not loop.last }}{% endfor %}\
    {{ '}<end_function_call>' }}{% endfor %}\n\
    {% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

/// Does not support tools.
pub const PLAIN: &str =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}[assistant]";

/// The required fields of a request to a path.
pub fn usual(path: &str) -> Value {
    let mut body = match path {
        "/v1/chat/completions" | "/v1/messages" | "/v1/messages/count_tokens" | "/api/chat" => {
            json!({ "messages": [{ "role": "user", "content": "?" }] })
        }
        "/v1/completions" | "/api/play" | "/api/generate" => json!({ "prompt": "?" }),
        "/v1/responses" | "/v1/embeddings" => json!({ "input": "?" }),
        _ => json!({}),
    };
    body["model"] = "m".into();
    body
}

/// A server.
pub struct Server {
    runtime: Runtime,
    router: Router,
}

impl Server {
    /// A server of the model `m` with this template.
    pub fn new(template: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("chat.jinja"), template).unwrap();
        Self::with_templates(&folder, "chat.jinja")
    }

    /// A server of the model `m`, which has no template.
    pub fn without_template() -> Self {
        let tokenizer = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        Self::of(&tokenizer, &tempfile::tempdir().unwrap(), None)
    }

    /// A server with this template whose tokenizer has the special token `name` with the id 257.
    pub fn with_special_token(template: &str, name: &str) -> Self {
        Self::with_token(template, name, false)
    }

    /// [`Self::with_special_token`], which begins every text.
    pub fn with_beginning(template: &str, name: &str) -> Self {
        Self::with_token(template, name, true)
    }

    fn with_token(template: &str, name: &str, begins: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("chat.jinja"), template).unwrap();
        let bytes = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        let mut file: Value = serde_json::from_slice(&bytes.to_tokenizer_json()).unwrap();
        let token = json!({ "id": 257, "content": name, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true });
        file["added_tokens"].as_array_mut().unwrap().push(token);
        if begins {
            let text = |id: &str| json!({ "Sequence": { "id": id, "type_id": 0 } });
            let special = json!({ "SpecialToken": { "id": name, "type_id": 0 } });
            file["post_processor"] = json!({
                "type": "TemplateProcessing",
                "single": [special, text("A")],
                "pair": [special, text("A"), text("B")],
                "special_tokens": { name: { "id": name, "ids": [257], "tokens": [name] } },
            });
        }
        let tokenizer = Tokenizer::from_json(file.to_string()).unwrap();
        Self::of(&tokenizer, &folder, Some("chat.jinja"))
    }

    /// A server of the model `m` with the templates of a file in `folder`.
    pub fn with_templates(folder: &TempDir, file: &str) -> Self {
        let tokenizer = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        Self::of(&tokenizer, folder, Some(file))
    }

    fn of(tokenizer: &Tokenizer, folder: &TempDir, file: Option<&str>) -> Self {
        let config = ModelConfig {
            vocab_size: Some(tokenizer.vocab_size()),
            seq_len: 4096,
            d_model: 8,
            n_layers: 1,
            heads: 1,
            kv_heads: Some(1),
            ..families::preset("char-nano").unwrap().config
        };
        let config = TransformerConfig::try_from(config).unwrap();
        let device = Default::default();
        let description = Description {
            tokenizer: Some(tokenizer.spec()),
            ..Description::of_model(&config)
        };
        let decoder = config.init::<Flex>(1, &device);
        let file = file.map(|file| folder.path().join(file));
        let folder = folder.path().join("model");
        fs::create_dir(&folder).unwrap();
        write_untrained(&folder, &decoder, &description, Some(tokenizer)).unwrap();
        let options = ServeOptions {
            name: "m".to_owned(),
            chat_template: file.map(|file| file.to_str().unwrap().to_owned()),
            queue: 8,
            ..ServeOptions::default()
        };
        let model = Model::open(&folder).unwrap();
        let loaded = load(&model, decoder, &options, None).unwrap();
        Self::of_model(loaded.served)
    }

    /// A server of a model.
    pub fn of_model(model: ServedModel) -> Self {
        let service = Service {
            models: ServedModels::new(vec![model]).into(),
            limits: Limits::default(),
            key: None,
            admin: None,
            log: None,
        };
        Self {
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
            router: router(service),
        }
    }

    /// The status and the body of the response to a chat completion request with these fields.
    pub fn ask(&self, fields: Value) -> (u16, String) {
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "?" }] });
        self.post("/v1/chat/completions", body, fields)
    }

    /// The status and the body of the response to a request with `fields`, plus those of `body` that they
    /// lack.
    pub fn post(&self, path: &str, body: Value, fields: Value) -> (u16, String) {
        let (status, body, _) = self.post_warned(path, body, fields);
        (status, body)
    }

    /// The status and the body of the response to a usual request to `path` with these fields.
    pub fn send(&self, path: &str, fields: Value) -> (u16, Value) {
        let (status, body) = self.post(path, usual(path), fields);
        (status, serde_json::from_str(&body).unwrap())
    }

    /// The body of the successful response to a request as of [`Self::send`].
    #[track_caller]
    pub fn answered_at(&self, path: &str, fields: Value) -> Value {
        let (status, body) = self.send(path, fields);
        assert_eq!(status, 200, "{body}");
        body
    }

    /// The parameter and the message of a rejected request as of [`Self::send`].
    #[track_caller]
    pub fn refused_at(&self, path: &str, fields: Value) -> (String, String) {
        let (status, body) = self.send(path, fields);
        assert_eq!(status, 400, "{body}");
        let text = |name: &str| body["error"][name].as_str().unwrap_or_default().to_owned();
        (text("param"), text("message"))
    }

    /// The status and the body of the response to a GET request.
    pub fn get(&self, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answered = self.router.clone().oneshot(request);
        self.runtime.block_on(async {
            let response = answered.await.unwrap();
            let status = response.status().as_u16();
            let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        })
    }

    /// [`Self::post`], with the warnings in the headers of the response.
    pub fn post_warned(
        &self,
        path: &str,
        mut body: Value,
        fields: Value,
    ) -> (u16, String, Vec<String>) {
        let fields = fields.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(fields);
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        let answered = self.router.clone().oneshot(request);
        self.runtime.block_on(async {
            let response = answered.await.unwrap();
            let status = response.status().as_u16();
            let warnings = response.headers().get_all("x-emberlm-warning").iter();
            let warnings = warnings
                .map(|text| text.to_str().unwrap().to_owned())
                .collect();
            let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap(), warnings)
        })
    }

    /// The body of a successful response.
    #[track_caller]
    pub fn answered(&self, fields: Value) -> Value {
        let (status, body) = self.ask(fields);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The parameter and the message of a rejected request.
    #[track_caller]
    pub fn refused(&self, fields: Value) -> (String, String) {
        let (status, body) = self.ask(fields);
        assert_eq!(status, 400, "{body}");
        let error = &serde_json::from_str::<Value>(&body).unwrap()["error"];
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        (text("param"), text("message"))
    }

    /// The events of a streamed response.
    #[track_caller]
    pub fn streamed(&self, mut fields: Value) -> Vec<Value> {
        fields["stream"] = true.into();
        let (status, body) = self.ask(fields);
        assert_eq!(status, 200, "{body}");
        let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
        let data: Vec<&str> = data.collect();
        assert_eq!(data.last(), Some(&"[DONE]"), "{body}");
        let events = data[..data.len() - 1].iter();
        events
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }
}

/// The parts of a field in the events of a stream.
pub fn joined(events: &[Value], field: &str) -> String {
    let parts = events
        .iter()
        .map(|event| &event["choices"][0]["delta"][field]);
    parts.filter_map(Value::as_str).collect()
}

//! `POST /tokenize` and `POST /detokenize`: the tokens of a text, and the text of tokens, in the forms of vLLM and of llama.cpp.

use std::sync::{Arc, LazyLock};

use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::App;
use super::body::{FieldGroup, KnownFields, Object};
use super::bounds::{PROMPT_TOKEN, of_encoding};
use super::conversation::{Conversation, Message, TemplateOptions, Tool};
use super::error::ApiError;
use super::fields;
use super::json::json;
use super::model_request::ModelRequest;
use crate::jobs::Interest;
use crate::model::{ServedModel, Task};

/// Bytes reserved per token for its text in an answer, and per byte of its text.
const PIECE: usize = 96;
/// Bytes reserved per token for the text of all.
const TEXT: usize = 64;

/// A request for tokens: of a text in `prompt` or `content`, or of a conversation in `messages`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Tokenize {
    /// The name or an alias of the model.
    model: String,
    /// A text, whose tokens are those of `/v1/completions`.
    prompt: Option<String>,
    /// A text, as in llama.cpp: without the special tokens that a model needs around it.
    content: Option<String>,
    /// A conversation, whose tokens are those of `/v1/chat/completions`.
    messages: Option<Vec<Object<Message>>>,
    /// The functions of the conversation.
    tools: Option<Vec<Object<Tool>>>,
    /// False to leave out the special tokens around `prompt`. Default: true.
    add_special_tokens: Option<bool>,
    /// True to add the special tokens around `content`. Default: false.
    add_special: Option<bool>,
    /// True to also return the text of each token, in `token_strs`.
    #[schemars(extend("default" = false))]
    return_token_strs: Option<bool>,
    /// True to return each token as an object with `id` and `piece`, as in llama.cpp.
    #[schemars(extend("default" = false))]
    with_pieces: Option<bool>,
}

/// A request for the text of tokens.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Detokenize {
    /// The name or an alias of the model.
    model: String,
    /// The tokens.
    #[schemars(inner(range(max = u32::MAX)))]
    tokens: Vec<u32>,
}

/// The tokens of a text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Tokenized {
    count: usize,
    max_model_len: usize,
    tokens: Tokens,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_strs: Option<Vec<String>>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Tokens {
    Ids(Vec<u32>),
    Pieces(Vec<Piece>),
}

/// A token with its text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Piece {
    id: u32,
    piece: Text,
}

/// The text of a token, or its bytes if they are not valid UTF-8.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Text {
    Valid(String),
    Bytes(Vec<u8>),
}

/// The text of tokens: in `prompt` as in vLLM, and in `content` as in llama.cpp.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Detokenized {
    prompt: String,
    content: String,
}

impl FieldGroup for Tokenize {}
impl FieldGroup for Detokenize {}

static TOKENIZE: LazyLock<KnownFields<(Tokenize, TemplateOptions)>> =
    LazyLock::new(|| KnownFields::new(&fields::TOKENIZE));
static DETOKENIZE: LazyLock<KnownFields<(Detokenize,)>> =
    LazyLock::new(|| KnownFields::new(&fields::NONE));

/// A text to encode.
struct ToEncode {
    field: &'static str,
    text: String,
    /// True to add the special tokens around a text.
    is_framed: bool,
}

/// Handles a request for tokens.
pub(crate) async fn tokenize(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (fields, template) = request.read(&TOKENIZE).await?;
    let model = request.any_model(&fields.model)?;
    let Tokenize {
        prompt,
        content,
        messages,
        ..
    } = fields;
    let text = |field, text, is_framed| ToEncode {
        field,
        text,
        is_framed,
    };
    let ids = match (prompt, content, messages) {
        (Some(prompt), None, None) => {
            let text = text("prompt", prompt, fields.add_special_tokens != Some(false));
            encode(&request.app, &model, text).await?
        }
        (None, Some(content), None) => {
            let text = text("content", content, fields.add_special == Some(true));
            encode(&request.app, &model, text).await?
        }
        (None, None, Some(messages)) => {
            let conversation = Conversation {
                messages,
                tools: fields.tools.map(Arc::new),
                template,
            };
            let model = request.model(&model.name, Task::Generation)?;
            conversation.encode(&request, &model).await?.prompt
        }
        _ => {
            let rule = "must have exactly one of prompt, content and messages";
            return Err(ApiError::invalid(rule));
        }
    };
    request.trace.add_prompt(ids.len());
    let ModelRequest {
        app, mut account, ..
    } = request;
    let (strings, pieces) = (
        fields.return_token_strs == Some(true),
        fields.with_pieces == Some(true),
    );
    let texts = usize::from(strings) + usize::from(pieces);
    account.add(ids.len() * (PROMPT_TOKEN + texts * PIECE))?;
    let describe = move |_: &Interest| {
        let token_strs = strings.then(|| {
            let texts = ids.iter().map(|&id| model.bytes(id));
            texts
                .map(|text| String::from_utf8_lossy(&text).into_owned())
                .collect()
        });
        let count = ids.len();
        let piece = |&id: &u32| Piece {
            id,
            piece: Text::new(model.bytes(id)),
        };
        Tokenized {
            count,
            max_model_len: model.worker.limits().context,
            tokens: match pieces {
                true => Tokens::Pieces(ids.iter().map(piece).collect()),
                false => Tokens::Ids(ids),
            },
            token_strs,
        }
    };
    let tokenized = app.jobs().run(request.body_len, describe).await?;
    json(&app, tokenized, account).await
}

/// Encodes a text of any length on another thread.
///
/// # Errors
/// The tokenizer cannot encode it. Also, there is no memory, or too many requests wait.
async fn encode(app: &App, model: &Arc<ServedModel>, text: ToEncode) -> Result<Vec<u32>, ApiError> {
    let bytes = text.text.len();
    let working = app.memory().reserve(of_encoding(bytes, bytes))?;
    let model = Arc::clone(model);
    let encode = move |_: &Interest| {
        let _working = working;
        let ids = match text.is_framed {
            true => model.encode(&text.text),
            false => model.tokenizer.encode(&text.text),
        };
        ids.map_err(|error| ApiError::field(text.field, error.to_string()))
    };
    app.jobs().run(bytes, encode).await?
}

/// Handles a request for the text of tokens.
pub(crate) async fn detokenize(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (Detokenize { model, tokens },) = request.read(&DETOKENIZE).await?;
    let model = request.any_model(&model)?;
    let ModelRequest {
        app,
        mut account,
        body_len,
        ..
    } = request;
    account.add(tokens.len() * TEXT)?;
    let decode = move |_: &Interest| model.tokenizer.decode(&tokens);
    let text = app.jobs().run(body_len, decode).await?;
    let prompt = text.map_err(|error| ApiError::field("tokens", error.to_string()))?;
    account.add(2 * prompt.len())?;
    let detokenized = Detokenized {
        content: prompt.clone(),
        prompt,
    };
    json(&app, detokenized, account).await
}

impl Text {
    fn new(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Valid(text),
            Err(error) => Self::Bytes(error.into_bytes()),
        }
    }
}

//! `POST /api/play`: text as the page wants it, token by token with what else might have come.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::response::sse::Event;
use emberlm_generate::SamplingDefaults;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc::error::SendError;

use super::App;
use super::answers::{Answers, Ask, FinishReason, Token};
use super::body::{Body, Fields, Object, schema};
use super::chat::{Message, Opened, open};
use super::deadline::Deadline;
use super::delivery::{Pieces, piece, seed, streamed};
use super::error::{ApiError, ErrorBody};
use super::memory::Kept;
use super::prompt::Prompt;
use super::settings::{Settings, constrained};
use crate::limits::MOST_ALTERNATIVES;
use crate::model::ServedModel;
use crate::request_log::Trace;

/// The fields beside [`Settings`]: a prompt or messages.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Play {
    model: String,
    prompt: Option<String>,
    messages: Option<Vec<Object<Message>>>,
    /// The answer's tokens so far.
    #[serde(default)]
    continued: Vec<u32>,
    top_logprobs: Option<usize>,
}

/// What is sent.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Sent {
    Begin {
        prompt_tokens: usize,
    },
    Token {
        id: u32,
        text: String,
        logprob: Option<f32>,
        top: Vec<Other>,
    },
    /// Text that was held back since a text that was to end it might have begun.
    Rest {
        text: String,
    },
    End {
        finish: FinishReason,
        completion_tokens: usize,
        seconds: f64,
    },
    Error(ErrorBody),
}

/// A token that might have come.
#[derive(Clone, Debug, Serialize)]
struct Other {
    id: u32,
    text: String,
    logprob: f32,
}

/// Which fields these requests may have.
pub(crate) fn schemas() -> [Value; 2] {
    [schema::<Play>(), schema::<Settings>()]
}

/// Answers.
pub(crate) async fn answer(
    State(app): State<App>,
    Extension(deadline): Extension<Deadline>,
    Extension(trace): Extension<Arc<Trace>>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let (asked, settings) = read(&app, body)?;
    let model = app.model(&asked.model)?;
    trace.set_model(&model);
    let alternatives = asked.top_logprobs.unwrap_or(5);
    if alternatives > MOST_ALTERNATIVES {
        let rule = format!("must be at most {MOST_ALTERNATIVES}");
        return Err(ApiError::field("top_logprobs", rule));
    }
    let opened = match (&asked.prompt, &asked.messages) {
        (Some(text), None) => Opened {
            prompt: tokens(text, &model, &app).await?,
            stop_tokens: Vec::new(),
            stop_strings: Vec::new(),
        },
        (None, Some(messages)) => open(&model, messages, &[]).await?,
        _ => {
            return Err(ApiError::field(
                "prompt",
                "either it or messages must be there",
            ));
        }
    };
    // The page shows every setting, and leaves those out that do nothing.
    let mut chooser = settings.chooser(SamplingDefaults::default(), seed())?;
    chooser.top_logprobs = Some(alternatives);
    constrained(&model, &mut chooser, settings.grammar()?).await?;
    let prompt = [opened.prompt, asked.continued].concat();
    // The page's number of tokens is a wish: what there is room for is made.
    let room = model.worker.config().capacity.saturating_sub(prompt.len());
    let ask = Ask {
        prompt,
        samples: 1,
        max_tokens: settings
            .max_tokens()
            .map(|most| most.min(room.max(1)).min(app.limits().tokens)),
        stops: settings.stops(&opened.stop_strings)?,
        stop_tokens: opened.stop_tokens,
        chooser,
    };
    let kept = Kept {
        streams: true,
        ..Kept::default()
    };
    let answers = Answers::begin(&app, &model, &trace, vec![ask], kept).await?;
    let late = piece(&Sent::Error(deadline.error().body()));
    Ok(streamed(
        deadline,
        move || late,
        move |pieces| async move {
            // It ends when the client has left.
            let _ = write(answers, &model, &pieces).await;
        },
    ))
}

/// The fields of a request, which keep nothing of its body.
fn read(app: &App, body: Bytes) -> Result<(Play, Settings), ApiError> {
    let fields = Fields::new(&body)?;
    let read = (fields.take()?, fields.take()?);
    fields.check_known(&app.schemas().play)?;
    Ok(read)
}

/// A text's tokens.
async fn tokens(text: &str, model: &Arc<ServedModel>, app: &App) -> Result<Vec<u32>, ApiError> {
    let prompt = Prompt::Text(text.to_owned());
    let texts = prompt.tokens("prompt", model, app.limits()).await?;
    Ok(texts.concat())
}

async fn write(
    mut answers: Answers,
    model: &Arc<ServedModel>,
    pieces: &Pieces,
) -> Result<(), SendError<Event>> {
    let start = Instant::now();
    let prompt_tokens = answers.usage().prompt_tokens;
    pieces.send(piece(&Sent::Begin { prompt_tokens })).await?;
    while let Some(event) = answers.next().await {
        let event = match event {
            Ok((_, event)) => event,
            Err(error) => return pieces.send(piece(&Sent::Error(error.body()))).await,
        };
        if let Some(token) = event.token {
            pieces.send(piece(&sent(token, event.text, model))).await?;
        } else if !event.text.is_empty() {
            pieces.send(piece(&Sent::Rest { text: event.text })).await?;
        }
        if let Some(finish) = event.finish {
            let end = Sent::End {
                finish,
                completion_tokens: answers.usage().completion_tokens,
                seconds: start.elapsed().as_secs_f64(),
            };
            pieces.send(piece(&end)).await?;
        }
    }
    Ok(())
}

fn sent(token: Token, text: String, model: &ServedModel) -> Sent {
    let other = |(id, logprob)| Other {
        id,
        text: String::from_utf8_lossy(&model.bytes(id)).into_owned(),
        logprob,
    };
    Sent::Token {
        id: token.chosen.id,
        text,
        logprob: token.chosen.logprob,
        top: token.chosen.alternatives.into_iter().map(other).collect(),
    }
}

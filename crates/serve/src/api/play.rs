//! `POST /api/play`: text as the page wants it, token by token with what else might have come.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc::error::SendError;

use super::App;
use super::body::{Body, Fields, Object, schema};
use super::chat::{Message, Opened, open};
use super::delivery::{Pieces, piece, seed, streamed};
use super::error::{ApiError, ErrorBody};
use super::prompt::Prompt;
use super::settings::{Settings, constrained};
use super::speech::{Ask, Chorus, FinishReason, Token};
use crate::limits::MOST_ALTERNATIVES;
use crate::model::ServedModel;

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
pub(crate) async fn answer(State(app): State<App>, Body(body): Body) -> Result<Response, ApiError> {
    let fields = Fields::new(&body)?;
    let asked: Play = fields.take()?;
    let settings: Settings = fields.take()?;
    fields.check_known(&app.schemas().play)?;
    let model = app.model(&asked.model)?;
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
        (None, Some(messages)) => open(&model, messages).await?,
        _ => {
            return Err(ApiError::field(
                "prompt",
                "either it or messages must be there",
            ));
        }
    };
    let mut chooser = settings.chooser(seed())?;
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
    let chorus = Chorus::begin(&app, &model, [ask]).await?;
    Ok(streamed(move |pieces| async move {
        // One that is not heard any more ends all of it.
        let _ = write(chorus, &model, &pieces).await;
    }))
}

/// A text's tokens.
async fn tokens(text: &str, model: &Arc<ServedModel>, app: &App) -> Result<Vec<u32>, ApiError> {
    let prompt = Prompt::Text(text.to_owned());
    let texts = prompt.tokens("prompt", model, app.limits()).await?;
    Ok(texts.concat())
}

async fn write(
    mut chorus: Chorus,
    model: &Arc<ServedModel>,
    pieces: &Pieces,
) -> Result<(), SendError<Event>> {
    let start = Instant::now();
    let prompt_tokens = chorus.usage().prompt_tokens;
    pieces.send(piece(&Sent::Begin { prompt_tokens })).await?;
    while let Some(said) = chorus.next().await {
        let said = match said {
            Ok((_, said)) => said,
            Err(error) => return pieces.send(piece(&Sent::Error(error.body()))).await,
        };
        if let Some(token) = said.token {
            pieces.send(piece(&sent(token, said.text, model))).await?;
        } else if !said.text.is_empty() {
            pieces.send(piece(&Sent::Rest { text: said.text })).await?;
        }
        if let Some(finish) = said.finish {
            let end = Sent::End {
                finish,
                completion_tokens: chorus.usage().completion_tokens,
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

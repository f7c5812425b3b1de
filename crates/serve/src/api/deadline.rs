//! Deadlines of requests.
//!
//! The server enforces the deadline regardless of the client's behaviour: it drops a handler that has not
//! responded by then, and the task that writes a stream (see `answer_stream`). Dropping them cancels their
//! requests to the model.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::App;
use super::error::ApiError;

/// The deadline of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    time: Duration,
}

impl Deadline {
    /// The deadline `time` from now.
    fn after(time: Duration) -> Self {
        // Longer durations could overflow the clock.
        let century = Duration::from_secs(100 * 365 * 86_400);
        Self {
            at: Instant::now() + time.min(century),
            time,
        }
    }

    /// Waits until the deadline.
    pub async fn passed(self) {
        sleep_until(self.at).await;
    }

    /// The error for a request that missed its deadline.
    pub fn error(self) -> ApiError {
        ApiError::timeout(self.time.as_secs())
    }
}

/// Sets a request's deadline, counted from the receipt of its head, and responds with an error if it passes.
pub(crate) async fn keep(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let deadline = Deadline::after(app.limits().time);
    request.extensions_mut().insert(deadline);
    match timeout_at(deadline.at, next.run(request)).await {
        Ok(response) => response,
        Err(_) => deadline.error().into_response(),
    }
}

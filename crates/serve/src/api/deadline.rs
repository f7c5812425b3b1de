//! The time by which a request must be answered.
//!
//! It is kept by the server, whatever the client does: a handler that has not answered by then is dropped, and so is the
//! task that writes a stream (see `delivery`), and with them their requests to the model.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::App;
use super::error::ApiError;

/// When a request's time ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    time: Duration,
}

impl Deadline {
    /// `time` from now.
    fn after(time: Duration) -> Self {
        // A time beyond what the clock can hold is a century.
        let century = Duration::from_secs(100 * 365 * 86_400);
        Self {
            at: Instant::now() + time.min(century),
            time,
        }
    }

    /// Waits until then.
    pub async fn passed(self) {
        sleep_until(self.at).await;
    }

    /// The answer to a request whose time is over.
    pub fn error(self) -> ApiError {
        ApiError::timeout(self.time.as_secs())
    }
}

/// Gives a request its deadline, counted from when its head was received, and answers at that time if nothing else does.
pub(crate) async fn keep(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let deadline = Deadline::after(app.limits().time);
    request.extensions_mut().insert(deadline);
    match timeout_at(deadline.at, next.run(request)).await {
        Ok(response) => response,
        Err(_) => deadline.error().into_response(),
    }
}

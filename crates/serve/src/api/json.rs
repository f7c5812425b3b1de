//! JSON responses.

use std::io::Cursor;

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::App;
use super::error::ApiError;
use crate::memory::Reservation;

/// The most bytes of an answer that is written in passing.
const SHORT: usize = 64 << 10;

/// A serialized response, with its memory reserved until it is sent.
struct ReservedBody {
    bytes: Vec<u8>,
    _reservation: Reservation,
}

impl AsRef<[u8]> for ReservedBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A JSON response that holds its memory reservation until it is sent. A long one is written on another thread.
///
/// # Errors
/// The answer cannot be written.
pub(crate) async fn json<T: Serialize + Send + 'static>(
    app: &App,
    answer: T,
    reservation: Reservation,
) -> Result<Response, ApiError> {
    let mut short = vec![0; SHORT];
    let mut writer = Cursor::new(short.as_mut_slice());
    let bytes = match serde_json::to_writer(&mut writer, &answer) {
        Ok(()) => {
            let length = writer.position() as usize;
            short[..length].to_vec()
        }
        // It is longer.
        Err(error) if error.is_io() => {
            let write = move || serde_json::to_vec(&answer).map_err(failed);
            app.jobs().finish(write).await??
        }
        Err(error) => return Err(failed(error)),
    };
    let body = Bytes::from_owner(ReservedBody {
        bytes,
        _reservation: reservation,
    });
    const KIND: HeaderValue = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, KIND)], body).into_response())
}

fn failed(error: serde_json::Error) -> ApiError {
    ApiError::internal(error.to_string())
}

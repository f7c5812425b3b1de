//! A response body that keeps a value alive until it is sent or dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

/// Keeps `held` alive until the response's body has been passed to the writer or is dropped.
pub(crate) fn holding<T: Send + Unpin + 'static>(response: Response, held: T) -> Response {
    response.map(|body| Body::new(HeldBody { body, _held: held }))
}

struct HeldBody<T> {
    body: Body,
    _held: T,
}

impl<T: Unpin> HttpBody for HeldBody<T> {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

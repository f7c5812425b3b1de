//! The extractor for requests to a model.

use std::mem;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};

use super::App;
use super::body::{Body, FieldGroups, KnownFields};
use super::deadline::Deadline;
use super::error::ApiError;
use crate::model::{ServedModel, Task};
use crate::request_log::Trace;

/// A fully received request.
pub(crate) struct ModelRequest {
    pub app: App,
    pub deadline: Deadline,
    pub trace: Arc<Trace>,
    body: Bytes,
}

impl FromRequest<App> for ModelRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let extensions = request.extensions();
        let deadline = extensions.get::<Deadline>().copied();
        let trace = extensions.get::<Arc<Trace>>().cloned();
        let (Some(deadline), Some(trace)) = (deadline, trace) else {
            return Err(ApiError::internal("the request has no deadline"));
        };
        let Body(body) = Body::from_request(request, app).await?;
        Ok(Self {
            app: app.clone(),
            deadline,
            trace,
            body,
        })
    }
}

impl ModelRequest {
    /// The length of the body in bytes; 0 after it was read.
    pub fn body_len(&self) -> usize {
        self.body.len()
    }

    /// Parses the fields and drops the body.
    ///
    /// # Errors
    /// See [`KnownFields::read`].
    pub fn read<T: FieldGroups>(&mut self, known: &KnownFields<T>) -> Result<T, ApiError> {
        known.read(&mem::take(&mut self.body))
    }

    /// Finds the requested model for a task and records it for the log.
    ///
    /// # Errors
    /// No model has this name, or the model is not for the task.
    pub fn model(&self, name: &str, task: Task) -> Result<Arc<ServedModel>, ApiError> {
        let model = self.app.model(name)?;
        self.trace.set_model(&model);
        match model.kind.supports(task) {
            true => Ok(model),
            false => Err(ApiError::task(&model.name, model.kind.name(), task)),
        }
    }
}

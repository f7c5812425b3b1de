//! The extractor for requests to a model.

use std::mem;
use std::sync::Arc;

use axum::extract::{FromRequest, Request};

use super::App;
use super::answers::{AnswerRequest, Answers};
use super::body::{Body, FieldGroups, KnownFields, ReadFields};
use super::bounds::{self, Kept};
use super::deadline::Deadline;
use super::error::ApiError;
use crate::memory::Reservation;
use crate::model::{ServedModel, Task};
use crate::request_log::Trace;

/// A fully received request.
pub(crate) struct ModelRequest {
    pub app: App,
    pub deadline: Deadline,
    pub trace: Arc<Trace>,
    /// The memory of the request, so far.
    pub account: Reservation,
    /// The length of the body in bytes.
    pub body_len: usize,
    body: Vec<u8>,
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
        let Body { bytes, account } = Body::from_request(request, app).await?;
        Ok(Self {
            app: app.clone(),
            deadline,
            trace,
            account,
            body_len: bytes.len(),
            body: bytes,
        })
    }
}

impl ModelRequest {
    /// Parses the fields and drops the body. The memory of the values is reserved first, until the end of the request. Fields
    /// without effect are recorded for the log.
    ///
    /// # Errors
    /// See [`KnownFields::read`]. Also, there is no memory, or too many requests wait.
    pub async fn read<T: FieldGroups + Send + 'static>(
        &mut self,
        known: &'static KnownFields<T>,
    ) -> Result<T, ApiError> {
        let body = mem::take(&mut self.body);
        let mut account = mem::replace(&mut self.account, self.app.memory().account());
        let read = move || {
            account.add(bounds::of_json(&body))?;
            Ok((known.read(&body)?, account))
        };
        let read = self.app.work(self.body_len, read);
        let (read, account): (ReadFields<T>, Reservation) = read.await?;
        self.account = account;
        self.trace.set_ignored(read.ignored);
        Ok(read.fields)
    }

    /// Starts answering the prompts of the request.
    ///
    /// # Errors
    /// See [`Answers::begin`].
    pub async fn begin(
        self,
        model: &Arc<ServedModel>,
        answer_requests: Vec<AnswerRequest>,
        kept: Kept,
    ) -> Result<Answers, ApiError> {
        let Self {
            app,
            trace,
            account,
            ..
        } = self;
        Answers::begin(&app, model, &trace, answer_requests, kept, account).await
    }

    /// Finds the requested model for any use and records it for the log.
    ///
    /// # Errors
    /// No model has this name.
    pub fn any_model(&self, name: &str) -> Result<Arc<ServedModel>, ApiError> {
        let model = self.app.model(name)?;
        self.trace.set_model(&model);
        Ok(model)
    }

    /// Finds the requested model for a task and records it for the log.
    ///
    /// # Errors
    /// No model has this name, or the model is not for the task.
    pub fn model(&self, name: &str, task: Task) -> Result<Arc<ServedModel>, ApiError> {
        let model = self.any_model(name)?;
        match model.kind.supports(task) {
            true => Ok(model),
            false => Err(ApiError::task(&model.name, model.kind.name(), task)),
        }
    }
}

//! Chat templates, which are rendered in workers: a template comes from whoever made the model.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bytesize::ByteSize;
use emberlm_sandbox::{Handlers, Sandbox, SandboxError, SandboxOptions};
use emberlm_tokenizer::chat::{
    RemoteRenderer, RenderError, RenderReply, RenderRequest, RenderService, install_renderer,
};

use super::worker_command;

/// The job's name.
const RENDER: &str = "render-template";
/// The memory of a worker.
const MEMORY: u64 = 256 << 20;
/// The most bytes of an answer: the texts of some conversations.
const RESPONSE: u64 = 128 << 20;
/// The time of one request.
const TIME: Duration = Duration::from_secs(5);
/// Threads that may wait for a worker. Those of `serve` are bounded by it.
const QUEUE: usize = 1024;

/// Adds the job to those that a worker can run.
pub fn handlers(handlers: Handlers) -> Handlers {
    let service = Mutex::new(RenderService::default());
    handlers.on(RENDER, move |request: RenderRequest<'static>| {
        let mut service = service.lock().unwrap_or_else(PoisonError::into_inner);
        service.answer(&request)
    })
}

/// Lets workers render all chat templates of this process. They start with the first template.
pub fn install() {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let sandbox = Sandbox::new(SandboxOptions {
        memory: MEMORY,
        response: RESPONSE,
        time: TIME,
        // `prepare` renders in all threads.
        workers: threads,
        queue: QUEUE,
        ..SandboxOptions::new(worker_command())
    });
    let send = move |request: &RenderRequest<'_>| -> Result<RenderReply, RenderError> {
        sandbox.run(RENDER, request).map_err(refuse)
    };
    // The first one stays.
    install_renderer(Arc::new(RemoteRenderer::new(Arc::new(send))));
}

fn refuse(error: SandboxError) -> RenderError {
    let limit = |reason: String| RenderError::Limit { reason };
    match error {
        SandboxError::TimedOut { limit: time } => limit(format!(
            "rendering takes longer than {} s, the limit",
            time.as_secs_f64()
        )),
        SandboxError::Crashed { memory, stack, .. } => limit(format!(
            "rendering takes more than {} of memory or {} of stack, the limits",
            ByteSize(memory),
            ByteSize(stack)
        )),
        SandboxError::TooLarge { limit: bytes } => limit(format!(
            "its texts are longer than {}, the limit",
            ByteSize(bytes)
        )),
        error => RenderError::Unavailable {
            reason: error.to_string(),
        },
    }
}

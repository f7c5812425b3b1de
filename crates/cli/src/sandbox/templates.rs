//! Renders chat templates in sandboxed workers: a template comes with the model and is untrusted.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bytesize::ByteSize;
use emberlm_sandbox::{Handlers, Sandbox, SandboxError, SandboxOptions};
use emberlm_tokenizer::chat::{
    RemoteRenderer, RenderError, RenderReply, RenderRequest, RenderService, install_renderer,
};

use super::worker_command;

const RENDER: &str = "render-template";
/// Memory limit of a worker.
const MEMORY: u64 = 256 << 20;
/// Size limit of a response in bytes, which fits the texts of several conversations.
const RESPONSE: u64 = 128 << 20;
/// Time limit of a request.
const TIME: Duration = Duration::from_secs(5);
/// Maximum number of threads waiting for a worker. `serve` bounds its own threads by this.
const QUEUE: usize = 1024;

/// Registers the rendering job.
pub fn handlers(handlers: Handlers) -> Handlers {
    let service = Mutex::new(RenderService::default());
    handlers.on(RENDER, move |request: RenderRequest<'static>| {
        let mut service = service.lock().unwrap_or_else(PoisonError::into_inner);
        service.answer(&request)
    })
}

/// Makes workers render all chat templates of this process. Workers start with the first template.
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
    // Only the first installation takes effect.
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

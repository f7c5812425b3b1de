//! Child processes that run untrusted work, and the jobs they support.

mod templates;

use std::sync::LazyLock;

use emberlm_generate::{GrammarSandbox, vet};
use emberlm_sandbox::{Handlers, WorkerCommand};

pub use templates::install as render_templates_apart;

/// The hidden first argument of a worker process.
const WORKER: &str = "sandbox-worker";

/// If this process was started as a worker, serves the parent's jobs and exits. Must be called first, so that
/// a worker starts no thread pool or backend and uses little memory.
pub fn serve_if_worker() {
    if std::env::args_os().nth(1).is_some_and(|it| it == WORKER) {
        templates::handlers(vet::handlers(Handlers::new())).serve();
    }
}

/// The sandbox that grammars are vetted in. It is shared by all models and started on first use.
pub fn grammars() -> GrammarSandbox {
    static GRAMMARS: LazyLock<GrammarSandbox> =
        LazyLock::new(|| GrammarSandbox::new(worker_command()));
    GRAMMARS.clone()
}

/// The command that starts this program as a worker.
pub fn worker_command() -> WorkerCommand {
    WorkerCommand::this_program([WORKER])
}

//! The child processes that run untrusted work, and the jobs they can run.

mod templates;

use std::sync::LazyLock;

use emberlm_generate::{GrammarSandbox, vet};
use emberlm_sandbox::{Handlers, WorkerCommand};

pub use templates::install as render_templates_apart;

/// The hidden first argument of a worker process.
const WORKER: &str = "sandbox-worker";

/// Runs the jobs of a parent process and ends the process, if this process was started as a worker. It is called before
/// anything else, so that a worker has no thread pool, no backend and little memory.
pub fn serve_if_worker() {
    if std::env::args_os().nth(1).is_some_and(|it| it == WORKER) {
        templates::handlers(vet::handlers(Handlers::new())).serve();
    }
}

/// The sandbox grammars are vetted in: one for all models, started when it is first needed.
pub fn grammars() -> GrammarSandbox {
    static GRAMMARS: LazyLock<GrammarSandbox> =
        LazyLock::new(|| GrammarSandbox::new(worker_command()));
    GRAMMARS.clone()
}

/// The command that starts a worker of this program.
pub fn worker_command() -> WorkerCommand {
    WorkerCommand::this_program([WORKER])
}

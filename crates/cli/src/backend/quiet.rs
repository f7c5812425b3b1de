//! Converts panics of GPU runtimes into errors.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

/// Runs `run` and returns its result, or its panic message. The panic is not printed.
pub fn quietly<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    panic::set_hook(hook);
    result.map_err(|payload| reason(&*payload))
}

/// Extracts the message of a panic, without the runtime's debug data.
pub fn reason(payload: &dyn Any) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("its runtime gave no reason");
    // The runtime's debug data starts at the first brace.
    let message = text.split('{').next().unwrap_or(text);
    message.trim_end().to_owned()
}

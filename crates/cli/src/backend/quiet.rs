//! Panics of runtimes as errors.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

/// Returns the result of `run`, or the message of its panic, which is not printed.
pub fn quietly<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    panic::set_hook(hook);
    result.map_err(|payload| reason(&*payload))
}

/// A panic's own words, without a runtime's data.
pub fn reason(payload: &dyn Any) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("its runtime gave no reason");
    // What follows the first brace is a runtime's own data.
    let said = text.split('{').next().unwrap_or(text);
    said.trim_end().to_owned()
}

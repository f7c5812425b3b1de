//! Conversion of another crate's panics into errors.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// True while this thread's panics are caught by [`caught`] and must not be printed.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Returns the result of `work`, or `None` if it panics. The panic message is not printed, because the caller reports
/// an error.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let previous_hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !CAUGHT.get() {
                previous_hook(info);
            }
        }));
    });
    let before = CAUGHT.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    CAUGHT.set(before);
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caught_panic_returns_none_and_later_work_runs() {
        assert_eq!(caught(|| [1][0]), Some(1));
        assert_eq!(caught(|| panic!("not to be seen")), None::<u8>);
        assert_eq!(
            caught(|| caught(|| panic!("neither")).unwrap_or(2)),
            Some(2)
        );
        assert!(!CAUGHT.get());
    }
}

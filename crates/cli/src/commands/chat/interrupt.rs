//! Ctrl-C handling: interrupts an answer, or ends the program if it is idle and input is not interactive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::error::CliError;
use crate::signals;

/// The exit code shells use for a program ended by Ctrl-C.
const EXIT_CODE: i32 = 130;

/// The state of Ctrl-C.
///
/// During line editing the terminal delivers Ctrl-C as a key, so this handler is not involved.
#[derive(Debug)]
pub struct Interrupt {
    came: Arc<AtomicBool>,
    /// True if Ctrl-C ends the program at this moment.
    ends: Arc<AtomicBool>,
    /// True if Ctrl-C ends the program while no answer is generated.
    ends_at_rest: bool,
}

impl Interrupt {
    /// Installs the handler. In a terminal Ctrl-C never ends the program: a user may press it twice, and the
    /// second press may arrive just after the answer has ended.
    pub fn listen(in_terminal: bool) -> Result<Self, CliError> {
        let this = Self {
            came: Arc::new(AtomicBool::new(false)),
            ends: Arc::new(AtomicBool::new(!in_terminal)),
            ends_at_rest: !in_terminal,
        };
        if signals::is_ignored(SIGINT) {
            return Ok(this);
        }
        flag::register_conditional_shutdown(SIGINT, EXIT_CODE, Arc::clone(&this.ends))
            .map_err(signals::refused)?;
        flag::register(SIGINT, Arc::clone(&this.came)).map_err(signals::refused)?;
        Ok(this)
    }

    /// Runs `work` so that Ctrl-C only sets the flag passed to it.
    pub fn during<T>(&self, work: impl FnOnce(&AtomicBool) -> T) -> T {
        self.came.store(false, Ordering::Relaxed);
        self.ends.store(false, Ordering::Relaxed);
        let done = work(&self.came);
        self.ends.store(self.ends_at_rest, Ordering::Relaxed);
        done
    }
}

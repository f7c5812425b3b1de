//! Ctrl-C: it ends an answer, and where nothing is being said and nobody types, the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::error::CliError;
use crate::signals;

/// The exit code of a program that Ctrl-C has ended, as shells have it.
const EXIT_CODE: i32 = 130;

/// The state of Ctrl-C, and its effect.
///
/// While a line is edited the terminal hands it over as a key, and none of this is asked.
#[derive(Debug)]
pub struct Interrupt {
    came: Arc<AtomicBool>,
    /// True if it ends the program now.
    ends: Arc<AtomicBool>,
    /// True if it ends the program where no answer is being generated.
    ends_at_rest: bool,
}

impl Interrupt {
    /// Listens from now on. Who types in a terminal may press it twice, and the second time must not end the program where the
    /// first one has just ended an answer: there it never does.
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

    /// Does something that Ctrl-C only interrupts: it is given what then becomes true.
    pub fn during<T>(&self, work: impl FnOnce(&AtomicBool) -> T) -> T {
        self.came.store(false, Ordering::Relaxed);
        self.ends.store(false, Ordering::Relaxed);
        let done = work(&self.came);
        self.ends.store(self.ends_at_rest, Ordering::Relaxed);
        done
    }
}

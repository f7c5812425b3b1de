//! Burn's terminal dashboard, with four repairs.
//!
//! It puts the terminal into raw mode, which swallows Ctrl-C: signals are switched on again. And its thread polls
//! without a pause, which takes a whole core from training: the thread is given the lowest priority, so that it only
//! gets what is left over. It ends a run at once by panics, whose messages tell the user nothing. And where the terminal
//! is closed it panics, and prints to stderr within the panic, which would abort the process: while it has the terminal,
//! what is printed to stderr goes nowhere.

use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::train::Interrupter;
use burn::train::renderer::tui::TuiMetricsRendererWrapper;

/// Starts the dashboard; `q` in it stops a run through the interrupter.
pub fn start(interrupter: Interrupter) -> TuiMetricsRendererWrapper {
    let before = terminal::state();
    terminal::set_stderr_aside();
    // Before the dashboard's own hook, which restores the terminal and then calls this one.
    expect_kill();
    let dashboard = TuiMetricsRendererWrapper::new(interrupter, None);
    if let Some(before) = before {
        terminal::keep_signals(&before);
    }
    terminal::yield_processor();
    dashboard
}

/// Puts the terminal back as it was before the dashboard, for a program that ends without closing it.
pub fn restore_terminal() {
    terminal::restore();
    terminal::put_stderr_back();
}

/// Lets stderr be written to again, after the dashboard has closed.
pub fn put_stderr_back() {
    terminal::put_stderr_back();
}

/// Whether the run was ended at once from the dashboard. Its way to do so is to panic, on its own thread and then on all
/// that speak to it.
static KILLED: AtomicBool = AtomicBool::new(false);

/// Whether the run was ended at once from the dashboard.
pub fn was_killed() -> bool {
    KILLED.load(Ordering::SeqCst)
}

/// Keeps quiet about the panics that end a run from the dashboard; any other is told as before.
fn expect_kill() {
    let told = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let text = info.payload_as_str().unwrap_or_default();
        if text.starts_with("Killing training") {
            KILLED.store(true, Ordering::SeqCst);
        }
        if !was_killed() {
            terminal::put_stderr_back();
            told(info);
        }
    }));
}

#[cfg(unix)]
#[expect(
    clippy::disallowed_methods,
    reason = "the terminal that the dashboard has taken is asked about and put back"
)]
mod terminal {
    use std::fs::File;
    use std::io::{Write, stderr, stdout};
    use std::os::fd::OwnedFd;
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use rustix::io::fcntl_dupfd_cloexec;
    use rustix::stdio::dup2_stderr;
    use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

    /// The terminal's state before the dashboard.
    static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

    /// Stderr, while the dashboard has the terminal.
    static STDERR: Mutex<Option<Stderr>> = Mutex::new(None);

    struct Stderr {
        file: OwnedFd,
        is_terminal: bool,
    }

    /// The first number after stdin, stdout and stderr.
    const FIRST_FREE: i32 = 3;

    pub fn set_stderr_aside() {
        let aside = || -> std::io::Result<Stderr> {
            let nowhere = File::options().write(true).open("/dev/null")?;
            let file = fcntl_dupfd_cloexec(stderr(), FIRST_FREE)?;
            let is_terminal = tcgetattr(&file).is_ok();
            dup2_stderr(nowhere)?;
            Ok(Stderr { file, is_terminal })
        };
        if let (Ok(aside), Ok(mut stderr)) = (aside(), STDERR.lock()) {
            *stderr = Some(aside);
        }
    }

    /// Not where it is a terminal that was closed: nobody can read it.
    pub fn put_stderr_back() {
        let Ok(Some(aside)) = STDERR.lock().map(|mut stderr| stderr.take()) else {
            return;
        };
        if !aside.is_terminal || tcgetattr(&aside.file).is_ok() {
            let _ = dup2_stderr(aside.file);
        }
    }

    /// How long the dashboard's thread may take to set up the terminal.
    const PATIENCE: Duration = Duration::from_secs(2);

    pub fn state() -> Option<Termios> {
        let state = tcgetattr(stdout()).ok()?;
        if let Ok(mut before) = BEFORE.lock() {
            *before = Some(state.clone());
        }
        Some(state)
    }

    /// Waits for raw mode, then lets Ctrl-C and its like be signals again.
    pub fn keep_signals(before: &Termios) {
        if !before.local_modes.contains(LocalModes::ICANON) {
            return;
        }
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let Ok(mut state) = tcgetattr(stdout()) else {
                return;
            };
            if !state.local_modes.contains(LocalModes::ICANON) {
                state.local_modes.insert(LocalModes::ISIG);
                let _ = tcsetattr(stdout(), OptionalActions::Now, &state);
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn restore() {
        let Ok(Some(before)) = BEFORE.lock().map(|mut before| before.take()) else {
            return;
        };
        if tcsetattr(stdout(), OptionalActions::Now, &before).is_ok() {
            // Leave the alternate screen and show the cursor.
            let _ = stdout().write_all(b"\x1b[?1049l\x1b[?25h");
            let _ = stdout().flush();
        }
    }

    /// Linux keeps a priority per thread, under the thread's number in `/proc`.
    #[cfg(target_os = "linux")]
    pub fn yield_processor() {
        use rustix::process::{Pid, setpriority_process};
        let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
            return;
        };
        for task in tasks.flatten() {
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            let number = task.file_name().to_str().and_then(|n| n.parse().ok());
            if name.trim_end() == "train-renderer"
                && let Some(thread) = number.and_then(Pid::from_raw)
            {
                let _ = setpriority_process(Some(thread), 19);
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub fn yield_processor() {}
}

#[cfg(not(unix))]
mod terminal {
    pub fn set_stderr_aside() {}

    pub fn put_stderr_back() {}

    pub fn state() -> Option<()> {
        None
    }

    pub fn keep_signals(_before: &()) {}

    pub fn restore() {}

    pub fn yield_processor() {}
}

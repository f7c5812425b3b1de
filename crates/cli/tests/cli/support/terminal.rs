//! Runs the binary in a pseudo-terminal.

use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use super::Sandbox;

/// A pseudo-terminal that runs the binary, and the contents of its screen.
pub struct Terminal {
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    screen: Arc<Mutex<vt100::Parser>>,
    bytes: Arc<Mutex<Vec<u8>>>,
    /// True once its output is no longer read.
    closed: Arc<AtomicBool>,
    /// The terminal's modes before the binary was started.
    before: String,
}

impl Terminal {
    pub fn start(sandbox: &Sandbox, line: &str, rows: u16, cols: u16) -> Self {
        Self::start_with(sandbox, line, &[], rows, cols)
    }

    /// Starts the binary with variables of the environment.
    pub fn start_with(
        sandbox: &Sandbox,
        line: &str,
        variables: &[(&str, &str)],
        rows: u16,
        cols: u16,
    ) -> Self {
        let mut command = CommandBuilder::new("env");
        command.args(
            variables
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        command.arg(env!("CARGO_BIN_EXE_emberlm"));
        command.args(line.split_whitespace());
        Self::start_command(sandbox, command, rows, cols)
    }

    pub fn start_command(
        sandbox: &Sandbox,
        mut command: CommandBuilder,
        rows: u16,
        cols: u16,
    ) -> Self {
        let size = PtySize {
            rows,
            cols,
            ..PtySize::default()
        };
        let pair = native_pty_system().openpty(size).unwrap();
        command.cwd(sandbox.path(""));
        command.env("TERM", "xterm-256color");
        command.env("LC_ALL", "C.UTF-8");
        // The location of the history file.
        command.env("XDG_DATA_HOME", sandbox.path("home"));
        let before = modes(pair.master.as_ref());
        let child = pair.slave.spawn_command(command).unwrap();
        let mut output = pair.master.try_clone_reader().unwrap();
        let keys = pair.master.take_writer().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(
            size_of(rows),
            size_of(cols),
            0,
        )));
        let parser = Arc::clone(&screen);
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let closed = Arc::new(AtomicBool::new(false));
        let (all, stop) = (Arc::clone(&bytes), Arc::clone(&closed));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                parser.lock().unwrap().process(&bytes[..count]);
                all.lock().unwrap().extend_from_slice(&bytes[..count]);
                if stop.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        Self {
            master: pair.master,
            keys,
            child,
            screen,
            bytes,
            closed,
            before,
        }
    }

    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }

    /// Waits for the program to exit and returns all bytes that it has written.
    pub fn bytes_at_the_end(mut self) -> Vec<u8> {
        assert!(self.child.wait().unwrap().success());
        // The last output may still be in transit through the terminal.
        std::thread::sleep(Duration::from_millis(200));
        self.bytes()
    }

    /// Closes the terminal at the program's next output, and returns the process.
    pub fn close(self) -> Box<dyn Child + Send + Sync> {
        self.closed.store(true, Ordering::SeqCst);
        self.child
    }

    #[track_caller]
    pub fn wait_for(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        let started = Instant::now();
        loop {
            let text = self.text().replace('\u{a0}', " ");
            if condition(&text) {
                return text;
            }
            let waited = started.elapsed();
            assert!(
                waited < Duration::from_secs(60),
                "{what} does not come:\n{text}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn press(&mut self, key: &str) {
        self.keys.write_all(key.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Resizes the terminal and waits for a full redraw, which only a new size triggers. A size that is
    /// replaced before the binary reads it is never drawn.
    #[track_caller]
    pub fn resize(&self, rows: u16, cols: u16, drawn: char) {
        let size = PtySize {
            rows,
            cols,
            ..PtySize::default()
        };
        {
            let mut parser = self.screen.lock().unwrap();
            parser.screen_mut().set_size(size_of(rows), size_of(cols));
            parser.process(b"\x1b[2J");
        }
        self.master.resize(size).unwrap();
        self.wait_for("the new size", |text| text.contains(drawn));
    }

    /// Waits for the exit and asserts that the terminal's modes are restored. Returns success and the
    /// screen's text.
    #[track_caller]
    pub fn ended(mut self) -> (bool, String) {
        let status = self.child.wait().unwrap();
        // The last output may still be in transit through the terminal.
        std::thread::sleep(Duration::from_millis(200));
        let text = self.text();
        {
            let parser = self.screen.lock().unwrap();
            assert!(
                !parser.screen().alternate_screen(),
                "the alternate screen:\n{text}"
            );
            assert!(!parser.screen().hide_cursor(), "no cursor:\n{text}");
        }
        assert_eq!(modes(self.master.as_ref()), self.before, "its modes");
        (status.success(), text)
    }
}

/// The number of rows or columns, which is never 0.
fn size_of(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap()
}

/// The terminal settings that raw mode changes.
fn modes(master: &(dyn MasterPty + Send)) -> String {
    format!("{:?}", master.get_termios().unwrap())
}

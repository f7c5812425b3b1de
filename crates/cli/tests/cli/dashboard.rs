//! The dashboard in a real pseudo-terminal.

use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use super::support::Sandbox;
use super::support::train::TINY;

/// A terminal with the binary in it, and what its screen shows.
struct Terminal {
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    screen: Arc<Mutex<vt100::Parser>>,
    /// Its modes before the binary was started.
    before: String,
}

impl Terminal {
    fn start(sandbox: &Sandbox, line: &str, rows: u16, cols: u16) -> Self {
        let size = PtySize {
            rows,
            cols,
            ..PtySize::default()
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_emberlm"));
        command.args(line.split_whitespace());
        command.cwd(sandbox.path(""));
        command.env("TERM", "xterm-256color");
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
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                parser.lock().unwrap().process(&bytes[..count]);
            }
        });
        Self {
            master: pair.master,
            keys,
            child,
            screen,
            before,
        }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    #[track_caller]
    fn wait_for(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
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

    fn press(&mut self, key: &str) {
        self.keys.write_all(key.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Changes the size and waits until all is drawn anew: frames are no part of what changes otherwise. A size that the
    /// binary has not seen before the next one comes is never drawn.
    #[track_caller]
    fn resize(&self, rows: u16, cols: u16) {
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
        self.wait_for("the new size", |text| text.contains('┌'));
    }

    /// Waits for the end; the terminal must be as the program found it.
    #[track_caller]
    fn ended(mut self) -> (bool, String) {
        let status = self.child.wait().unwrap();
        // What was written last is still on its way through the terminal.
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

/// A screen has some rows and columns.
fn size_of(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap()
}

/// What raw mode changes.
fn modes(master: &(dyn MasterPty + Send)) -> String {
    format!("{:?}", master.get_termios().unwrap())
}

fn line(more: &str) -> String {
    let tiny = TINY.replace("--renderer plain", "");
    format!("train {tiny} --data data --out run --steps 100000 --eval-interval 40 {more}")
}

#[test]
fn all_figures_are_in_80_by_24_and_it_survives_resizing() {
    let sandbox = Sandbox::with_data();
    let mut terminal = Terminal::start(&sandbox, &line(""), 24, 80);
    let text = terminal.wait_for("a sample", |text| text.contains('“'));
    for part in [
        "loss ", "valid ", "ppl ", "|g| ", "rate ", "tok/s", "MiB", " left", "Plots", "Progress",
    ] {
        assert!(text.contains(part), "`{part}` is not on\n{text}");
    }
    assert!(
        text.contains("Loss │ Perplexity │ Rate │ Gradient │ Tokens/s"),
        "{text}"
    );
    for (rows, cols) in [(40, 120), (5, 20), (24, 80)] {
        terminal.resize(rows, cols);
    }
    terminal.wait_for("the old size", |text| {
        text.contains("Loss │ Perplexity │ Rate │ Gradient │ Tokens/s") && text.contains("loss ")
    });
    // Ctrl-C: a checkpoint, and the terminal as it was.
    terminal.press("\u{3}");
    let (success, text) = terminal.ended();
    assert!(success, "{text}");
    assert!(
        text.contains("Stopped after step ") && text.contains("--resume run"),
        "{text}"
    );
    assert_eq!(sandbox.events("run", "ended")[0]["how"], "interrupted");
}

#[test]
fn q_then_s_stops_and_q_then_k_kills() {
    for (key, success, expected) in [("s", true, "Stopped after step "), ("k", false, "killed")] {
        let sandbox = Sandbox::with_data();
        let mut terminal = Terminal::start(&sandbox, &line(""), 24, 80);
        terminal.wait_for("the dashboard", |text| text.contains("tok/s"));
        terminal.press("q");
        terminal.wait_for("the question", |text| text.contains("[k]"));
        terminal.press(key);
        // Killing is a panic in three threads: the terminal comes back after it as well.
        let (succeeded, text) = terminal.ended();
        assert_eq!(succeeded, success, "{text}");
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_resumed_run_shows_what_was_before() {
    let sandbox = Sandbox::with_data();
    // Steps that take their time: from a thousand points on, the plot leaves some out, and the first one with them.
    let line =
        "--data data --out run --steps 3 --set train.decay_steps=3 --set train.micro_batch=256";
    super::support::train::trained(sandbox.train(line));
    // The axis ends at the largest loss, which is of what was before: those that follow are below it.
    let validated = sandbox.events("run", "evaluation");
    let validated = validated.iter().map(|e| e["loss"].as_f64().unwrap());
    let largest = validated.chain(sandbox.losses("run")).fold(0.0, f64::max);
    let mut terminal = Terminal::start(&sandbox, "train --resume run --steps 100000", 24, 80);
    terminal.wait_for("the largest loss", |text| {
        text.contains(&format!("{largest:.2}"))
    });
    terminal.press("\u{3}");
    assert!(terminal.ended().0);
}

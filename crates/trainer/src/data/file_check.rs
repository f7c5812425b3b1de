//! Verifies files without block hashes on a background thread, while a run or an evaluation reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use emberlm_data::{DataError, TokenSplit, UnverifiedFiles};

/// The interval at which a waiting caller checks for cancellation.
const PAUSE: Duration = Duration::from_millis(50);

/// Verifies the files of splits without block hashes, on a low-priority thread. Dropping it stops the thread.
pub struct FileCheck {
    files: UnverifiedFiles,
    result: Option<Receiver<Result<(), DataError>>>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl FileCheck {
    /// Starts verifying the files of `splits`. Does nothing if all files have block hashes.
    pub fn start<'a>(splits: impl IntoIterator<Item = &'a TokenSplit>) -> Self {
        let files = UnverifiedFiles::of(splits);
        let mut this = Self {
            files,
            result: None,
            stop: Arc::default(),
            done: Arc::default(),
            thread: None,
        };
        if !this.files.is_empty() {
            this.spawn();
        }
        this
    }

    fn spawn(&mut self) {
        let (send, receive) = channel();
        let (files, stop, done) = (self.files.clone(), self.stop.clone(), self.done.clone());
        let spare = send.clone();
        let work = move || {
            lower_priority();
            // The receiver may be gone; then nobody needs the result.
            let _ = send.send(files.verify(&stop, &done));
        };
        match Builder::new().name("file-check".to_owned()).spawn(work) {
            Ok(thread) => self.thread = Some(thread),
            // Without a thread, verify synchronously.
            Err(_) => {
                let _ = spare.send(self.files.verify(&self.stop, &self.done));
            }
        }
        self.result = Some(receive);
    }

    /// The log line that announces the check. `None` if there is nothing to verify.
    pub fn announcement(&self) -> Option<String> {
        let (files, bytes) = (self.files.len(), self.files.bytes());
        self.result.as_ref().map(|_| {
            format!(
                "verifying {files} files of {bytes} bytes without block hashes in the background"
            )
        })
    }

    /// Returns a log line once the check is complete, and `None` before and afterwards.
    ///
    /// # Errors
    /// A file is damaged or cannot be read.
    pub fn poll(&mut self) -> Result<Option<String>, DataError> {
        match self.result.as_ref().map(Receiver::try_recv) {
            None | Some(Err(TryRecvError::Empty)) => Ok(None),
            Some(Ok(result)) => self.over(result),
            Some(Err(TryRecvError::Disconnected)) => self.over(Ok(())),
        }
    }

    /// Waits until the check completes or `stopped` returns true; then as [`FileCheck::poll`].
    ///
    /// # Errors
    /// See [`FileCheck::poll`].
    pub fn wait(&mut self, stopped: impl Fn() -> bool) -> Result<Option<String>, DataError> {
        while let Some(result) = &self.result {
            match result.recv_timeout(PAUSE) {
                Ok(result) => return self.over(result),
                Err(RecvTimeoutError::Timeout) if stopped() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.over(Ok(())),
            }
        }
        Ok(None)
    }

    /// Bytes that are not verified yet.
    pub fn left(&self) -> u64 {
        let done = self.done.load(Ordering::Relaxed);
        let files = self.result.as_ref().map_or(0, |_| self.files.bytes());
        files.saturating_sub(done)
    }

    fn over(&mut self, result: Result<(), DataError>) -> Result<Option<String>, DataError> {
        self.result = None;
        let (files, bytes) = (self.files.len(), self.files.bytes());
        result.map(|()| {
            Some(format!(
                "verified {files} files of {bytes} bytes: all are whole"
            ))
        })
    }
}

impl Drop for FileCheck {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Gives the calling thread the lowest priority, on systems with per-thread priorities.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::process::setpriority_process(None, 19);
    }
}

//! Limits on connections: write timeouts, and which connection to close when there are too many.
//!
//! A connection that waits for a request or its body, or whose client does not read, may be closed at any
//! time to admit a new one. Clients that hold idle connections, send bodies slowly or never read their
//! responses therefore cannot lock out others.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep};

use crate::held_body::holding;

/// The activity of a connection.
#[derive(Debug)]
pub(crate) struct Activity {
    client: SocketAddr,
    /// Requests whose responses are not completely passed to the writer yet.
    answering: AtomicUsize,
    /// True while a request's body is being received.
    receiving: AtomicBool,
    /// True if the client has not accepted any output since [`Activity::since`].
    blocked: AtomicBool,
    /// The time of the last change, in milliseconds since `began`.
    since: AtomicU64,
    began: Instant,
    /// Wakes the connection's task to close it.
    close: Notify,
}

/// The time in milliseconds after which a connection with blocked output may be closed.
const BLOCKED_MILLIS: u64 = 2000;

impl Activity {
    fn changed(&self) {
        self.since.store(self.now(), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Sets whether a request's body is being received.
    pub fn receive(&self, receiving: bool) {
        self.receiving.store(receiving, Ordering::Relaxed);
        self.changed();
    }

    /// The client's address.
    pub fn client(&self) -> SocketAddr {
        self.client
    }

    /// The time since which the connection has been idle. `None` if it is in use.
    fn idle_since(&self) -> Option<u64> {
        let since = self.since.load(Ordering::Relaxed);
        if self.blocked.load(Ordering::Relaxed) {
            return (self.now().saturating_sub(since) >= BLOCKED_MILLIS).then_some(since);
        }
        let idle = self.answering.load(Ordering::Relaxed) == 0;
        (idle || self.receiving.load(Ordering::Relaxed)).then_some(since)
    }

    /// Waits until the connection should be closed.
    pub async fn closed(&self) {
        self.close.notified().await;
    }
}

/// The open connections of a server.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    all: Arc<Mutex<Vec<Arc<Activity>>>>,
    began: Instant,
}

impl Connections {
    pub fn new() -> Self {
        Self {
            all: Arc::default(),
            began: Instant::now(),
        }
    }

    /// Registers a new connection.
    pub fn open(&self, client: SocketAddr) -> Arc<Activity> {
        let activity = Arc::new(Activity {
            client,
            answering: AtomicUsize::new(0),
            receiving: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            since: AtomicU64::new(0),
            began: self.began,
            close: Notify::new(),
        });
        activity.changed();
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&activity));
        activity
    }

    /// Removes a connection that has ended.
    pub fn forget(&self, activity: &Arc<Activity>) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| !Arc::ptr_eq(other, activity));
    }

    /// Closes the connection that has been idle the longest. Returns false if none is idle.
    pub fn close_idlest(&self) -> bool {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = all.iter().enumerate();
        let idle = idle.filter_map(|(at, activity)| Some((activity.idle_since()?, at)));
        let Some((_, at)) = idle.min() else {
            return false;
        };
        // Remove it now, so it is not chosen again while it closes.
        all.swap_remove(at).close.notify_one();
        true
    }

    /// Closes the connections without a request: those that wait for one, and those that have sent a part of its head.
    pub fn close_unused(&self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|activity| {
            let is_used = activity.answering.load(Ordering::Relaxed) > 0;
            if !is_used {
                activity.close.notify_one();
            }
            is_used
        });
    }
}

/// Marks a request as being answered until the body of its response has been passed to the writer.
struct Answering(Arc<Activity>);

impl Answering {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.answering.fetch_add(1, Ordering::Relaxed);
        activity.changed();
        Self(Arc::clone(activity))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
        self.0.changed();
    }
}

/// Answers a request and marks the connection as in use meanwhile.
pub(crate) async fn answered<E>(
    activity: Arc<Activity>,
    mut request: Request,
    answer: impl AsyncFnOnce(Request) -> Result<Response, E>,
) -> Result<Response, E> {
    let answering = Answering::new(&activity);
    request.extensions_mut().insert(activity);
    let response = answer(request).await?;
    Ok(holding(response, answering))
}

/// A TCP stream with a write timeout.
pub(crate) struct TimedStream {
    stream: TcpStream,
    activity: Arc<Activity>,
    limit: Duration,
    /// Runs while there is output that the client does not accept.
    timer: Option<Pin<Box<Sleep>>>,
}

impl TimedStream {
    pub fn new(stream: TcpStream, activity: Arc<Activity>, limit: Duration) -> Self {
        Self {
            stream,
            activity,
            limit,
            timer: None,
        }
    }

    /// Passes on the result of a write, or an error if writing made no progress for too long.
    fn timed<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            if self.timer.take().is_some() {
                self.activity.blocked.store(false, Ordering::Relaxed);
                self.activity.changed();
            }
            return written;
        }
        let (activity, limit) = (&self.activity, self.limit);
        let timer = self.timer.get_or_insert_with(|| {
            activity.blocked.store(true, Ordering::Relaxed);
            activity.changed();
            Box::pin(sleep(limit))
        });
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.timed(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        // A TCP stream does not buffer, so a successful flush does not mean that the client accepted
        // anything.
        match flushed {
            Poll::Ready(_) => flushed,
            Poll::Pending => self.timed(context, flushed),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.timed(context, shut)
    }
}

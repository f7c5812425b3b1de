//! The handle of a request, and its waiting events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::task::{Context, Poll};

use emberlm_generate::EventKind;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{Command, Refusal};

/// A running or waiting request. Dropping it ends the request.
#[derive(Debug)]
pub struct Ticket {
    pub(super) number: u64,
    pub(super) events: UnboundedReceiver<(usize, EventKind)>,
    pub(super) backlog: Arc<Backlog>,
    pub(super) commands: Arc<Sender<Command>>,
    pub(super) _place: OwnedSemaphorePermit,
    pub(super) _user: Arc<()>,
}

/// The waiting events of a request.
#[derive(Debug)]
pub(super) struct Backlog {
    pub(super) events: AtomicUsize,
    /// The number of waiting events at which the request is paused; it continues at half of that.
    pub(super) limit: usize,
    pub(super) paused: AtomicBool,
    /// True if the request was ended because its events stayed unread.
    pub(super) is_given_up: AtomicBool,
}

impl Ticket {
    /// The next event with the index of its sample or text; `None` after the thread's end.
    pub async fn next(&mut self) -> Option<(usize, EventKind)> {
        let event = self.events.recv().await?;
        self.taken();
        Some(event)
    }

    /// [`Ticket::next`] for a task that polls several tickets.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, EventKind)>> {
        let polled = self.events.poll_recv(context);
        if let Poll::Ready(Some(_)) = polled {
            self.taken();
        }
        polled
    }

    /// The reason why there are no more events although the request has not ended.
    pub fn failure(&self) -> Refusal {
        match self.backlog.is_given_up.load(Ordering::SeqCst) {
            true => Refusal::Unread,
            false => Refusal::Gone,
        }
    }

    /// Counts a consumed event, and lets a paused request continue.
    fn taken(&self) {
        let before = self.backlog.events.fetch_sub(1, Ordering::SeqCst);
        if before <= self.backlog.limit / 2
            && self.backlog.paused.load(Ordering::SeqCst)
            && self.backlog.paused.swap(false, Ordering::SeqCst)
        {
            // A thread that has ended has ended the request.
            let _ = self.commands.send(Command::Resume(self.number));
        }
    }

    /// Cancels a sample. Events from before may still follow.
    pub fn cancel_sample(&self, sample: usize) {
        // A thread that has ended has ended the sample.
        let _ = self
            .commands
            .send(Command::CancelSample(self.number, sample));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // A thread that has ended has ended the request.
        let _ = self.commands.send(Command::Cancel(self.number));
    }
}

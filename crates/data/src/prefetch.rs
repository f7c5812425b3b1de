//! Prefetching: computes items on worker threads and returns them in order.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

/// The maximum number of finished items waiting per thread.
const READY: usize = 4;

/// An endless iterator over `make(0)`, `make(1)`, …. The items do not depend on the number of threads.
///
/// With `n` threads, thread `i` computes the items `i`, `i + n`, `i + 2n`, … and blocks while [`READY`] of its items
/// are waiting. Dropping the iterator stops each thread after its current item.
pub(crate) struct Prefetch<T> {
    make: Box<dyn Fn(u64) -> T>,
    threads: Vec<Worker<T>>,
    next: u64,
}

struct Worker<T> {
    ready: Receiver<T>,
    thread: JoinHandle<()>,
}

impl<T: Send + 'static> Prefetch<T> {
    /// Starts the threads. With `threads` 0, or if the system cannot create threads, items are computed on demand.
    pub(crate) fn new(threads: usize, make: impl Fn(u64) -> T + Clone + Send + 'static) -> Self {
        let start = |first: usize| {
            let (send, ready) = sync_channel(READY);
            let make = make.clone();
            let work = move || {
                let mut indices = (first as u64..).step_by(threads);
                // A failed send means that the iterator was dropped.
                while indices.next().is_some_and(|at| send.send(make(at)).is_ok()) {}
            };
            let thread = Builder::new().name("loader".to_owned()).spawn(work)?;
            Ok(Worker { ready, thread })
        };
        let started: std::io::Result<Vec<_>> = (0..threads).map(start).collect();
        Self {
            make: Box::new(make),
            threads: started.unwrap_or_default(),
            next: 0,
        }
    }
}

impl<T> Iterator for Prefetch<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let at = self.next;
        self.next += 1;
        if self.threads.is_empty() {
            return Some((self.make)(at));
        }
        let turn = (at % self.threads.len() as u64) as usize;
        if let Ok(made) = self.threads[turn].ready.recv() {
            return Some(made);
        }
        // The thread must have panicked: propagate the panic.
        let panicked = self.threads.swap_remove(turn).thread.join();
        self.threads.clear();
        match panicked {
            Err(panic) => resume_unwind(panic),
            Ok(()) => None,
        }
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        let threads: Vec<JoinHandle<()>> = self
            .threads
            .drain(..)
            .map(|Worker { ready, thread }| {
                drop(ready);
                thread
            })
            .collect();
        for thread in threads {
            // Ignore a panic in an item that was never received.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn items_do_not_depend_on_the_number_of_threads() {
        for threads in [0, 1, 2, 5] {
            let made = Prefetch::new(threads, |at| at * at);
            let expected = (0..1000).map(|at| at * at);
            assert!(made.take(1000).eq(expected), "{threads} threads");
        }
    }

    #[test]
    fn threads_block_when_ahead_and_end_with_the_iterator() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let mut ahead = Prefetch::new(3, move |at| {
            count.fetch_add(1, Ordering::SeqCst);
            at
        });
        assert_eq!(ahead.next(), Some(0));
        drop(ahead);
        // The closures, and therefore the threads, were dropped.
        assert_eq!(Arc::strong_count(&made), 1);
        assert!(made.load(Ordering::SeqCst) <= 3 * (READY + 2));
    }

    #[test]
    #[should_panic(expected = "at three")]
    fn panics_propagate() {
        let made = Prefetch::new(2, |at| if at == 3 { panic!("at three") } else { at });
        made.take(10).for_each(drop);
    }
}

//! Things made ahead by other threads, in order.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

/// The most items that each thread has ready, besides the one in progress.
const READY: usize = 4;

/// An endless iterator over `make(0)`, `make(1)`, …: the same whatever the number of threads.
///
/// Of `n` threads, thread `i` makes what comes at `i`, `i + n`, `i + 2n`, … and waits where [`READY`] of them are waiting
/// to be taken. All of them end with the iterator, which waits for what they are making.
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
    /// Begins to make things; without threads (or where the system gives none) they are made when they are taken.
    pub(crate) fn new(threads: usize, make: impl Fn(u64) -> T + Clone + Send + 'static) -> Self {
        let start = |first: usize| {
            let (send, ready) = sync_channel(READY);
            let make = make.clone();
            let work = move || {
                let mut places = (first as u64..).step_by(threads);
                // What is sent to nobody means that the iterator has ended.
                while places.next().is_some_and(|at| send.send(make(at)).is_ok()) {}
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
        // It has ended without having been told to.
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
            // A panic in what nobody takes any more is of no interest.
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
    fn any_number_of_threads_gives_the_same_in_order() {
        for threads in [0, 1, 2, 5] {
            let made = Prefetch::new(threads, |at| at * at);
            let expected = (0..1000).map(|at| at * at);
            assert!(made.take(1000).eq(expected), "{threads} threads");
        }
    }

    #[test]
    fn threads_end_with_the_iterator_and_wait_before() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let mut ahead = Prefetch::new(3, move |at| {
            count.fetch_add(1, Ordering::SeqCst);
            at
        });
        assert_eq!(ahead.next(), Some(0));
        drop(ahead);
        // The closures are gone, and with them the threads.
        assert_eq!(Arc::strong_count(&made), 1);
        assert!(made.load(Ordering::SeqCst) <= 3 * (READY + 2));
    }

    #[test]
    #[should_panic(expected = "at three")]
    fn a_panic_comes_through() {
        let made = Prefetch::new(2, |at| if at == 3 { panic!("at three") } else { at });
        made.take(10).for_each(drop);
    }
}

//! The blocking work of requests: parsing large bodies, rendering templates, encoding texts and writing large answers.
//!
//! Few jobs run at the same time, and a limited number of requests waits for one. Short texts do not wait behind long ones.
//! A request that ends, because its client has left or its time is over, leaves the queue, and its running job can see that
//! nobody waits for the result.

use std::sync::{Arc, Weak};

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Threads for jobs.
pub(crate) const THREADS: usize = 2 * RUNNING;

/// The jobs of a lane that run at the same time.
const RUNNING: usize = 2;
/// The requests of a lane that wait for a job or run one.
pub(crate) const MAX_PENDING: usize = 256;
/// The most bytes of a short text.
const SHORT: usize = 32 << 10;

/// A job that was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    /// Too many requests wait for a job.
    #[error("too many long requests wait to be read; try again later")]
    Full,
    /// The job has panicked.
    #[error("the request could not be read")]
    Failed,
}

/// Runs jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    short: Lane,
    long: Lane,
}

#[derive(Debug)]
struct Lane {
    pending: Semaphore,
    running: Arc<Semaphore>,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            pending: Semaphore::new(MAX_PENDING),
            running: Arc::new(Semaphore::new(RUNNING)),
        }
    }
}

/// Reports to a job whether somebody waits for its result.
#[derive(Debug)]
pub(crate) struct Interest(Weak<()>);

impl Interest {
    /// Returns false once nobody waits.
    pub fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl Jobs {
    /// Runs a job about a text of `bytes` on another thread.
    ///
    /// # Errors
    /// Too many requests wait, or the job panics.
    pub async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        job: impl FnOnce(&Interest) -> T + Send + 'static,
    ) -> Result<T, JobError> {
        let lane = match bytes <= SHORT {
            true => &self.short,
            false => &self.long,
        };
        let _pending = lane.pending.try_acquire().map_err(|_| JobError::Full)?;
        lane.run(job).await
    }

    /// Runs a long job for a request that has an answer already, and is therefore not refused.
    ///
    /// # Errors
    /// The job panics.
    pub async fn finish<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JobError> {
        self.long.run(|_| job()).await
    }
}

impl Lane {
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Interest) -> T + Send + 'static,
    ) -> Result<T, JobError> {
        let turn = Arc::clone(&self.running).acquire_owned().await;
        let turn = turn.map_err(|_| JobError::Failed)?;
        // Dropped with this future.
        let waiting = Arc::new(());
        let interest = Interest(Arc::downgrade(&waiting));
        let done = spawn_blocking(move || {
            let done = job(&interest);
            // A job that nobody waits for keeps its turn too.
            drop(turn);
            done
        });
        let done = done.await.map_err(|_| JobError::Failed);
        drop(waiting);
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use futures_util::future::{join_all, poll_immediate};

    use super::*;

    fn wait<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    }

    /// Jobs of the long lane that block until the sender is dropped.
    fn blocked(
        jobs: &Jobs,
    ) -> (
        mpsc::Sender<()>,
        Vec<impl Future<Output = Result<bool, JobError>>>,
    ) {
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(std::sync::Mutex::new(released));
        let job = |_| {
            let released = Arc::clone(&released);
            jobs.run(SHORT + 1, move |interest| {
                let _ = released.lock().unwrap().recv();
                interest.is_there()
            })
        };
        (release, (0..RUNNING).map(job).map(Box::pin).collect())
    }

    #[test]
    fn short_jobs_do_not_wait_for_long_ones_and_requests_that_end_leave_the_queue() {
        let jobs = Jobs::default();
        wait(async {
            let (release, mut running) = blocked(&jobs);
            for job in &mut running {
                assert!(poll_immediate(job).await.is_none());
            }
            assert_eq!(jobs.run(1, |_| 5).await.unwrap(), 5);
            let count = MAX_PENDING - RUNNING;
            let mut queue: Vec<_> = (0..count)
                .map(|_| Box::pin(jobs.run(SHORT + 1, |_| true)))
                .collect();
            for job in &mut queue {
                assert!(poll_immediate(job).await.is_none());
            }
            let full = jobs.run(SHORT + 1, |_| true).await;
            assert!(matches!(full, Err(JobError::Full)));
            // Half of the clients leave.
            queue.truncate(count / 2);
            let mut next = Box::pin(jobs.run(SHORT + 1, |_| true));
            assert!(poll_immediate(&mut next).await.is_none());
            drop(release);
            let mut done = join_all(running)
                .await
                .into_iter()
                .chain(join_all(queue).await);
            assert!(done.all(Result::unwrap));
            assert!(next.await.unwrap());
        });
    }

    #[test]
    fn a_running_job_sees_that_nobody_waits() {
        let jobs = Jobs::default();
        let (sender, receiver) = mpsc::channel();
        wait(async {
            let mut job = Box::pin(jobs.run(1, move |interest| {
                while interest.is_there() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                sender.send(()).unwrap();
            }));
            assert!(poll_immediate(&mut job).await.is_none());
            drop(job);
        });
        receiver.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}

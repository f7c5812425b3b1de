//! A team of threads for sequences of operations, as in a decoding step or a training step.
//!
//! A step of a small model has hundreds of operations of some microseconds each. To wake up a sleeping thread takes longer
//! than many of them. Within [`lead`], the helpers of the team therefore wait for the next operation in a loop, and
//! [`super::parallel::for_each`] hands tasks to them through a few atomic variables. A helper that has waited for
//! `PATIENCE` sleeps until the next operation.
//!
//! The tasks are divided into shares of consecutive tasks, one per thread, so that each thread reads memory in sequence. A
//! thread that has finished its share continues with what is left of the others.
//!
//! There is one team per process. A second concurrent step, and an operation within a task, use rayon's pool.

use std::cell::{Cell, UnsafeCell};
use std::hint::spin_loop;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The time that a helper waits for an operation before it sleeps.
const PATIENCE: Duration = Duration::from_micros(500);
/// The number of checks between two looks at the clock, and the number of checks before a thread that waits for
/// another yields the CPU, which may be shared with other processes.
const CHECKS: u32 = 256;
/// The bit of [`Team::state`] that is set while helpers may join an operation. The bits below count the helpers in it,
/// and those above count operations.
const OPEN: u64 = 1 << 16;

/// The maximum number of shares into which the tasks of an operation are divided.
const SHARES: usize = 16;

thread_local! {
    /// The team, while the thread leads it and no operation runs.
    static LED: Cell<Option<&'static Team>> = const { Cell::new(None) };
}

/// Runs a sequence of operations whose tasks are shared with the team.
pub fn lead<R>(operations: impl FnOnce() -> R) -> R {
    let helpers = rayon::current_num_threads().saturating_sub(1);
    let Some((team, _held)) = (helpers > 0).then(|| Team::acquire(helpers)).flatten() else {
        return operations();
    };
    /// Ends the leadership even if an operation panics.
    struct Led;
    impl Drop for Led {
        fn drop(&mut self) {
            LED.set(None);
        }
    }
    LED.set(Some(team));
    let _led = Led;
    operations()
}

/// Runs `task(0)`, …, `task(count - 1)` on the team that the thread leads. Returns false if it leads none.
pub(super) fn share(count: usize, task: &(dyn Fn(usize) + Sync)) -> bool {
    let Some(team) = LED.take() else {
        return false;
    };
    let result = team.run(count, task);
    LED.set(Some(team));
    if let Err(panic) = result {
        resume_unwind(panic);
    }
    true
}

/// The task of an operation. The leader keeps it alive until no helper is in the operation.
type Task = &'static (dyn Fn(usize) + Sync);

/// The state that leader and helpers share. Each group of fields that are written at different times has its own cache
/// line.
struct Team {
    state: Line<AtomicU64>,
    /// The next task of each share of the current operation.
    next: [Line<AtomicUsize>; SHARES],
    operation: Line<Operation>,
    helpers: OnceLock<Vec<(Thread, &'static AtomicBool)>>,
    held: Mutex<()>,
}

/// The current operation: the number of tasks, and the task.
struct Operation {
    task: UnsafeCell<Option<(usize, Task)>>,
    panicked: AtomicBool,
}

// SAFETY: the leader writes the task only while no helper can be in an operation: `OPEN` is not set and no helper is
// counted. Helpers read it only after they have been counted while `OPEN` was set.
unsafe impl Sync for Operation {}

#[repr(align(128))]
struct Line<T>(T);

static TEAM: Team = Team {
    state: Line(AtomicU64::new(0)),
    next: [const { Line(AtomicUsize::new(0)) }; SHARES],
    operation: Line(Operation {
        task: UnsafeCell::new(None),
        panicked: AtomicBool::new(false),
    }),
    helpers: OnceLock::new(),
    held: Mutex::new(()),
};

/// The tasks of one of `shares` shares of `count` tasks.
fn share_of(count: usize, share: usize, shares: usize) -> Range<usize> {
    count * share / shares..count * (share + 1) / shares
}

impl Team {
    /// Returns the team, which has `helpers` helpers if this call starts it; `None` if it is in use, or has another
    /// number of helpers.
    fn acquire(helpers: usize) -> Option<(&'static Self, MutexGuard<'static, ()>)> {
        let held = match TEAM.held.try_lock() {
            Ok(held) => held,
            // The mutex protects no data.
            Err(TryLockError::Poisoned(held)) => PoisonError::into_inner(held),
            Err(TryLockError::WouldBlock) => return None,
        };
        let started = TEAM.helpers.get_or_init(|| start(helpers));
        (started.len() == helpers).then_some((&TEAM, held))
    }

    /// Wakes up those of the first `count` helpers that sleep.
    fn wake(&self, count: usize) {
        for (thread, asleep) in self.helpers.get().into_iter().flatten().take(count) {
            if asleep.load(Ordering::Relaxed) && asleep.swap(false, Ordering::AcqRel) {
                thread.unpark();
            }
        }
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) -> thread::Result<()> {
        // SAFETY: only the lifetime changes. The reference is used by helpers that are counted in the operation, and
        // this function returns after the last of them has left.
        let task = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Task>(task) };
        // SAFETY: no helper is in an operation; see `Operation`.
        unsafe { *self.operation.0.task.get() = Some((count, task)) };
        let shares = self.shares();
        for share in 0..shares {
            let first = share_of(count, share, shares).start;
            self.next[share].0.store(first, Ordering::Relaxed);
        }
        self.state.0.fetch_add(OPEN, Ordering::Release);
        self.wake(count.saturating_sub(1));
        let result = catch_unwind(AssertUnwindSafe(|| self.work(0, count, task)));
        // A helper that has not joined by now has nothing left to do. Adding `OPEN` again clears the bit and carries
        // into the number of operations.
        self.state.0.fetch_add(OPEN, Ordering::Relaxed);
        let mut checks = 0;
        while !self.state.0.load(Ordering::Acquire).is_multiple_of(OPEN) {
            wait(&mut checks);
        }
        let panicked = self.operation.0.panicked.swap(false, Ordering::Relaxed);
        match (result, panicked) {
            (Ok(()), true) => Err(Box::new("a task of an operation panicked")),
            (result, _) => result,
        }
    }

    /// The number of shares of an operation: one per thread, up to a limit.
    fn shares(&self) -> usize {
        let helpers = self.helpers.get().map_or(0, Vec::len);
        (helpers + 1).min(SHARES)
    }

    /// Runs the tasks of the thread's share in order, and then those that are left of the others.
    fn work(&self, thread: usize, count: usize, task: Task) {
        let shares = self.shares();
        for share in (0..shares).map(|at| (thread + at) % shares) {
            let end = share_of(count, share, shares).end;
            loop {
                let number = self.next[share].0.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    break;
                }
                task(number);
            }
        }
    }

    /// Joins the current operation as the thread `thread`, if it is open and not `last`, and works on it. Returns its number.
    fn join(&self, thread: usize, last: u64) -> Option<u64> {
        let state = self.state.0.load(Ordering::Relaxed);
        if state & OPEN == 0 || state / OPEN == last {
            return None;
        }
        let joined = (Ordering::Acquire, Ordering::Relaxed);
        let exchange = self
            .state
            .0
            .compare_exchange(state, state + 1, joined.0, joined.1);
        exchange.ok()?;
        // SAFETY: this thread is counted in the open operation; see `Operation`.
        if let Some((count, task)) = unsafe { *self.operation.0.task.get() } {
            let result = catch_unwind(AssertUnwindSafe(|| self.work(thread, count, task)));
            if result.is_err() {
                self.operation.0.panicked.store(true, Ordering::Relaxed);
            }
        }
        self.state.0.fetch_sub(1, Ordering::Release);
        Some(state / OPEN)
    }
}

/// Starts the helpers. If the system cannot start all of them, there are fewer.
fn start(helpers: usize) -> Vec<(Thread, &'static AtomicBool)> {
    let start = |number| {
        let asleep: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let builder = thread::Builder::new().name(format!("helper-{number}"));
        let handle = builder.spawn(move || help(number + 1, asleep)).ok()?;
        Some((handle.thread().clone(), asleep))
    };
    (0..helpers).filter_map(start).collect()
}

/// The loop of a helper, which is thread `thread` of the team; the leader is the first.
fn help(thread: usize, asleep: &AtomicBool) {
    let mut last = 0;
    loop {
        let (mut checks, mut since) = (0u32, Instant::now());
        while since.elapsed() < PATIENCE {
            for _ in 0..CHECKS {
                if let Some(operation) = TEAM.join(thread, last) {
                    last = operation;
                    since = Instant::now();
                    checks = 0;
                }
                spin_loop();
            }
            checks = checks.wrapping_add(1);
            if checks > 8 {
                thread::yield_now();
            }
        }
        asleep.store(true, Ordering::Release);
        while asleep.load(Ordering::Acquire) {
            thread::park();
        }
    }
}

/// Waits briefly; a thread that has waited for long yields the CPU.
fn wait(checks: &mut u32) {
    *checks += 1;
    match *checks % CHECKS {
        0 => thread::yield_now(),
        _ => spin_loop(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::cpu::parallel::for_each;

    fn pool<R: Send>(operations: impl FnOnce() -> R + Send) -> R {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build();
        pool.unwrap().install(operations)
    }

    #[test]
    fn team_runs_every_task_once() {
        pool(|| {
            lead(|| {
                for operation in 0..20_000 {
                    let count = 1 + operation % 9;
                    let runs: Vec<AtomicU32> = (0..count).map(|_| AtomicU32::new(0)).collect();
                    for_each(count, |task| {
                        runs[task].fetch_add(1, Ordering::Relaxed);
                        // An operation within a task.
                        if operation % 1000 == 0 {
                            for_each(3, |_| {
                                runs[task].fetch_add(10, Ordering::Relaxed);
                            });
                        }
                    });
                    let expected = if operation % 1000 == 0 { 31 } else { 1 };
                    assert!(
                        runs.iter()
                            .all(|runs| runs.load(Ordering::Relaxed) == expected)
                    );
                }
            });
        });
    }

    #[test]
    fn panic_of_a_task_reaches_the_leader_and_the_team_stays_usable() {
        pool(|| {
            for _ in 0..100 {
                let result = catch_unwind(|| {
                    lead(|| {
                        for_each(8, |task| {
                            // Leaves other tasks to the helpers.
                            thread::sleep(Duration::from_micros(10));
                            assert!(task < 5);
                        });
                    });
                });
                assert!(result.is_err());
                let sum = AtomicU32::new(0);
                lead(|| {
                    for_each(8, |task| {
                        sum.fetch_add(task as u32, Ordering::Relaxed);
                    });
                });
                assert_eq!(sum.into_inner(), 28);
            }
        });
    }
}

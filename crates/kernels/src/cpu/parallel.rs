//! Distribution of work over threads.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::team;

/// Runs `task(0)`, …, `task(count - 1)` in any order, on the threads of the [`team`] that the thread leads or of rayon's
/// pool.
pub fn for_each(count: usize, task: impl Fn(usize) + Send + Sync) {
    match count {
        0 => {}
        1 => task(0),
        _ if team::share(count, &task) => {}
        _ => (0..count).into_par_iter().with_max_len(1).for_each(task),
    }
}

/// An iterator over parts of operands, each for a task.
pub trait Tasks: Iterator<Item: Send> + Sized {
    /// Runs `task` for each part like [`for_each`].
    fn for_each_task(self, task: impl Fn(Self::Item) + Send + Sync) {
        let parts: Vec<_> = self.map(|part| Mutex::new(Some(part))).collect();
        for_each(parts.len(), |at| {
            let part = parts[at]
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            part.into_iter().for_each(&task);
        });
    }
}

impl<I: Iterator<Item: Send>> Tasks for I {}

/// Splits `0..len` into ranges of length `step`; the last one may be shorter.
pub fn ranges(len: usize, step: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    (0..len)
        .step_by(step.max(1))
        .map(move |start| start..len.min(start + step))
}

/// The number of elements below which a pass stays on the calling thread: starting other threads takes several
/// microseconds.
const SINGLE_THREADED: usize = 32 * 1024;

/// The minimum number of elements per task: enough to amortize its start, and few enough for a core's own cache.
const TASK: usize = 16 * 1024;

/// The maximum number of tasks per pass, since each holds its own partial sums.
const TASKS: usize = 128;

/// The number of rows of `width` elements per task, at least one. It depends only on the shape.
pub(super) fn rows_per_task(rows: usize, width: usize) -> usize {
    if rows.saturating_mul(width) < SINGLE_THREADED {
        return rows.max(1);
    }
    (TASK / width.max(1)).max(rows.div_ceil(TASKS)).max(1)
}

/// [`rows_per_task`] for tasks that hold sums as wide as a row. There are fewer of them, because one thread adds
/// up their sums.
pub(super) fn rows_per_sum(rows: usize, width: usize) -> usize {
    rows_per_task(rows, width).max(rows.div_ceil(TASKS / 4))
}

/// The number of rows of a weight `[rows, width]` per task of a product with few rows of x: at least `least` elements, in
/// about 32 tasks.
pub(super) fn weight_rows_per_task([rows, width]: [usize; 2], least: usize) -> usize {
    const TASKS: usize = 32;
    let elements = (rows * width).div_ceil(TASKS).max(least);
    elements.div_ceil(width.max(1)).max(1)
}

/// The number of elements per task: all `len`, or a multiple of 4096.
pub(super) fn elements_per_task(len: usize) -> usize {
    if len < SINGLE_THREADED {
        return len.max(1);
    }
    TASK.max(len.div_ceil(TASKS).next_multiple_of(4096))
}

/// The number of rows of `width` elements in `len` elements.
///
/// # Panics
/// Panics if `len` is not a multiple of `width`.
#[track_caller]
pub(super) fn rows_of(len: usize, width: usize) -> usize {
    assert!(
        width > 0 && len.is_multiple_of(width),
        "the elements are not whole rows"
    );
    len / width
}

/// The address of memory that tasks write concurrently, each to its own elements.
#[derive(Clone, Copy, Debug)]
pub struct Start<T>(pub *mut T);

// SAFETY: it is only an address; code that dereferences it must ensure that no other task accesses the same
// elements.
unsafe impl<T: Send> Send for Start<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Start<T> {}

impl<T> Start<T> {
    /// The address of element `index`.
    #[inline(always)]
    pub fn at(self, index: usize) -> *mut T {
        self.0.wrapping_add(index)
    }
}

/// Memory that tasks write concurrently, each to its own range.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    data: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a pointer into memory that is borrowed for 'a; callers of `part` guarantee that no two ranges
// that are alive at the same time overlap.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// Shares `data`.
    pub fn new(data: &'a mut [T]) -> Self {
        Self {
            start: data.as_mut_ptr(),
            len: data.len(),
            data: PhantomData,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a range of the memory.
    ///
    /// # Safety
    /// Nothing else reads or writes the elements while the slice is alive.
    ///
    /// # Panics
    /// Panics if the range is out of bounds.
    pub unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "the part leaves its memory"
        );
        // SAFETY: the range is within memory that is borrowed for 'a, and the caller guarantees exclusive access
        // to it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// The address of element `index`, for strided matrices.
    ///
    /// # Panics
    /// Panics if the element is out of bounds.
    pub fn at(&self, index: usize) -> *mut T {
        assert!(index < self.len, "the element leaves its memory");
        // SAFETY: the element is within the allocation.
        unsafe { self.start.add(index) }
    }
}

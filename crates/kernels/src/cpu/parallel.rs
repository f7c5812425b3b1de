//! Work on all threads.

use std::marker::PhantomData;
use std::ops::Range;

use rayon::prelude::*;

/// Runs `task(0)`, …, `task(count - 1)` on the threads of rayon's pool, in any order.
pub fn for_each(count: usize, task: impl Fn(usize) + Send + Sync) {
    match count {
        0 => {}
        1 => task(0),
        _ => (0..count).into_par_iter().with_max_len(1).for_each(task),
    }
}

/// `0..len` in ranges of `step`, the last one shorter.
pub fn ranges(len: usize, step: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    (0..len)
        .step_by(step.max(1))
        .map(move |start| start..len.min(start + step))
}

/// Elements below which a pass stays on the calling thread: handing work to others costs some microseconds.
const ALONE: usize = 32 * 1024;

/// Elements of one task at least: enough to hide its start, few enough to stay in a core's own cache.
const TASK: usize = 16 * 1024;

/// Tasks of one pass at most: each holds its own partial sums.
const TASKS: usize = 128;

/// The number of `rows` rows of `width` elements that one task takes, by the shape only: at least one.
pub(super) fn rows_per_task(rows: usize, width: usize) -> usize {
    if rows.saturating_mul(width) < ALONE {
        return rows.max(1);
    }
    (TASK / width.max(1)).max(rows.div_ceil(TASKS)).max(1)
}

/// [`rows_per_task`] where each task holds sums as wide as a row: fewer tasks, since their sums are added up by one.
pub(super) fn rows_per_sum(rows: usize, width: usize) -> usize {
    rows_per_task(rows, width).max(rows.div_ceil(TASKS / 4))
}

/// The number of `len` elements that one task takes: all of them, or a multiple of 4096.
pub(super) fn elements_per_task(len: usize) -> usize {
    if len < ALONE {
        return len.max(1);
    }
    TASK.max(len.div_ceil(TASKS).next_multiple_of(4096))
}

/// The number of rows of `width` elements.
///
/// # Panics
/// Panics if they are not whole rows.
#[track_caller]
pub(super) fn rows_of(len: usize, width: usize) -> usize {
    assert!(
        width > 0 && len.is_multiple_of(width),
        "the elements are not whole rows"
    );
    len / width
}

/// The start of memory that tasks write at the same time, each its own elements of it.
#[derive(Clone, Copy, Debug)]
pub struct Start<T>(pub *mut T);

// SAFETY: only an address; whoever reads or writes there promises that no other task writes the same elements.
unsafe impl<T: Send> Send for Start<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Start<T> {}

impl<T> Start<T> {
    /// The address of an element.
    #[inline(always)]
    pub fn at(self, index: usize) -> *mut T {
        self.0.wrapping_add(index)
    }
}

/// Memory that tasks write at the same time, each its own part.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    data: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a pointer into memory that is borrowed for 'a; whoever reaches through it promises that no two parts
// that are alive at once overlap.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// All of `data`.
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

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part.
    ///
    /// # Safety
    /// While it lives nothing else reads or writes its elements.
    ///
    /// # Panics
    /// Panics if the range ends outside.
    pub unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "the part leaves its memory"
        );
        // SAFETY: the range lies within memory that is borrowed for 'a, and the caller promises exclusive access to it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// The address of an element, for a matrix of separate parts.
    ///
    /// # Panics
    /// Panics if it lies outside.
    pub fn at(&self, index: usize) -> *mut T {
        assert!(index < self.len, "the element leaves its memory");
        // SAFETY: the element lies within the allocation.
        unsafe { self.start.add(index) }
    }
}

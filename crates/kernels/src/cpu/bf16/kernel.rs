//! The interface of a kernel: the layout of its panels, and the product of two of them.

use super::element::Element;
use super::pack::{Factor, Place};

/// A kernel. A panel consists of units: `K` adjacent k of one row of A or column of B. Panels of B are
/// `[units, COLUMNS]`; those of A have the kernel's own layout.
///
/// # Safety
/// All functions require the CPU's support for the kernel's instructions.
pub trait Kernel {
    /// The state of a thread that multiplies.
    type Prepared;

    /// The number of adjacent k in a unit: 2 in bfloat16, and 1 in f32.
    const K: usize;
    /// The number of rows of a panel of A.
    const ROWS: usize;
    /// The number of columns of a panel of B.
    const COLUMNS: usize;
    /// The number of units of a panel is a multiple of this number. Units beyond the last k are zero.
    const UNITS: usize;
    /// True if a panel of A stays in the L1 cache while panels of B are read, and false for the opposite.
    const KEEPS_A: bool;
    /// The rows and columns of C per task.
    const TASK: [usize; 2];
    /// Those of small products, for enough tasks.
    const SMALL_TASK: [usize; 2];

    /// Prepares the thread for [`Self::multiply`], until the value is dropped.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn prepare() -> Self::Prepared;

    /// Packs rows of A.
    ///
    /// # Safety
    /// See the trait. The operand's elements are readable, and `to` has space for the panels.
    unsafe fn pack_a(from: Factor<f32>, to: Place);

    /// Packs columns of B.
    ///
    /// # Safety
    /// As [`Self::pack_a`].
    unsafe fn pack_b<E: Element>(from: Factor<E>, to: Place);

    /// `C (+)= A B` for one panel of A and one of B.
    ///
    /// # Safety
    /// See the trait. The thread is prepared, the panels contain `units` units and are aligned to 64 bytes (that of A
    /// only if its layout is), and the tile's elements are writable (and readable, if it accumulates).
    unsafe fn multiply(units: usize, a: *const u32, b: *const u32, c: Tile);
}

/// A tile of C.
#[derive(Clone, Copy)]
pub struct Tile {
    /// The address of the first element.
    pub start: *mut f32,
    /// The stride of the rows.
    pub row_stride: usize,
    /// The stride of the columns.
    pub column_stride: usize,
    /// The number of rows, at most [`Kernel::ROWS`].
    pub rows: usize,
    /// The number of columns, at most [`Kernel::COLUMNS`].
    pub columns: usize,
    /// True to add the product to the tile instead of overwriting it.
    pub accumulate: bool,
}

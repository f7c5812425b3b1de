//! Products with many rows of x by the tile registers of x86-64 (AMX-INT8).
//!
//! A register of 16 rows of x is multiplied with one of the levels of 16 rows of W, for 32 elements with common scales at a
//! time. The 16 × 16 sums are stored, scaled and added as by [`super::panel`], in the same order, so that the results have
//! the same bits. Formats with scales for 16 elements are not faster by tile registers, since most of the time goes to the
//! scales.

use std::arch::asm;
use std::arch::x86_64::{
    _mm512_cvtepi32_ps, _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_mul_ps, _mm512_set1_ps,
    _mm512_setzero_ps,
};
use std::ops::Range;

use super::layout;
use super::load::{floats, integers, put_floats};
use super::panel::{GROUPS, Line, Panel};
use super::{Rounded, SUB, vnni};
use crate::PackedFormat;
use crate::cpu::amx::{self, Configuration, Configured, Shape};
use crate::cpu::parallel::{self, Shared};

/// Rows of x per register, and rows of W per line of a panel.
pub(super) const ROWS: usize = 16;
/// Elements of x that are stored together.
const STEP: usize = 2 * SUB;
/// Lines of four levels per step.
const FOUR: usize = STEP / 4;
/// Sub-blocks per step.
const SUBS: usize = STEP / SUB;
/// The fewest rows that a register is used for, rather than instructions for each row.
const LEAST: usize = 12;
/// The number of steps whose products are stored before they are used.
const BATCH: usize = 8;

/// Returns true if this CPU has the instructions, and permits their use.
pub(super) fn supported() -> bool {
    vnni::supported() && amx::permitted(amx::Products::Int8)
}

/// Rows of x in the order of the registers.
#[derive(Default)]
pub(super) struct Tiles {
    /// `[rows / 16, k / 32]`.
    steps: Vec<Step>,
    /// `k / 32`.
    per_row: usize,
    /// The number of rows of x that are multiplied by tile registers.
    rows: usize,
}

/// 32 elements of 16 rows of x.
#[derive(Clone)]
#[repr(align(64))]
struct Step {
    values: [[i8; STEP]; ROWS],
    scales: [f32; ROWS],
    sums: [f32; ROWS],
}

impl Step {
    const ZERO: Self = Self {
        values: [[0; STEP]; ROWS],
        scales: [0.0; ROWS],
        sums: [0.0; ROWS],
    };
}

impl Tiles {
    /// Reorders rows of x for products with weights `[n, k]` of a format. There are none for formats with scales for 16
    /// elements.
    pub(super) fn new(x: &[Rounded], k: usize, format: PackedFormat) -> Self {
        if layout::is_fine(format as u8) {
            return Self::default();
        }
        let rest = x.len() % ROWS;
        let rows = x.len() - if rest < LEAST { rest } else { 0 };
        let per_row = k / STEP;
        let mut steps = vec![Step::ZERO; rows.div_ceil(ROWS) * per_row];
        let shared = Shared::new(&mut steps);
        parallel::for_each(rows.div_ceil(ROWS), |tile| {
            // SAFETY: each task writes its own steps.
            let steps = unsafe { shared.part(tile * per_row..(tile + 1) * per_row) };
            let x = &x[tile * ROWS..rows.min((tile + 1) * ROWS)];
            for (row, x) in x.iter().enumerate() {
                for (at, step) in steps.iter_mut().enumerate() {
                    step.set(row, x, at);
                }
            }
        });
        Self {
            steps,
            per_row,
            rows,
        }
    }

    /// The number of rows of x that are multiplied by tile registers. The others follow them.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// [`Self::rows`], and those that fill the last register.
    pub(super) fn padded_rows(&self) -> usize {
        self.rows.next_multiple_of(ROWS)
    }

    /// Configures the registers of this thread, if there are rows.
    ///
    /// # Safety
    /// They are [`supported`].
    pub(super) unsafe fn start(&self) -> Option<Running<'_>> {
        (self.rows > 0).then(|| Running {
            tiles: self,
            products: Box::new([const { [const { Products([[0; ROWS]; ROWS]) }; GROUPS] }; BATCH]),
            // SAFETY: guaranteed by the caller.
            _configured: unsafe { CONFIGURATION.load() },
        })
    }
}

/// A thread that multiplies.
pub(super) struct Running<'a> {
    tiles: &'a Tiles,
    products: Box<[[Products; GROUPS]; BATCH]>,
    _configured: Configured,
}

impl Running<'_> {
    /// Adds the products of the rows with some columns of W to the first [`Tiles::padded_rows`] sums.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
    pub(super) fn multiply(
        &mut self,
        panel: &Panel,
        columns: &Range<usize>,
        sums: &mut [Line<f32>],
    ) {
        let columns = columns.start / STEP..columns.end / STEP;
        let (sums, _) = sums[..self.tiles.padded_rows()].as_chunks_mut::<ROWS>();
        for (tile, sums) in sums.iter_mut().enumerate() {
            let steps = &self.tiles.steps[tile * self.tiles.per_row..][columns.clone()];
            for (batch, steps) in steps.chunks(BATCH).enumerate() {
                // SAFETY: the registers are configured as long as this exists.
                unsafe { multiply(panel, batch * BATCH, steps, &mut self.products, sums) };
            }
        }
    }
}

impl Step {
    /// Takes elements `32 at..32 at + 32` of row `row` of x.
    fn set(&mut self, row: usize, x: &Rounded, at: usize) {
        const PER_CHUNK: usize = super::CHUNK / STEP;
        let chunk = &x.chunks[at / PER_CHUNK];
        let first = at % PER_CHUNK * SUBS;
        let (steps, _) = chunk.values.as_flattened().as_chunks();
        self.values[row] = steps[at % PER_CHUNK];
        self.scales[row] = chunk.scales[first];
        // As in a panel: a sum of negative zeros is zero.
        self.sums[row] = 0.0 + chunk.sums[first] + chunk.sums[first + 1];
    }
}

/// Two registers for products, one for x and two for W.
static CONFIGURATION: Configuration = {
    let whole = Shape::WHOLE;
    let x = Shape {
        rows: ROWS as u8,
        row_bytes: STEP as u16,
    };
    let w = Shape {
        rows: FOUR as u8,
        row_bytes: 64,
    };
    Configuration::new([whole, whole, x, w, w, whole, whole, whole])
};

/// The products of 16 rows of x and 16 rows of W.
#[repr(align(64))]
struct Products([[i32; ROWS]; ROWS]);

/// Adds the products of 16 rows of x with a panel's rows, for at most [`BATCH`] steps.
///
/// All products are stored before the first is read: a load that follows a store of a tile register waits for it.
///
/// # Safety
/// The registers are configured.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
unsafe fn multiply(
    panel: &Panel,
    first: usize,
    steps: &[Step],
    products: &mut [[Products; GROUPS]; BATCH],
    sums: &mut [Line<f32>; ROWS],
) {
    for (at, (step, products)) in steps.iter().zip(&mut *products).enumerate() {
        let levels = &panel.levels[(first + at) * FOUR..][..FOUR];
        // SAFETY: the registers are configured, and their rows are within x, the levels and the products.
        unsafe { product(step, levels, products) };
    }
    for group in 0..GROUPS {
        let mut all = [_mm512_setzero_ps(); ROWS];
        for (all, sums) in all.iter_mut().zip(&*sums) {
            *all = floats(&sums.0[group]);
        }
        for (at, (step, products)) in steps.iter().zip(&*products).enumerate() {
            let sub = (first + at) * SUBS;
            let scales = floats(&panel.scales[sub].0[group]);
            let below = floats(&panel.subtracted[sub].0[group]);
            for row in 0..ROWS {
                let product = _mm512_cvtepi32_ps(integers(&products[group].0[row]));
                let scale = _mm512_mul_ps(scales, _mm512_set1_ps(step.scales[row]));
                let sum = _mm512_set1_ps(step.sums[row]);
                let all = &mut all[row];
                *all = _mm512_fnmadd_ps(below, sum, _mm512_fmadd_ps(product, scale, *all));
            }
        }
        for (all, sums) in all.iter().zip(&mut *sums) {
            put_floats(*all, &mut sums.0[group]);
        }
    }
}

/// Stores the products of 16 rows of x with the levels of a panel's rows.
///
/// # Safety
/// The registers are configured.
#[inline(always)]
unsafe fn product(x: &Step, levels: &[Line<u32>], products: &mut [Products; GROUPS]) {
    const { assert!(GROUPS == 2) };
    // SAFETY: the rows of a register are those of x, of a group of the levels, or of products.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tileloadd tmm2, [{x} + {x_stride}]",
            "tileloadd tmm3, [{levels} + {levels_stride}]",
            "tileloadd tmm4, [{levels} + {levels_stride} + 64]",
            "tdpbsud tmm0, tmm2, tmm3",
            "tdpbsud tmm1, tmm2, tmm4",
            "tilestored [{products} + {products_stride}], tmm0",
            "tilestored [{products} + {products_stride} + 1024], tmm1",
            x = in(reg) x.values.as_ptr(),
            x_stride = in(reg) STEP,
            levels = in(reg) levels.as_ptr(),
            levels_stride = in(reg) size_of::<Line<u32>>(),
            products = in(reg) products.as_mut_ptr(),
            products_stride = in(reg) size_of::<[i32; ROWS]>(),
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _,
            options(nostack, preserves_flags),
        );
    }
}

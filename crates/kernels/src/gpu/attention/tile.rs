//! Tiles of vectors in shared memory, and products of two tiles. Rounding to the type of the tiles is that of the
//! operands of a product; sums are in f32.
//!
//! A cube has 16 × 16 units. Unit `(y, x)` holds rows `y + 16 i` and columns `x + 16 j` of a result. Lines of a tile have
//! one more element than columns, so that the units that read a column use different banks of the memory.

use cubecl::prelude::*;

/// The units of a cube along rows and along columns.
pub const LANES: usize = 16;

/// The columns of a tile of scores.
pub const COLUMNS: usize = 64;

/// The elements of a vector that are in shared memory at once.
pub const CHUNK: usize = 32;

/// The columns of a chunk that a unit holds.
pub const CHUNK_COLUMNS: usize = CHUNK / LANES;

/// The columns of scores that a unit holds.
pub const SCORE_COLUMNS: usize = COLUMNS / LANES;

/// The length of a line of a tile of weights.
pub const WEIGHT_LINE: usize = COLUMNS + 1;

const CHUNK_LINE: usize = CHUNK + 1;

/// Vectors of consecutive tokens of one head, or of the heads of a group one after the other if [`Tile::stacked`].
#[derive(CubeType, Clone, Copy)]
pub struct Lines {
    /// The first element of the first vector.
    pub first: usize,
    /// The distance between heads.
    pub head: usize,
    /// The distance between tokens.
    pub token: usize,
    /// The tokens of a head.
    pub tokens: usize,
    /// The first vector of the tile.
    pub start: usize,
    /// The number of vectors of all tiles. Vectors of a tile from there on are 0.
    pub end: usize,
}

/// The sizes of the tiles of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// The rows of a tile of scores, a multiple of 16.
    pub rows: usize,
    /// The elements of a vector.
    pub head_dim: usize,
    /// True if the rows are the queries of all heads of a group.
    pub stacked: bool,
}

impl Tile {
    /// The tile for `head_dim` elements whose results, two of them in the backward pass, fit the registers of the units.
    pub const fn new(head_dim: usize) -> Self {
        Self {
            rows: if head_dim > 128 { 32 } else { 64 },
            head_dim,
            stacked: false,
        }
    }

    /// The rows that a unit holds.
    pub const fn unit_rows(self) -> usize {
        self.rows / LANES
    }

    /// The chunks of a vector.
    pub const fn chunks(self) -> usize {
        self.head_dim.div_ceil(CHUNK)
    }

    /// The scores that a unit holds.
    pub const fn unit_scores(self) -> usize {
        self.unit_rows() * SCORE_COLUMNS
    }

    /// The elements of the resulting vectors that a unit holds.
    pub const fn unit_sums(self) -> usize {
        self.chunks() * self.unit_rows() * CHUNK_COLUMNS
    }

    /// The elements of shared memory: the weights, in whose place the chunks are that the scores are computed from, then a
    /// chunk of the vectors that are summed.
    pub const fn memory(self) -> usize {
        self.vectors_at() + COLUMNS * CHUNK_LINE
    }

    const fn vectors_at(self) -> usize {
        let (weights, chunks) = (self.rows * WEIGHT_LINE, (self.rows + COLUMNS) * CHUNK_LINE);
        if weights > chunks { weights } else { chunks }
    }
}

/// The place of the operands `a` `[rows, depth]` and `b` `[depth, columns]` in shared memory, and of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Product {
    /// The rows that a unit holds.
    unit_rows: usize,
    /// The columns that a unit holds.
    unit_columns: usize,
    depth: usize,
    a_line: usize,
    b_at: usize,
    /// The distances in `b` along depth and between columns.
    b: [usize; 2],
}

/// Adds the product of two tiles to the unit's `sums` from `sums_at` on, row by row.
#[cube]
fn accumulate<N: Float>(
    tiles: &SharedMemory<N>,
    sums: &mut Array<f32>,
    #[comptime] sums_at: usize,
    #[comptime] product: Product,
) {
    let a_first = UNIT_POS_Y as usize * comptime!(product.a_line);
    let b_first = UNIT_POS_X as usize * comptime!(product.b[1]) + comptime!(product.b_at);
    let mut left = Array::<f32>::new(comptime!(product.unit_rows));
    for depth in 0..comptime!(product.depth) {
        #[unroll]
        for row in 0..comptime!(product.unit_rows) {
            let at = a_first + comptime!(row * LANES * product.a_line) + depth;
            left[row] = f32::cast_from(tiles[at]);
        }
        #[unroll]
        for column in 0..comptime!(product.unit_columns) {
            let at = b_first
                + comptime!(column * LANES * product.b[1])
                + depth * comptime!(product.b[0]);
            let right = f32::cast_from(tiles[at]);
            #[unroll]
            for row in 0..comptime!(product.unit_rows) {
                sums[comptime!(sums_at + row * product.unit_columns + column)] += left[row] * right;
            }
        }
    }
}

/// The first element of a vector.
#[cube]
fn vector(number: usize, lines: &Lines, #[comptime] stacked: bool) -> usize {
    if comptime!(stacked) {
        let (head, token) = (number / lines.tokens, number % lines.tokens);
        lines.first + head * lines.head + token * lines.token
    } else {
        lines.first + number * lines.token
    }
}

/// Copies a chunk of `count` vectors to shared memory.
#[cube]
fn load<T: Numeric, N: Numeric>(
    from: &Array<T>,
    lines: &Lines,
    depth: usize,
    tiles: &mut SharedMemory<N>,
    #[comptime] at: usize,
    #[comptime] count: usize,
    #[comptime] stacked: bool,
    #[comptime] head_dim: usize,
) {
    let column = UNIT_POS as usize % CHUNK;
    let first = UNIT_POS as usize / CHUNK;
    let step = comptime!(LANES * LANES / CHUNK);
    #[unroll]
    for n in 0..comptime!(count / step) {
        let line = first + comptime!(n * step);
        let token = lines.start + line;
        let mut value = N::from_int(0);
        if token < lines.end && depth + column < head_dim {
            value = N::cast_from(from[vector(token, lines, stacked) + depth + column]);
        }
        tiles[at + line * CHUNK_LINE + column] = value;
    }
}

/// Sets `scores` to the products of each of the row vectors with each of the column vectors.
#[cube]
pub fn products<T: Numeric, N: Float>(
    rows: &Array<T>,
    row_lines: &Lines,
    columns: &Array<T>,
    column_lines: &Lines,
    tiles: &mut SharedMemory<N>,
    scores: &mut Array<f32>,
    #[comptime] tile: Tile,
) {
    let columns_at = comptime!(tile.rows * CHUNK_LINE);
    #[unroll]
    for n in 0..comptime!(tile.unit_scores()) {
        scores[n] = 0.0;
    }
    for chunk in 0..comptime!(tile.chunks()) {
        let depth = chunk * CHUNK;
        sync_cube();
        load::<T, N>(
            rows,
            row_lines,
            depth,
            tiles,
            0usize,
            comptime!(tile.rows),
            comptime!(tile.stacked),
            comptime!(tile.head_dim),
        );
        load::<T, N>(
            columns,
            column_lines,
            depth,
            tiles,
            columns_at,
            COLUMNS,
            false,
            comptime!(tile.head_dim),
        );
        sync_cube();
        accumulate::<N>(
            tiles,
            scores,
            0usize,
            comptime!(Product {
                unit_rows: tile.unit_rows(),
                unit_columns: SCORE_COLUMNS,
                depth: CHUNK,
                a_line: CHUNK_LINE,
                b_at: columns_at,
                b: [1, CHUNK_LINE],
            }),
        );
    }
}

/// Adds to `sums`, for each row of weights in shared memory, the column vectors with these weights.
#[cube]
pub fn add_weighted<T: Numeric, N: Float>(
    vectors: &Array<T>,
    lines: &Lines,
    tiles: &mut SharedMemory<N>,
    sums: &mut Array<f32>,
    #[comptime] tile: Tile,
) {
    let vectors_at = comptime!(tile.vectors_at());
    #[unroll]
    for chunk in 0..comptime!(tile.chunks()) {
        sync_cube();
        load::<T, N>(
            vectors,
            lines,
            comptime!(chunk * CHUNK).runtime(),
            tiles,
            vectors_at,
            COLUMNS,
            false,
            comptime!(tile.head_dim),
        );
        sync_cube();
        accumulate::<N>(
            tiles,
            sums,
            comptime!(chunk * tile.unit_rows() * CHUNK_COLUMNS),
            comptime!(Product {
                unit_rows: tile.unit_rows(),
                unit_columns: CHUNK_COLUMNS,
                depth: COLUMNS,
                a_line: WEIGHT_LINE,
                b_at: vectors_at,
                b: [CHUNK_LINE, 1],
            }),
        );
    }
}

/// Writes the unit's elements of the resulting vectors, each row times its factor.
#[cube]
pub fn store<T: Numeric>(
    sums: &Array<f32>,
    factors: &Array<f32>,
    to: &mut Array<T>,
    lines: &Lines,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for row in 0..comptime!(tile.unit_rows()) {
        let token = lines.start + UNIT_POS_Y as usize + comptime!(row * LANES);
        if token < lines.end {
            let first = vector(token, lines, comptime!(tile.stacked));
            #[unroll]
            for n in 0..comptime!(tile.chunks() * CHUNK_COLUMNS) {
                let element = UNIT_POS_X as usize + comptime!(n * LANES);
                if element < comptime!(tile.head_dim) {
                    let (chunk, column) = comptime!((n / CHUNK_COLUMNS, n % CHUNK_COLUMNS));
                    let at = comptime!((chunk * tile.unit_rows() + row) * CHUNK_COLUMNS + column);
                    to[first + element] = T::cast_from(sums[at] * factors[row]);
                }
            }
        }
    }
}

/// The number of a tile that starts earlier the later it is.
#[cube]
pub fn from_last(position: u32, count: u32) -> usize {
    (count - 1 - position) as usize
}

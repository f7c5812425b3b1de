//! The division of the work into tasks, which depends only on the shape.

/// The maximum number of exponentials in memory: 256 MiB.
const EXPONENTIALS: usize = 1 << 26;

/// The sizes into which the work is divided. All are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// The number of rows whose exponentials are in memory at once. The gradient of the weight is written once
    /// per block.
    pub block: usize,
    /// The number of rows per task.
    pub part: usize,
    /// The number of columns of the vocabulary whose logits a task holds at once.
    pub tile: usize,
    /// The number of tiles per task.
    pub chunk: usize,
    /// The number of columns of the weight's gradient per task.
    pub strip: usize,
}

impl Tiling {
    /// The fastest tiling known for these sizes.
    ///
    /// A tile of 512 × 512 logits fits in a core's cache, and is large enough for its product to dominate the
    /// cost of packing the operands. If the shape permits, there are more tasks than most machines have threads.
    pub fn new(rows: usize, width: usize, vocab: usize) -> Self {
        let tile = even(vocab, vocab.div_ceil(512));
        let tiles = vocab.div_ceil(tile).max(1);
        let chunk = tiles.div_ceil(16);
        let chunks = tiles.div_ceil(chunk);
        let most = (EXPONENTIALS / vocab.max(1)).clamp(1, 4096);
        let block = even(rows, rows.div_ceil(most));
        Self {
            block,
            part: even(block, block.div_ceil(512).max(16 / chunks)).max(96),
            tile,
            chunk,
            strip: even(width, 16 / tiles).max(64),
        }
    }
}

/// The maximum number of elements that [`super::head_loss_gradients`] allocates: the exponentials of a block of
/// rows, and the gradients of its hidden states per chunk.
pub fn peak_elements(rows: usize, width: usize, vocab: usize) -> usize {
    let tiling = Tiling::new(rows, width, vocab);
    let block = tiling.block.min(rows);
    let chunks = vocab.div_ceil(tiling.tile * tiling.chunk);
    block * vocab + chunks * block * width
}

/// The size of `parts` equal parts, rounded up to a multiple of 16 for vectors and the product's kernels.
fn even(len: usize, parts: usize) -> usize {
    len.div_ceil(parts.max(1)).next_multiple_of(16).max(16)
}

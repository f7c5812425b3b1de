//! The division of the work into tasks, by its shape only.

/// Exponentials held at once: 256 MiB.
const EXPONENTIALS: usize = 1 << 26;

/// Sizes of the parts of the work. All are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Rows whose exponentials are held at once: the weights' gradient is written once for each such block.
    pub block: usize,
    /// Rows of a task.
    pub part: usize,
    /// Columns of the vocabulary whose logits a task holds.
    pub tile: usize,
    /// Tiles of a task.
    pub chunk: usize,
    /// Columns of the width that a task makes of the weights' gradient.
    pub strip: usize,
}

impl Cut {
    /// The fastest known.
    ///
    /// A tile of 512 × 512 logits fits in a core's cache and is large enough that packing its factors costs
    /// little beside their product. The tasks are more than most machines have threads, if the shape gives as many.
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

/// Elements that [`super::head_loss_gradients`] holds at its most beside what it is given: exponentials of a block of rows, and
/// each chunk's part of their gradient.
pub fn most_held(rows: usize, width: usize, vocab: usize) -> usize {
    let cut = Cut::new(rows, width, vocab);
    let block = cut.block.min(rows);
    let chunks = vocab.div_ceil(cut.tile * cut.chunk);
    block * vocab + chunks * block * width
}

/// The size of `parts` equal parts, up to a multiple of 16, which is what vectors and the products' kernels like.
fn even(len: usize, parts: usize) -> usize {
    len.div_ceil(parts.max(1)).next_multiple_of(16).max(16)
}

//! One pass over pieces of several sequences, each of its own length and with a cache of its own.
//!
//! A token costs the reading of all weights, whoever it is for. Here the pieces' tokens lie in one block of rows,
//! `[1, rows, d_model]`: embedding, norms, maps and head read the weights once for all of them. Attention alone goes
//! piece by piece, each over its own keys and values, or sums.

use burn::tensor::{Int, Tensor, TensorData};

use emberlm_kernels::Backend;

use crate::decoder::Decoder;
use crate::kv_cache::KvCache;

/// Which logits of a piece are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// None: its tokens are only read into the cache.
    None,
    /// Those after its last token.
    Last,
    /// Those after each of its tokens.
    All,
}

/// The next tokens of one sequence.
#[derive(Debug)]
pub struct Piece<'a, B: Backend> {
    /// At least one, each below `vocab_size`.
    pub tokens: &'a [u32],
    /// Of this sequence alone (batch 1), with room for them: they continue what it holds, and are added to it.
    pub cache: &'a mut KvCache<B>,
    /// Which logits are asked for.
    pub logits: Wanted,
}

impl<B: Backend> Decoder<B> {
    /// The logits that the pieces ask for, `[rows, vocab_size]`, in the pieces' and their tokens' order; none where nothing
    /// is asked for. Each piece's are those that [`Decoder::forward_cached`] would give it alone, but for what products of
    /// more rows round otherwise.
    ///
    /// What is said of [`Decoder::forward_cached`]'s tokens holds for each piece's.
    pub fn ragged(&self, pieces: &mut [Piece<'_, B>]) -> Option<Tensor<B, 2>> {
        let (mut ids, mut places, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces.iter() {
            let (first, end) = (ids.len(), ids.len() + piece.tokens.len());
            let offset = piece.cache.len();
            ids.extend(piece.tokens.iter().map(|&id| i64::from(id)));
            places.extend((offset..offset + piece.tokens.len()).map(|place| place as i64));
            let rows = match piece.logits {
                Wanted::None => end..end,
                Wanted::Last => end.saturating_sub(1).max(first)..end,
                Wanted::All => first..end,
            };
            wanted.extend(rows.map(|row| row as i64));
        }
        let total = ids.len();
        if total == 0 {
            return None;
        }
        let device = self.device();
        let places = Tensor::<B, 1, Int>::from_data(TensorData::new(places, [total]), &device);
        let ids = Tensor::<B, 2, Int>::from_data(TensorData::new(ids, [1, total]), &device);
        let mut x = self.embedded_with(ids, |x| self.positions.add_at(x, &places));
        let angles = self.rotary().map(|table| table.angles_at(&places));
        for (layer, block) in self.blocks.iter().enumerate() {
            x = block.ragged(x, angles.as_ref(), layer, pieces); // [1, rows, d_model]
        }
        let rows = wanted.len();
        if rows == 0 {
            return None;
        }
        if rows < total {
            let wanted = Tensor::<B, 1, Int>::from_data(TensorData::new(wanted, [rows]), &device);
            x = x.select(1, wanted);
        }
        let logits = self.logits(self.norm_final.forward(x)); // [1, rows, vocab_size]
        Some(logits.reshape([rows, self.config().vocab_size]))
    }
}

//! The contents of a cache as data, to be kept outside of the program.

use burn::tensor::TensorData;
use emberlm_kernels::Backend;

use super::layer::LayerState;
use super::tokens::CachedTokens;
use super::{KvCache, LayerCache};

/// The keys and values of a sequence as a cache stores them: those of each block, `[1, kv_heads, tokens, width]`.
#[derive(Clone, Debug)]
pub struct SavedCache {
    /// Number of tokens.
    pub tokens: usize,
    /// The keys and the values of the first block, those of the second, and so on. A block with latent attention has one tensor.
    pub tensors: Vec<TensorData>,
}

impl<B: Backend> KvCache<B> {
    /// The contents. `None` if a block has linear attention, or a window whose first tokens are no longer held.
    pub fn saved(&self) -> Option<SavedCache> {
        let layers = self.layers.iter().map(LayerCache::saved);
        let layers: Option<Vec<Vec<TensorData>>> = layers.collect();
        Some(SavedCache {
            tokens: self.len(),
            tensors: layers?.into_iter().flatten().collect(),
        })
    }

    /// Replaces the contents by those of another cache for the same model and format. Returns false if they do not fit; then
    /// the cache is empty.
    pub fn restore(&mut self, saved: SavedCache) -> bool {
        self.clear();
        let SavedCache { tokens, tensors } = saved;
        let mut tensors = tensors.into_iter();
        let is_restored = tokens <= self.capacity
            && (self.layers.iter_mut()).all(|layer| layer.restore(&mut tensors, tokens))
            && tensors.next().is_none();
        if !is_restored {
            self.clear();
        }
        is_restored
    }
}

impl<B: Backend> LayerCache<B> {
    fn saved(&self) -> Option<Vec<TensorData>> {
        let LayerState::KeysAndValues(held) = &self.held else {
            return None;
        };
        let data = |tokens: &CachedTokens<B>| tokens.clone().narrow(0, self.len).into_data();
        let tensors = [&held.keys, &held.values].into_iter().flatten();
        (held.dropped == 0).then(|| tensors.map(data).collect())
    }

    fn restore(&mut self, tensors: &mut impl Iterator<Item = TensorData>, tokens: usize) -> bool {
        let LayerState::KeysAndValues(held) = &mut self.held else {
            return false;
        };
        for held in [&mut held.keys, &mut held.values] {
            let Some(memory) = held.take() else { continue };
            let new = tensors.next().and_then(|data| memory.like(data));
            let new = new.filter(|new| new.len() == tokens);
            let is_new = new.is_some();
            // Taken out, so that nothing else owns the memory.
            *held = Some(match new {
                Some(new) => memory.write(new, 0),
                None => memory,
            });
            if !is_new {
                return false;
            }
        }
        self.len = tokens;
        true
    }
}

//! The contents of a cache as data, to be kept outside of the program.

use burn::tensor::TensorData;
use emberlm_kernels::Backend;

use super::layer::{KeysAndValues, LayerState};
use super::tokens::CachedTokens;
use super::{KvCache, LayerCache};

/// The keys and values of a sequence as a cache stores them: those of each block, `[1, kv_heads, tokens, width]`.
#[derive(Clone, Debug)]
pub struct SavedCache {
    /// Number of tokens.
    pub tokens: usize,
    /// The keys and the values of the first block, those of the second, and so on.
    pub tensors: Vec<TensorData>,
}

impl<B: Backend> KvCache<B> {
    /// The contents. `None` if a block has linear attention, or a window whose first tokens are no longer held.
    pub fn saved(&self) -> Option<SavedCache> {
        let layers = self.layers.iter().map(LayerCache::saved);
        let layers: Option<Vec<[TensorData; 2]>> = layers.collect();
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
        let is_whole = tokens <= self.capacity && tensors.len() == 2 * self.layers.len();
        let mut tensors = tensors.into_iter();
        let is_restored = is_whole
            && self.layers.iter_mut().all(|layer| {
                let (Some(keys), Some(values)) = (tensors.next(), tensors.next()) else {
                    return false;
                };
                layer.restore(keys, values, tokens)
            });
        if !is_restored {
            self.clear();
        }
        is_restored
    }
}

impl<B: Backend> LayerCache<B> {
    fn saved(&self) -> Option<[TensorData; 2]> {
        let LayerState::KeysAndValues(KeysAndValues {
            keys: Some(keys),
            values: Some(values),
            dropped: 0,
            ..
        }) = &self.held
        else {
            return None;
        };
        let data = |tokens: &CachedTokens<B>| tokens.clone().narrow(0, self.len).into_data();
        Some([data(keys), data(values)])
    }

    fn restore(&mut self, keys: TensorData, values: TensorData, tokens: usize) -> bool {
        let LayerState::KeysAndValues(held) = &mut self.held else {
            return false;
        };
        for (held, data) in [(&mut held.keys, keys), (&mut held.values, values)] {
            let new = held.as_ref().and_then(|held| held.like(data));
            let Some(new) = new.filter(|new| new.len() == tokens) else {
                return false;
            };
            // Taken out, so that nothing else owns the memory.
            *held = held.take().map(|memory| memory.write(new, 0));
        }
        self.len = tokens;
        true
    }
}

//! A bank of adapters: several adapters of one model, from which each sequence of a ragged pass selects one.

use emberlm_kernels::Backend;

use crate::error::AdapterError;
use crate::transformer::model::Transformer;

impl<B: Backend> Transformer<B> {
    /// Adds the adapter of `adapted` to the bank and returns its number there, by which
    /// [`SequenceChunk::adapter`](crate::SequenceChunk::adapter) selects it. `adapted` must be this model with an
    /// adapter: its other weights are not used. The adapter is prepared as by [`Transformer::with_fused_adapters`].
    ///
    /// # Errors
    /// `adapted` has no adapter, one with parameters of the base model, or another configuration.
    pub fn add_to_bank(&mut self, adapted: &Self) -> Result<usize, AdapterError> {
        if !adapted.has_adapter() {
            return Err(AdapterError::None);
        }
        if adapted.has_whole_parameters() {
            return Err(AdapterError::WholeParameters);
        }
        if adapted.config() != self.config() {
            return Err(AdapterError::OtherModel);
        }
        let number = self.bank_len();
        for (linear, (_, adapted)) in self.linears_mut().zip(adapted.linears()) {
            let adapter = adapted.adapter.as_ref();
            let fused = adapter.map(|adapter| adapter.fused(&linear.weight));
            linear.bank.push(fused);
        }
        Ok(number)
    }

    /// Frees the memory of an adapter in the bank. The others keep their numbers, and a sequence that selects this one gets
    /// the model without an adapter.
    pub fn clear_in_bank(&mut self, number: usize) {
        for linear in self.linears_mut() {
            if let Some(adapter) = linear.bank.get_mut(number) {
                *adapter = None;
            }
        }
    }

    /// Number of adapters in the bank, including those that were cleared.
    pub fn bank_len(&self) -> usize {
        let mut linears = self.linears();
        linears.next().map_or(0, |(_, linear)| linear.bank.len())
    }
}

//! The optimizer's state of one parameter.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use emberlm_kernels::Backend;

use super::guard::Guard;
use super::state::StateKind;
use super::{primitive, typed};

/// The tensors of a parameter's state by their kinds; none before the first update. Those of a piece of a parameter that is
/// divided among ranks are vectors `[n]`, the others have the shape [`StateKind::shape`].
#[derive(Clone)]
pub(super) struct Moments<B: BurnBackend>(Vec<(StateKind, FloatTensor<B>)>);

impl<B: BurnBackend> Default for Moments<B> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<B: BurnBackend> FromIterator<(StateKind, FloatTensor<B>)> for Moments<B> {
    fn from_iter<I: IntoIterator<Item = (StateKind, FloatTensor<B>)>>(tensors: I) -> Self {
        Self(tensors.into_iter().collect())
    }
}

impl<B: BurnBackend> IntoIterator for Moments<B> {
    type Item = (StateKind, FloatTensor<B>);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<B: BurnBackend> Moments<B> {
    /// Adds a tensor.
    pub(super) fn with<const D: usize>(mut self, kind: StateKind, tensor: Tensor<B, D>) -> Self {
        self.0.push((kind, primitive(tensor)));
        self
    }

    /// The tensor of a kind.
    pub(super) fn get(&self, kind: StateKind) -> Option<&FloatTensor<B>> {
        let mut tensors = self.0.iter();
        tensors.find_map(|(of, tensor)| (*of == kind).then_some(tensor))
    }

    /// Removes the tensor of a kind. A second handle would prevent its update in place.
    pub(super) fn take<const D: usize>(&mut self, kind: StateKind) -> Option<Tensor<B, D>> {
        let place = self.0.iter().position(|(of, _)| *of == kind)?;
        Some(typed(self.0.swap_remove(place).1))
    }

    /// Removes the tensor of a kind that has the shape of `parameter`; zeros before the first update.
    pub(super) fn take_like<const D: usize>(
        &mut self,
        kind: StateKind,
        parameter: &Tensor<B, D>,
    ) -> Tensor<B, D> {
        let taken = self.take(kind);
        taken.unwrap_or_else(|| parameter.zeros_like())
    }
}

impl<B: Backend> Moments<B> {
    /// The moments `after` an update if the guard allows it, otherwise those before it (zeros before the first update).
    pub(super) fn chosen<const D: usize>(guard: &Guard<B>, mut before: Self, after: Self) -> Self {
        let tensors = after.into_iter().map(|(kind, after)| {
            let after: Tensor<B, D> = typed(after);
            let before = before.take_like(kind, &after);
            (kind, primitive(guard.choose(before, after)))
        });
        tensors.collect()
    }
}

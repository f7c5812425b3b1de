//! Parameters whose values are computed when they are first used.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;

use super::Trail;

/// Computes a parameter. Burn calls it once for each clone of the parameter that is used, so it returns the same tensor
/// each time: gradients belong to a tensor, not to its elements.
pub type LazyValue<B, const D: usize> = Box<dyn Fn() -> Tensor<B, D> + Send + Sync>;

/// The new values of some parameters of a module.
pub trait LazyParams<B: AutodiffBackend> {
    /// The value of a parameter of the given shape; `None` for one that stays as it is. Called in the module's order.
    fn value<const D: usize>(&mut self, path: &str, shape: [usize; D]) -> Option<LazyValue<B, D>>;
}

/// Replaces float parameters by values that are computed when they are first used. Parameters keep their ids, shapes and
/// devices, and require gradients as before.
pub fn replace_lazily<B: AutodiffBackend, M: Module<B>>(
    module: M,
    values: &mut impl LazyParams<B>,
) -> M {
    module.map(&mut LazyMapper {
        trail: Trail::default(),
        values,
    })
}

struct LazyMapper<'a, T> {
    trail: Trail,
    values: &'a mut T,
}

impl<B: AutodiffBackend, T: LazyParams<B>> ModuleMapper<B> for LazyMapper<'_, T> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.trail.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.trail.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let old = param.val();
        let Some(value) = self.values.value(&self.trail.path(), old.dims()) else {
            return param;
        };
        let (device, shape) = (old.device(), old.shape());
        let value = move |_: &_, requires_grad| value().set_require_grad(requires_grad);
        Param::uninitialized(param.id, value, device, old.is_require_grad(), shape)
    }
}

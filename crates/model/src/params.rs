//! The float parameters of a module by their paths: visited, replaced, computed lazily, and copied to the host.

mod lazy;
mod parts;
mod tensors;

pub use lazy::{LazyParams, LazyValue, replace_lazily};
pub use parts::{Parts, join_parts, part_of, part_path, whole_path};
pub use tensors::{DeviceTensor, HostTensor, device_tensors, named_tensors};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// Visitor of a module's float parameters and their paths (`blocks.0.attention.qkv.weight`). The parts of a split table
/// are separate parameters ([`part_of`]).
pub trait ParamVisitor<B: Backend> {
    /// Called for each parameter, in the module's order.
    fn visit<const D: usize>(&mut self, path: &str, id: ParamId, value: Tensor<B, D>);
}

/// Replaces a module's float parameters, given their paths.
pub trait ParamMapper<B: Backend> {
    /// Returns the new value of a parameter. Called in the module's order.
    fn map<const D: usize>(&mut self, path: &str, id: ParamId, value: Tensor<B, D>)
    -> Tensor<B, D>;
}

/// Visits every float parameter with its path.
pub fn visit_params<B: Backend, M: Module<B>>(module: &M, visitor: &mut impl ParamVisitor<B>) {
    module.visit(&mut PathTracker {
        trail: Trail::default(),
        inner: visitor,
    });
}

/// Replaces every float parameter, given its path, and keeps the parameters' ids.
pub fn map_params<B: Backend, M: Module<B>>(module: M, mapper: &mut impl ParamMapper<B>) -> M {
    module.map(&mut PathTracker {
        trail: Trail::default(),
        inner: mapper,
    })
}

/// The value of a parameter after `change`. It requires gradients like the old one, and is not the result of an operation of
/// the autodiff graph: such a tensor is not a parameter, and loses its gradient.
pub(crate) fn changed<B: Backend, const D: usize>(
    value: Tensor<B, D>,
    change: impl FnOnce(Tensor<B, D>) -> Tensor<B, D>,
) -> Tensor<B, D> {
    let requires_gradients = value.is_require_grad();
    change(value.set_require_grad(false)).set_require_grad(requires_gradients)
}

/// Visits the path and the id of every float parameter, without its value, which may be computed lazily.
pub fn visit_param_ids<B: Backend, M: Module<B>>(module: &M, visit: impl FnMut(&str, ParamId)) {
    module.visit(&mut IdTracker {
        trail: Trail::default(),
        visit,
    });
}

/// Path of the field that Burn is currently visiting.
#[derive(Default)]
pub(crate) struct Trail {
    names: Vec<String>,
    /// True once the encoder of an encoder–decoder was entered, which is visited first.
    is_pair: bool,
}

impl Trail {
    /// Adds a field to the path.
    ///
    /// Burn also enters enum variants. Unsplit tables and f32 weights get the path of their field; the parts of a split
    /// table are below `parts`. A model's components are left out, so that `stack.norm_final` is `norm_final` in files and
    /// optimizer states; with two stacks, the second is `decoder`. A model in training has the paths of the model that it
    /// holds.
    pub(crate) fn enter(&mut self, name: &str, container: &str) {
        self.is_pair |= container == "Struct:Stack" && self.names.iter().any(|of| of == "encoder");
        let name = match (container, name) {
            ("Struct:Transformer", "stack") if self.is_pair => "decoder",
            ("Enum:TokenTable", "Whole") | ("Enum:LinearWeight", "Float") => "",
            ("Enum:FeedForwardLayer", "Dense" | "Experts") | ("Struct:TrainingModel", "model") => {
                ""
            }
            ("Struct:Adapter", "parts") => "",
            ("Enum:TokenTable", "Parts") => "parts",
            ("Struct:Transformer", "embeddings" | "stack" | "lm_head")
            | ("Enum:EncoderHead", "MaskedLm" | "Sequence" | "Token") => "",
            ("Enum:EncoderHead", "Pooler") => "dense",
            _ => name,
        };
        self.names.push(name.to_owned());
    }

    pub(crate) fn exit(&mut self) {
        self.names.pop();
    }

    pub(crate) fn path(&self) -> String {
        let named = self.names.iter().filter(|name| !name.is_empty());
        named.map(String::as_str).collect::<Vec<_>>().join(".")
    }
}

/// Adapts visitors with paths to Burn's traversal of modules.
struct PathTracker<'a, T> {
    trail: Trail,
    inner: &'a mut T,
}

impl<B: Backend, T: ParamVisitor<B>> ModuleVisitor<B> for PathTracker<'_, T> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.trail.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.trail.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.inner.visit(&self.trail.path(), param.id, param.val());
    }
}

struct IdTracker<F> {
    trail: Trail,
    visit: F,
}

impl<B: Backend, F: FnMut(&str, ParamId)> ModuleVisitor<B> for IdTracker<F> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.trail.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.trail.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        (self.visit)(&self.trail.path(), param.id);
    }
}

impl<B: Backend, T: ParamMapper<B>> ModuleMapper<B> for PathTracker<'_, T> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.trail.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.trail.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, value, mapper) = param.consume();
        let value = self.inner.map(&self.trail.path(), id, value);
        Param::from_mapped_value(id, value, mapper)
    }
}

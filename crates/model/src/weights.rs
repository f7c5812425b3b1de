//! Weights on disk: tensor stores ([`TensorStore`]), of which safetensors files are one ([`SafetensorsStore`]), with the decoder's own paths as names or a family's published ones.

mod element;
mod load;
mod load_decoder;
pub mod map;
pub(crate) mod names;
mod parts;
pub(crate) mod quantized;
mod safetensors_store;
mod save;
mod save_quantized;
mod store;
mod unique_keys;

pub use element::Element;
pub(crate) use load::Naming;
pub use load::{load_named, load_own, load_tensors};
pub(crate) use load_decoder::load_decoder;
pub use load_decoder::load_own_in;
pub use parts::{Parts, part_of, part_path, together, whole_path};
pub use safetensors_store::SafetensorsStore;
pub(crate) use save::write;
pub use save::{
    DeviceTensor, HostTensor, Published, device_tensors, named_tensors, published, save_own,
};
pub(crate) use save_quantized::PublishedPacked;
pub use store::TensorStore;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// Something done to each float parameter of a module, given its path (`blocks.0.attention.qkv.weight`). Parts of a table are
/// separate parameters ([`part_of`]).
pub trait ParamVisitor<B: Backend> {
    /// Called in the module's order.
    fn visit<const D: usize>(&mut self, path: &str, id: ParamId, value: Tensor<B, D>);
}

/// Something that replaces each float parameter of a module, given its path.
pub trait ParamMapper<B: Backend> {
    /// Called in the module's order; gives the new value.
    fn map<const D: usize>(&mut self, path: &str, id: ParamId, value: Tensor<B, D>)
    -> Tensor<B, D>;
}

/// Visits every float parameter with its path.
pub fn visit_params<B: Backend, M: Module<B>>(module: &M, visitor: &mut impl ParamVisitor<B>) {
    module.visit(&mut Walk {
        trail: Trail::default(),
        inner: visitor,
    });
}

/// Replaces every float parameter, given its path. The parameters' identities stay.
pub fn map_params<B: Backend, M: Module<B>>(module: M, mapper: &mut impl ParamMapper<B>) -> M {
    module.map(&mut Walk {
        trail: Trail::default(),
        inner: mapper,
    })
}

/// The path to where Burn is in a module.
#[derive(Default)]
pub(crate) struct Trail(Vec<String>);

impl Trail {
    /// Burn names an enum's variants too: a table that is whole and a weight in f32 have their field's path, and the parts of a
    /// table are `parts` there.
    /// The fields of a decoder's three components are its own to files and optimizers.
    pub(crate) fn enter(&mut self, name: &str, container: &str) {
        let name = match (container, name) {
            ("Enum:TokenTable", "Whole") | ("Enum:LinearWeight", "Float") => "",
            ("Enum:FeedForwardLayer", "Dense" | "Experts") => "",
            ("Enum:TokenTable", "Parts") => "parts",
            ("Struct:Decoder", "embeddings" | "stack" | "lm_head") => "",
            _ => name,
        };
        self.0.push(name.to_owned());
    }

    pub(crate) fn exit(&mut self) {
        self.0.pop();
    }

    pub(crate) fn path(&self) -> String {
        let named = self.0.iter().filter(|name| !name.is_empty());
        named.map(String::as_str).collect::<Vec<_>>().join(".")
    }
}

/// Keeps the path while Burn walks a module.
struct Walk<'a, T> {
    trail: Trail,
    inner: &'a mut T,
}

impl<B: Backend, T: ParamVisitor<B>> ModuleVisitor<B> for Walk<'_, T> {
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

impl<B: Backend, T: ParamMapper<B>> ModuleMapper<B> for Walk<'_, T> {
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

//! Reads and writes weights, named by the decoder's paths or by a family's published names. [`TensorStore`] abstracts
//! from the file format; [`SafetensorsStore`] implements it for safetensors files.

mod blocks;
mod element;
mod load;
mod load_decoder;
pub mod map;
mod mxfp4_store;
pub(crate) mod names;
mod piece_file;
pub(crate) mod pieces;
pub(crate) mod quantized;
mod safetensors_store;
mod save;
mod save_quantized;
mod store;
mod unique_keys;

pub use element::Element;
pub(crate) use load::{Naming, load, load_present};
pub use load::{load_named, load_own, load_tensors, read_tensors};
pub(crate) use load_decoder::load_decoder;
pub use load_decoder::load_own_in;
pub(crate) use mxfp4_store::Mxfp4Store;
pub use piece_file::{FileLayout, PieceFile};
pub use safetensors_store::SafetensorsStore;
pub(crate) use save::write;
pub use save::{Published, published, save_own};
pub(crate) use save_quantized::PublishedPacked;
pub use store::TensorStore;
pub(crate) use store::equal;

pub use crate::params::{
    DeviceTensor, HostTensor, LazyParams, LazyValue, ParamMapper, ParamVisitor, Parts,
    device_tensors, join_parts, map_params, named_tensors, part_of, part_path, replace_lazily,
    visit_param_ids, visit_params, whole_path,
};

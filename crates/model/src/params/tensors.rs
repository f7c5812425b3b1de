//! Copies of a module's parameters, on their device or on the host.

use std::borrow::Cow;

use burn::module::{Module, ParamId};
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, Tensor, TensorMetadata, TensorPrimitive};
use safetensors::{Dtype, View};

use super::{ParamVisitor, join_parts, visit_params};

/// An f32 tensor on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Elements in row-major order.
    pub values: Vec<f32>,
}

impl View for &HostTensor {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(bytes_of(&self.values))
    }

    fn data_len(&self) -> usize {
        self.values.len() * 4
    }
}

/// Encodes values as little-endian bytes.
fn bytes_of(values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * 4);
    for value in values {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// A tensor on its device, which is copied to the host only while it is written.
#[derive(Clone, Debug)]
pub struct DeviceTensor<B: Backend> {
    pub(crate) shape: Vec<usize>,
    /// Flattened parts with consecutive rows.
    parts: Vec<Tensor<B, 1>>,
}

impl<B: Backend> DeviceTensor<B> {
    /// Wraps a tensor of any rank.
    pub fn new(tensor: FloatTensor<B>) -> Self {
        Self::joined(vec![tensor])
    }

    /// Joins tensors along the first dimension; their other dimensions must be equal. The parts are concatenated only
    /// on the host, because the result may exceed the device's largest buffer.
    pub fn joined(parts: Vec<FloatTensor<B>>) -> Self {
        let mut shape = parts
            .first()
            .map_or_else(Vec::new, |part| part.shape().to_vec());
        if let Some(rows) = shape.first_mut() {
            *rows = parts.iter().map(|part| part.shape()[0]).sum();
        }
        let flat = |tensor: FloatTensor<B>| {
            let count = tensor.shape().num_elements();
            let flat = B::float_reshape(tensor, Shape::new([count]));
            Tensor::from_primitive(TensorPrimitive::Float(flat))
        };
        Self {
            shape,
            parts: parts.into_iter().map(flat).collect(),
        }
    }

    /// Copies the tensor to the host.
    pub fn on_host(&self) -> HostTensor {
        HostTensor {
            shape: self.shape.clone(),
            values: self.read(<[f32]>::to_vec),
        }
    }

    /// Calls `read` with the elements, without additional copies if possible.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&[f32]) -> R) -> R {
        if let [single] = self.parts.as_slice() {
            let data = single.to_data();
            return match data.as_slice::<f32>() {
                Ok(values) => read(values),
                Err(_) => read(&data.iter::<f32>().collect::<Vec<_>>()),
            };
        }
        let mut values = Vec::with_capacity(self.shape.iter().product());
        for part in &self.parts {
            values.extend(part.to_data().iter::<f32>());
        }
        read(&values)
    }
}

impl<B: Backend> View for &DeviceTensor<B> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        if self.parts.len() == 1 {
            return Cow::Owned(self.read(bytes_of));
        }
        // Copy one part at a time to the host.
        let mut bytes = Vec::with_capacity(self.data_len());
        for part in &self.parts {
            for value in part.to_data().iter::<f32>() {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * 4
    }
}

/// Returns every parameter of a module with its path, in the module's order. Split parameters are joined.
pub fn device_tensors<B: Backend, M: Module<B>>(module: &M) -> Vec<(String, DeviceTensor<B>)> {
    let mut collector = TensorCollector(Vec::new());
    visit_params(module, &mut collector);
    let joined = join_parts::<B>(collector.0).into_iter();
    joined
        .map(|(path, parts)| (path, DeviceTensor::joined(parts)))
        .collect()
}

struct TensorCollector<B: Backend>(Vec<(String, FloatTensor<B>)>);

impl<B: Backend> ParamVisitor<B> for TensorCollector<B> {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<B, D>) {
        self.0
            .push((path.to_owned(), value.into_primitive().tensor()));
    }
}

/// Copies every parameter of a module to the host, with its path, in the module's order.
pub fn named_tensors<B: Backend, M: Module<B>>(module: &M) -> Vec<(String, HostTensor)> {
    let tensors = device_tensors(module).into_iter();
    tensors
        .map(|(path, tensor)| (path, tensor.on_host()))
        .collect()
}

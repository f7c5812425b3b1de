//! Writing weights.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use burn::module::{Module, ParamId};
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, Tensor, TensorMetadata, TensorPrimitive};
use safetensors::{Dtype, SafeTensorError, View};

use super::element::Element;
use super::map::{Source, Stored};
use super::{ParamVisitor, together, visit_params};
use crate::error::WeightsError;

/// A tensor on the host: shape and f32 values.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its elements, row by row.
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

/// The values in a file's layout.
fn bytes_of(values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * 4);
    for value in values {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// A tensor on its device, of which the host has a copy while it is written and not before.
#[derive(Clone, Debug)]
pub struct DeviceTensor<B: Backend> {
    shape: Vec<usize>,
    /// Its elements, one part after the other.
    parts: Vec<Tensor<B, 1>>,
}

impl<B: Backend> DeviceTensor<B> {
    /// A tensor of any rank.
    pub fn new(tensor: FloatTensor<B>) -> Self {
        Self::joined(vec![tensor])
    }

    /// One tensor whose consecutive rows are in several, which have the same shape but for their first dimension. They come
    /// together only on the host.
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

    /// Its copy on the host.
    pub fn on_host(&self) -> HostTensor {
        HostTensor {
            shape: self.shape.clone(),
            values: self.read(<[f32]>::to_vec),
        }
    }

    /// Its elements, copied no more often than they have to be.
    fn read<R>(&self, read: impl FnOnce(&[f32]) -> R) -> R {
        if let [whole] = self.parts.as_slice() {
            let data = whole.to_data();
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
        if let [_] = self.parts.as_slice() {
            return Cow::Owned(self.read(bytes_of));
        }
        // Each part is on the host as it is written, and not all of them.
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

/// Every parameter of a module, by path, in the module's order; one in parts is whole.
pub fn device_tensors<B: Backend, M: Module<B>>(module: &M) -> Vec<(String, DeviceTensor<B>)> {
    let mut named = Name(Vec::new());
    visit_params(module, &mut named);
    let wholes = together::<B>(named.0).into_iter();
    wholes
        .map(|(path, parts)| (path, DeviceTensor::joined(parts)))
        .collect()
}

struct Name<B: Backend>(Vec<(String, FloatTensor<B>)>);

impl<B: Backend> ParamVisitor<B> for Name<B> {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<B, D>) {
        self.0
            .push((path.to_owned(), value.into_primitive().tensor()));
    }
}

/// Every parameter of a module on the host, by path, in the module's order.
pub fn named_tensors<B: Backend, M: Module<B>>(module: &M) -> Vec<(String, HostTensor)> {
    let tensors = device_tensors(module).into_iter();
    tensors
        .map(|(path, tensor)| (path, tensor.on_host()))
        .collect()
}

/// Writes tensors ([`HostTensor`] or [`DeviceTensor`]) as a safetensors file in f32.
///
/// # Errors
/// The file cannot be written.
pub fn save_own<T>(
    tensors: &[(String, T)],
    metadata: HashMap<String, String>,
    file: &Path,
) -> Result<(), WeightsError>
where
    for<'a> &'a T: View,
{
    write(
        tensors.iter().map(|(name, tensor)| (name, tensor)),
        metadata,
        file,
    )
}

pub(crate) fn write<S: AsRef<str> + Ord + std::fmt::Display, V: View>(
    views: impl IntoIterator<Item = (S, V)>,
    metadata: HashMap<String, String>,
    file: &Path,
) -> Result<(), WeightsError> {
    let io = |source: io::Error| WeightsError::Io {
        path: file.to_owned(),
        source,
    };
    // The crate writes files that only their owner can read: they get the permissions of any new file.
    let empty = File::create(file).and_then(|file| file.metadata());
    let permissions = empty.map_err(io)?.permissions();
    safetensors::serialize_to_file(views, Some(metadata), file).map_err(|error| match error {
        SafeTensorError::IoError(error) => io(error),
        error => io(io::Error::other(error.to_string())),
    })?;
    fs::set_permissions(file, permissions).map_err(io)
}

/// A tensor as a published checkpoint has it, made of a parameter when it is written and not before.
#[derive(Clone, Debug)]
pub struct Published<B: Backend> {
    name: String,
    shape: Vec<usize>,
    /// The parameters in it; one, unless several share the tensor.
    parameters: Vec<(Stored, DeviceTensor<B>)>,
    element: Element,
}

impl<B: Backend> Published<B> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its dimensions in the file.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.shape
    }

    /// Its elements.
    pub fn values(&self) -> HostTensor {
        let mut values = vec![0.0; self.len()];
        self.walk(|value, to| values[to] = value);
        HostTensor {
            shape: self.shape.clone(),
            values,
        }
    }

    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Calls `visit(value, place in the tensor)` for every element.
    fn walk(&self, mut visit: impl FnMut(f32, usize)) {
        for (stored, parameter) in &self.parameters {
            let [rows, _] = stored.file_rows();
            parameter.read(|own| stored.places(0..rows, |from, to| visit(own[from], to)));
        }
    }
}

impl<B: Backend> View for &Published<B> {
    fn dtype(&self) -> Dtype {
        self.element.dtype()
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let mut bytes = vec![0; self.data_len()];
        self.walk(|value, to| self.element.write(value, &mut bytes, to));
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.len() * self.element.size()
    }
}

/// A module's parameters as the tensors of a published checkpoint, in the module's order. A parameter without a source
/// is left out.
pub fn published<B: Backend, M: Module<B>>(
    module: &M,
    element: Element,
    source: impl Fn(&str) -> Option<Source>,
) -> Vec<Published<B>> {
    let mut made: Vec<Published<B>> = Vec::new();
    for (path, parameter) in device_tensors(module) {
        let stored = source(&path).map(|source| source.stored(&parameter.shape));
        for stored in stored.unwrap_or_default() {
            let parameter = parameter.clone();
            // Parameters that share a tensor follow one another.
            match made.last_mut() {
                Some(last) if last.name == stored.name => last.parameters.push((stored, parameter)),
                _ => made.push(Published {
                    name: stored.name.clone(),
                    shape: stored.shape(),
                    parameters: vec![(stored, parameter)],
                    element,
                }),
            }
        }
    }
    made
}

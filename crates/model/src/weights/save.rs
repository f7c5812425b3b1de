//! Writing weights.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;

use burn::module::{Module, ParamId};
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, Tensor, TensorMetadata, TensorPrimitive};
use safetensors::{Dtype, View};

use super::element::Element;
use super::map::{Source, Stored};
use super::{ParamVisitor, visit_params};
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

/// The values as they lie in a file.
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
    values: Tensor<B, 1>,
}

impl<B: Backend> DeviceTensor<B> {
    /// A tensor of any rank.
    pub fn new(tensor: FloatTensor<B>) -> Self {
        let shape = tensor.shape();
        let flat = B::float_reshape(tensor, Shape::new([shape.num_elements()]));
        Self {
            shape: shape.to_vec(),
            values: Tensor::from_primitive(TensorPrimitive::Float(flat)),
        }
    }

    /// Its copy on the host.
    pub fn on_host(&self) -> HostTensor {
        HostTensor {
            shape: self.shape.clone(),
            values: self.values.to_data().iter::<f32>().collect(),
        }
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
        let data = self.values.to_data();
        Cow::Owned(match data.as_slice::<f32>() {
            Ok(values) => bytes_of(values),
            Err(_) => bytes_of(&data.iter::<f32>().collect::<Vec<_>>()),
        })
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * 4
    }
}

/// Every parameter of a module, by path, in the module's order.
pub fn device_tensors<B: Backend, M: Module<B>>(module: &M) -> Vec<(String, DeviceTensor<B>)> {
    let mut named = Name(Vec::new());
    visit_params(module, &mut named);
    named.0
}

struct Name<B: Backend>(Vec<(String, DeviceTensor<B>)>);

impl<B: Backend> ParamVisitor<B> for Name<B> {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<B, D>) {
        let tensor = DeviceTensor::new(value.into_primitive().tensor());
        self.0.push((path.to_owned(), tensor));
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
    let io = |reason: String| WeightsError::Io {
        path: file.to_owned(),
        reason,
    };
    // The crate writes files that only their owner can read: they get the permissions of any new file.
    let empty = File::create(file).and_then(|file| file.metadata());
    let permissions = empty.map_err(|error| io(error.to_string()))?.permissions();
    safetensors::serialize_to_file(views, Some(metadata), file)
        .map_err(|error| io(error.to_string()))?;
    fs::set_permissions(file, permissions).map_err(|error| io(error.to_string()))
}

/// A tensor as a published checkpoint has it, made of a parameter when it is written and not before.
#[derive(Clone, Debug)]
pub struct Published<B: Backend> {
    stored: Stored,
    shape: Vec<usize>,
    parameter: Tensor<B, 1>,
    element: Element,
}

impl<B: Backend> Published<B> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.stored.name
    }

    /// Its elements.
    pub fn values(&self) -> HostTensor {
        let own: Vec<f32> = self.parameter.to_data().iter::<f32>().collect();
        let mut values = vec![0.0; self.stored.len()];
        self.walk(|from, to| values[to] = own[from]);
        HostTensor {
            shape: self.shape.clone(),
            values,
        }
    }

    fn walk(&self, visit: impl FnMut(usize, usize)) {
        let [rows, _] = self.stored.file_rows();
        self.stored.places(0..rows, visit);
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
        let data = self.parameter.to_data();
        let own: Cow<'_, [f32]> = match data.as_slice::<f32>() {
            Ok(values) => Cow::Borrowed(values),
            Err(_) => Cow::Owned(data.iter::<f32>().collect()),
        };
        let mut bytes = vec![0; self.data_len()];
        self.walk(|from, to| self.element.write(own[from], &mut bytes, to));
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.stored.len() * self.element.size()
    }
}

/// A module's parameters as the tensors of a published checkpoint, in the module's order. A parameter without a source
/// is left out.
pub fn published<B: Backend, M: Module<B>>(
    module: &M,
    element: Element,
    source: impl Fn(&str) -> Option<Source>,
) -> Vec<Published<B>> {
    let mut made = Publish {
        source,
        element,
        made: Vec::new(),
    };
    visit_params(module, &mut made);
    made.made
}

struct Publish<B: Backend, S> {
    source: S,
    element: Element,
    made: Vec<Published<B>>,
}

impl<B: Backend, S: Fn(&str) -> Option<Source>> ParamVisitor<B> for Publish<B, S> {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<B, D>) {
        let shape = value.dims();
        let parameter = value.reshape([shape.iter().product::<usize>()]);
        let stored = (self.source)(path).map(|source| source.stored(&shape));
        for stored in stored.unwrap_or_default() {
            self.made.push(Published {
                shape: stored.shape(),
                stored,
                parameter: parameter.clone(),
                element: self.element,
            });
        }
    }
}

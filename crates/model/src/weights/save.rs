//! Writes weights as safetensors files.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use burn::module::Module;
use burn::tensor::backend::Backend;
use safetensors::{Dtype, SafeTensorError, View};

use super::element::Element;
use super::map::{Source, Stored};
use super::{DeviceTensor, HostTensor, device_tensors};
use crate::error::WeightsError;

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
    // The safetensors crate makes files readable only by their owner, so restore the default permissions.
    let created = File::create(file).and_then(|file| file.metadata());
    let permissions = created.map_err(io)?.permissions();
    safetensors::serialize_to_file(views, Some(metadata), file).map_err(|error| match error {
        SafeTensorError::IoError(error) => io(error),
        error => io(io::Error::other(error.to_string())),
    })?;
    fs::set_permissions(file, permissions).map_err(io)
}

/// A tensor of a published checkpoint. Its elements are computed from a parameter only when it is written.
#[derive(Clone, Debug)]
pub struct Published<B: Backend> {
    name: String,
    shape: Vec<usize>,
    /// The parameters in it; one, unless several share the tensor.
    parameters: Vec<(Stored, DeviceTensor<B>)>,
    element: Element,
}

impl<B: Backend> Published<B> {
    /// Name in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Removes a prefix from its name.
    pub(crate) fn strip_prefix(&mut self, prefix: &str) {
        if let Some(name) = self.name.strip_prefix(prefix) {
            self.name = name.to_owned();
        }
    }

    /// Dimensions in the file.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.shape
    }

    /// The parameter's input for each input of the tensor, if they have another order.
    pub(crate) fn input_order(&self) -> Option<Vec<usize>> {
        let (stored, _) = self.parameters.first()?;
        stored.inputs.as_ref()?;
        let inputs = self.shape.last().copied().unwrap_or_default();
        Some((0..inputs).map(|input| stored.own_row(input)).collect())
    }

    /// Computes the tensor in f32.
    pub fn values(&self) -> HostTensor {
        let mut values = vec![0.0; self.len()];
        self.for_each_element(|value, to| values[to] = value);
        HostTensor {
            shape: self.shape.clone(),
            values,
        }
    }

    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Calls `visit(value, index in the tensor)` for every element.
    fn for_each_element(&self, mut visit: impl FnMut(f32, usize)) {
        for (stored, parameter) in &self.parameters {
            let [rows, _] = stored.file_rows();
            parameter.read(|own| {
                stored.for_each_element(0..rows, |from, to| visit(own[from], to));
            });
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
        self.for_each_element(|value, to| self.element.write(value, &mut bytes, to));
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.len() * self.element.size()
    }
}

/// Converts a module's parameters to the tensors of a published checkpoint, in the module's order. Parameters without a
/// source are omitted.
pub fn published<B: Backend, M: Module<B>>(
    module: &M,
    element: Element,
    source: impl Fn(&str) -> Option<Source>,
) -> Vec<Published<B>> {
    let mut tensors: Vec<Published<B>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (path, parameter) in device_tensors(module) {
        let stored = source(&path).map(|source| source.stored(&parameter.shape));
        for stored in stored.unwrap_or_default() {
            let parameter = parameter.clone();
            match places.get(&stored.name) {
                Some(&place) => tensors[place].parameters.push((stored, parameter)),
                None => {
                    places.insert(stored.name.clone(), tensors.len());
                    tensors.push(Published {
                        name: stored.name.clone(),
                        shape: stored.shape(),
                        parameters: vec![(stored, parameter)],
                        element,
                    });
                }
            }
        }
    }
    tensors
}

//! Reading weights: every tensor of the file has its place, and every parameter its tensor, or it is an error.

use std::collections::BTreeSet;
use std::path::Path;

use burn::module::{Module, ParamId};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use mmap_io::MemoryMappedFile;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::map::Source;
use super::save::HostTensor;
use super::{ParamMapper, map_params};
use crate::checked::DecoderConfig;
use crate::decoder::Decoder;
use crate::error::WeightsError;

/// Loads a file that this project wrote: each parameter under its own path.
///
/// # Errors
/// The file cannot be read or is damaged; a tensor is missing, left over, or of another shape or type.
pub fn load_own<B: Backend, M: Module<B>>(module: M, file: &Path) -> Result<M, WeightsError> {
    load(module, file, "", |path| Some(Source::as_is(path)))
}

/// Loads a file in the names of the model's family. `prefix` stands before each name in the file.
///
/// # Errors
/// As [`load_own`].
pub fn load_family<B: emberlm_kernels::Backend>(
    decoder: Decoder<B>,
    file: &Path,
    prefix: &str,
) -> Result<Decoder<B>, WeightsError> {
    let config: DecoderConfig = decoder.config().clone();
    load(decoder, file, prefix, |path| {
        config.family.source(&config, path)
    })
}

fn load<B: Backend, M: Module<B>>(
    module: M,
    file: &Path,
    prefix: &str,
    source: impl Fn(&str) -> Option<Source>,
) -> Result<M, WeightsError> {
    let io = |reason: String| WeightsError::Io {
        path: file.to_owned(),
        reason,
    };
    let format = |reason: String| WeightsError::Format {
        path: file.to_owned(),
        reason,
    };
    let size = std::fs::metadata(file)
        .map_err(|error| io(error.to_string()))?
        .len();
    if size == 0 {
        return Err(format("it is empty".to_owned()));
    }
    let mapped = MemoryMappedFile::open_ro(file).map_err(|error| io(error.to_string()))?;
    let bytes = mapped
        .as_slice_bytes(0, size)
        .map_err(|error| io(error.to_string()))?;
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| format(error.to_string()))?;
    let unused = tensors
        .names()
        .into_iter()
        .filter_map(|name| name.strip_prefix(prefix))
        .map(str::to_owned)
        .collect();
    let mut loader = Loader {
        tensors,
        prefix,
        source,
        unused,
        error: None,
    };
    let module = map_params(module, &mut loader);
    match loader.error {
        Some(error) => Err(error),
        None if loader.unused.is_empty() => Ok(module),
        None => Err(WeightsError::LeftOver {
            names: loader.unused.into_iter().collect(),
        }),
    }
}

struct Loader<'a, S> {
    tensors: SafeTensors<'a>,
    prefix: &'a str,
    source: S,
    unused: BTreeSet<String>,
    /// The first error: the walk over the module cannot be stopped.
    error: Option<WeightsError>,
}

impl<B: Backend, S: Fn(&str) -> Option<Source>> ParamMapper<B> for Loader<'_, S> {
    fn map<const D: usize>(
        &mut self,
        path: &str,
        _id: ParamId,
        value: Tensor<B, D>,
    ) -> Tensor<B, D> {
        if self.error.is_some() {
            return value;
        }
        let expected = value.dims().to_vec();
        match self.find(path, &expected) {
            Ok(found) => {
                let tracked = value.is_require_grad();
                let data = TensorData::new(found.values, found.shape);
                Tensor::from_data(data, &value.device()).set_require_grad(tracked)
            }
            Err(error) => {
                self.error = Some(error);
                value
            }
        }
    }
}

impl<S: Fn(&str) -> Option<Source>> Loader<'_, S> {
    /// The tensor of a parameter, in the decoder's layout.
    fn find(&mut self, path: &str, expected: &[usize]) -> Result<HostTensor, WeightsError> {
        let source = (self.source)(path).ok_or_else(|| WeightsError::Missing {
            name: path.to_owned(),
        })?;
        let mut parts = Vec::new();
        for name in source.names() {
            parts.push((name.clone(), self.read(name)?));
        }
        match &source {
            Source::AsIs(_) => {
                let (name, tensor) = parts.swap_remove(0);
                shaped(&name, &tensor.shape, expected)?;
                Ok(tensor)
            }
            Source::Transposed(_) => joined(parts, expected),
        }
    }

    fn read(&mut self, name: &str) -> Result<HostTensor, WeightsError> {
        let full = format!("{}{name}", self.prefix);
        let view = self
            .tensors
            .tensor(&full)
            .map_err(|_| WeightsError::Missing { name: full.clone() })?;
        self.unused.remove(name);
        Ok(HostTensor {
            shape: view.shape().to_vec(),
            values: values_of(&full, &view)?,
        })
    }
}

fn values_of(name: &str, view: &TensorView<'_>) -> Result<Vec<f32>, WeightsError> {
    if view.dtype() != Dtype::F32 {
        return Err(WeightsError::Type {
            name: name.to_owned(),
            found: format!("{:?}", view.dtype()),
        });
    }
    let (chunks, _) = view.data().as_chunks::<4>();
    Ok(chunks
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect())
}

/// Matrices `[out, in]`, transposed and joined to one `[in, all outs]`.
fn joined(
    parts: Vec<(String, HostTensor)>,
    expected: &[usize],
) -> Result<HostTensor, WeightsError> {
    let [fan_in, width] = *expected else {
        let (name, tensor) = parts.into_iter().next().unwrap_or_else(no_part);
        return Err(shape_error(&name, &tensor.shape, expected));
    };
    let mut values = vec![0.0; fan_in * width];
    let mut start = 0;
    for (name, tensor) in &parts {
        let &[out, inner] = tensor.shape.as_slice() else {
            return Err(shape_error(name, &tensor.shape, &[width, fan_in]));
        };
        if inner != fan_in || start + out > width {
            return Err(shape_error(name, &tensor.shape, &[width - start, fan_in]));
        }
        for (o, row) in tensor.values.chunks_exact(fan_in.max(1)).enumerate() {
            for (i, value) in row.iter().enumerate() {
                values[i * width + start + o] = *value;
            }
        }
        start += out;
    }
    if start != width {
        let (name, tensor) = parts.into_iter().next_back().unwrap_or_else(no_part);
        return Err(shape_error(&name, &tensor.shape, &[width, fan_in]));
    }
    Ok(HostTensor {
        shape: expected.to_vec(),
        values,
    })
}

fn no_part() -> (String, HostTensor) {
    let (shape, values) = (Vec::new(), Vec::new());
    (String::new(), HostTensor { shape, values })
}

fn shaped(name: &str, found: &[usize], expected: &[usize]) -> Result<(), WeightsError> {
    if found == expected {
        Ok(())
    } else {
        Err(shape_error(name, found, expected))
    }
}

fn shape_error(name: &str, found: &[usize], expected: &[usize]) -> WeightsError {
    WeightsError::Shape {
        name: name.to_owned(),
        found: found.to_vec(),
        expected: expected.to_vec(),
    }
}

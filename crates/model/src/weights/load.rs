//! Loads weights. Every tensor must belong to a parameter, and every parameter must have a tensor.

use std::collections::BTreeSet;
use std::path::Path;

use burn::module::{Module, ParamId};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

use super::map::Source;
use super::quantized::{Quantized, unpacked};
use super::safetensors_store::SafetensorsStore;
use super::store::{TensorStore, check_shape, equal, rows_of};
use super::{ParamMapper, Parts, map_params};
use crate::error::WeightsError;
use crate::params::HostTensor;

/// Names of the tensors in a store.
pub(crate) struct Naming<'a, S> {
    /// Returns the source of a parameter, given its path.
    pub(crate) source: S,
    /// Prefix that either all names have or none has.
    pub(crate) optional_prefix: &'static str,
    /// Returns true if a tensor is not read: a mask or rotary table that older versions saved, or weights for another purpose.
    pub(crate) constant: Box<dyn Fn(&str) -> bool>,
    /// Tensors that some files store in addition to another one, of which they must be a copy, such as a tied head: the
    /// copy, the original.
    pub(crate) tied: &'a [(&'static str, &'static str)],
}

/// Loads a file written by [`super::save_own`], in which tensors are named by parameter paths.
///
/// # Errors
/// The file cannot be read or is damaged; a tensor is missing, unexpected, or has another shape or type.
pub fn load_own<B: Backend, M: Module<B>>(module: M, file: &Path) -> Result<M, WeightsError> {
    load_named(module, &SafetensorsStore::open(file)?, |path| {
        Some(Source::as_is(path))
    })
}

/// Reads every tensor of a safetensors file, with its name.
///
/// # Errors
/// The file cannot be read or is damaged, or a tensor does not have a supported floating-point type.
pub fn load_tensors(file: &Path) -> Result<Vec<(String, HostTensor)>, WeightsError> {
    read_tensors(file)?.collect()
}

/// Reads the tensors of a safetensors file one by one, with their names.
///
/// # Errors
/// The file cannot be read or is damaged, or, as an item, a tensor does not have a supported floating-point type.
pub fn read_tensors(
    file: &Path,
) -> Result<impl Iterator<Item = Result<(String, HostTensor), WeightsError>> + use<>, WeightsError>
{
    let store = SafetensorsStore::open(file)?;
    let names: Vec<String> = store.names().map(str::to_owned).collect();
    Ok(names.into_iter().map(move |name| {
        let shape = store.shape(&name).unwrap_or_default().to_vec();
        let [rows, row] = rows_of(&shape);
        let mut values = Vec::with_capacity(rows * row);
        store.read_rows(&name, 0..rows, &mut |_, run| values.extend_from_slice(run))?;
        Ok((name, HostTensor { shape, values }))
    }))
}

/// Loads a module from a store. `source` maps a parameter's path to its tensors.
///
/// # Errors
/// Those of [`load_own`].
pub fn load_named<B: Backend, M: Module<B>>(
    module: M,
    store: &dyn TensorStore,
    source: impl Fn(&str) -> Option<Source>,
) -> Result<M, WeightsError> {
    load(
        module,
        store,
        Naming {
            source,
            optional_prefix: "",
            constant: Box::new(|_| false),
            tied: &[],
        },
    )
}

pub(crate) fn load<B: Backend, M: Module<B>, S: Fn(&str) -> Option<Source>>(
    module: M,
    store: &dyn TensorStore,
    naming: Naming<'_, S>,
) -> Result<M, WeightsError> {
    Loader::new(&module, store, naming).load(module)
}

/// Loads a module like [`load`], except that a parameter may keep its value if `optional` returns true for its path and
/// the store has no tensors of its shape. Tensors that belong to no parameter are ignored.
pub(crate) fn load_present<B: Backend, M: Module<B>, S: Fn(&str) -> Option<Source>>(
    module: M,
    store: &dyn TensorStore,
    naming: Naming<'_, S>,
    optional: impl Fn(&str) -> bool,
) -> Result<M, WeightsError> {
    let loader = Loader::new(&module, store, naming);
    let mut present = PresentLoader { loader, optional };
    let module = map_params(module, &mut present);
    match present.loader.error {
        Some(error) => Err(error),
        None => Ok(module),
    }
}

struct PresentLoader<'a, S, O> {
    loader: Loader<'a, S>,
    optional: O,
}

impl<B, S, O> ParamMapper<B> for PresentLoader<'_, S, O>
where
    B: Backend,
    S: Fn(&str) -> Option<Source>,
    O: Fn(&str) -> bool,
{
    fn map<const D: usize>(
        &mut self,
        path: &str,
        id: ParamId,
        value: Tensor<B, D>,
    ) -> Tensor<B, D> {
        match (self.optional)(path) && !self.loader.has(path, &value.dims()) {
            true => value,
            false => self.loader.map(path, id, value),
        }
    }
}

/// Loads the parameters of one module.
pub(super) struct Loader<'a, S> {
    pub(super) store: &'a dyn TensorStore,
    pub(super) naming: Naming<'a, S>,
    /// Split tables of the module; a file stores each as one tensor.
    pub(super) parts: Parts,
    /// Parameters that are packed in the store; `None` if all are in floating point.
    pub(super) quantized: Option<Quantized>,
    /// Names of the tensors that have not been read.
    pub(super) unused: BTreeSet<String>,
    /// The first error, which ends loading: Burn's traversal of the module cannot be stopped.
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
        let (shape, tracked, device) = (value.dims(), value.is_require_grad(), value.device());
        // Free the old value before allocating the new one, to reduce peak memory.
        drop(value);
        match self.values(path, &shape) {
            Ok(values) => {
                let data = TensorData::new(values, shape);
                Tensor::from_data(data, &device).set_require_grad(tracked)
            }
            Err(error) => {
                self.error = Some(error);
                Tensor::zeros(shape, &device)
            }
        }
    }
}

impl<'a, S: Fn(&str) -> Option<Source>> Loader<'a, S> {
    pub(super) fn new<B: Backend, M: Module<B>>(
        module: &M,
        store: &'a dyn TensorStore,
        naming: Naming<'a, S>,
    ) -> Self {
        Self {
            unused: store.names().map(str::to_owned).collect(),
            parts: Parts::of(module),
            quantized: None,
            store,
            naming,
            error: None,
        }
    }

    /// Loads all parameters of the module and checks that every tensor of the store has been read.
    pub(super) fn load<B: Backend, M: Module<B>>(mut self, module: M) -> Result<M, WeightsError> {
        let module = map_params(module, &mut self);
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.finish()?;
        Ok(module)
    }

    /// Reads the elements of the parameter at `path`, in the decoder's layout.
    pub(super) fn values(&mut self, path: &str, shape: &[usize]) -> Result<Vec<f32>, WeightsError> {
        if let Some(matrix) = self.packed(path, shape)?
            && let Some(quantized) = &self.quantized
            && let Some(role) = quantized.parameters.role(path)
        {
            return Ok(unpacked(&matrix, role));
        }
        let range = self.parts.row_range(path);
        let missing = || WeightsError::Missing {
            name: range.whole.to_owned(),
        };
        let source = (self.naming.source)(range.whole).ok_or_else(missing)?;
        let elements = range.elements(shape);
        let mut values = vec![0.0; elements.len()];
        for stored in source.stored(&range.whole_shape(shape)) {
            let name = self.name_in_file(&stored.name);
            let [_, row] = stored.file_rows();
            let rows = range.start..range.start + shape.first().copied().unwrap_or(1);
            let rows = stored.file_rows_with(rows);
            check_shape(self.store, &name, &stored.shape())?;
            self.store.read_rows(&name, rows, &mut |rows, run| {
                let first = rows.start * row;
                stored.for_each_element(rows, |own, in_file| {
                    // Skip elements of other parts.
                    if elements.contains(&own) {
                        values[own - elements.start] = run[in_file - first];
                    }
                });
            })?;
            self.unused.remove(&name);
        }
        Ok(values)
    }

    /// Returns true if the store has all tensors of the parameter at `path`, in its shape.
    fn has(&self, path: &str, shape: &[usize]) -> bool {
        let range = self.parts.row_range(path);
        let Some(source) = (self.naming.source)(range.whole) else {
            return false;
        };
        let mut stored = source.stored(&range.whole_shape(shape)).into_iter();
        stored.all(|stored| {
            let name = self.name_in_file(&stored.name);
            self.store.shape(&name) == Some(&stored.shape()[..])
        })
    }

    /// Resolves optional prefixes and tied names to the name that the store uses.
    pub(super) fn name_in_file(&self, name: &str) -> String {
        let copies = self.naming.tied.iter();
        let copies = copies.filter(|(_, original)| *original == name);
        // A tied pair is stored once, under either name.
        let mut names = std::iter::once(name).chain(copies.map(|(copy, _)| *copy));
        names
            .find_map(|name| self.stored_name(name))
            .unwrap_or_else(|| name.to_owned())
    }

    /// The name under which the store has a tensor: itself, without the optional prefix, or with the names that early
    /// versions gave to a norm's gain and bias.
    fn stored_name(&self, name: &str) -> Option<String> {
        let short = name.strip_prefix(self.naming.optional_prefix);
        let names = std::iter::once(name).chain(short);
        names
            .flat_map(|name| std::iter::once(name.to_owned()).chain(early_norm(name)))
            .find(|name| self.store.contains(name))
    }

    /// Checks that the remaining tensors are not weights.
    fn finish(mut self) -> Result<(), WeightsError> {
        for (copy, original) in self.naming.tied {
            let Some(copy) = self.stored_name(copy) else {
                continue;
            };
            if !self.unused.contains(&copy) {
                continue;
            }
            let original = self.name_in_file(original);
            if !equal(self.store, &copy, &original)? {
                return Err(WeightsError::NotTied {
                    name: copy,
                    embedding: original,
                });
            }
            self.unused.remove(&copy);
        }
        let constant = &self.naming.constant;
        let names: Vec<String> = self
            .unused
            .into_iter()
            .filter(|name| !constant(name))
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(WeightsError::LeftOver { names })
    }
}

/// The name of a norm's gain or bias in checkpoints converted from early TensorFlow models.
fn early_norm(name: &str) -> Option<String> {
    let (norm, vector) = name.rsplit_once("LayerNorm.")?;
    match vector {
        "weight" => Some(format!("{norm}LayerNorm.gamma")),
        "bias" => Some(format!("{norm}LayerNorm.beta")),
        _ => None,
    }
}

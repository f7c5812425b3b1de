//! Writes files of version 3.

use std::io::{self, Write};

use crate::error::GgufError;
use crate::metadata::Metadata;
use crate::tensor::TensorInfo;
use crate::tensor_type::TensorType;
use crate::value::{Array, Value};
use crate::{ALIGNMENT, ALIGNMENT_KEY, MAGIC, MAX_DIMENSIONS, VERSION};

/// Metadata and tensor descriptions of a file to write.
#[derive(Clone, Debug, Default)]
pub struct GgufHeader {
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    /// Size of the data so far, a multiple of the alignment.
    data_bytes: u64,
}

impl GgufHeader {
    /// A header without keys and tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the value of a key. The alignment is always 32 and cannot be set.
    pub fn insert(&mut self, key: impl Into<String>, value: Value) {
        let key = key.into();
        if key != ALIGNMENT_KEY {
            self.metadata.insert(key, value);
        }
    }

    /// The metadata so far.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors so far, in order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Adds a tensor of `shape`, the slowest-varying size first. Tensors are written in the order in which they are
    /// added.
    ///
    /// # Errors
    /// The name is already used; there are more than four sizes, or one is 0; rows are not made of whole blocks.
    pub fn add_tensor(
        &mut self,
        name: &str,
        shape: &[usize],
        tensor_type: TensorType,
    ) -> Result<(), GgufError> {
        let error = |reason: String| GgufError::Tensor {
            name: name.to_owned(),
            reason,
        };
        if self.tensors.iter().any(|tensor| tensor.name == name) {
            return Err(error("it was added before".to_owned()));
        }
        if shape.len() > MAX_DIMENSIONS || shape.contains(&0) {
            return Err(error(format!(
                "its shape is {shape:?}; must have at most {MAX_DIMENSIONS} sizes of at least 1"
            )));
        }
        let start = self.data_bytes;
        let tensor = TensorInfo::new(name.to_owned(), shape.to_vec(), tensor_type, start);
        let tensor = tensor.map_err(error)?;
        let end = start.saturating_add(tensor.bytes());
        self.data_bytes = end.next_multiple_of(ALIGNMENT);
        self.tensors.push(tensor);
        Ok(())
    }

    /// Writes the header. The returned writer takes the tensors' bytes.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write_to<W: Write>(self, mut out: W) -> io::Result<GgufWriter<W>> {
        let mut bytes = Vec::new();
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.metadata.iter().len() as u64).to_le_bytes());
        for (key, value) in self.metadata.iter() {
            put_string(&mut bytes, key);
            bytes.extend(value.type_id().to_le_bytes());
            put_value(&mut bytes, value);
        }
        for tensor in &self.tensors {
            put_string(&mut bytes, &tensor.name);
            bytes.extend((tensor.shape.len() as u32).to_le_bytes());
            for &size in tensor.shape.iter().rev() {
                bytes.extend((size as u64).to_le_bytes());
            }
            bytes.extend(tensor.tensor_type.id().to_le_bytes());
            bytes.extend(tensor.start.to_le_bytes());
        }
        pad(&mut bytes);
        out.write_all(&bytes)?;
        Ok(GgufWriter {
            out,
            sizes: self.tensors.iter().map(TensorInfo::bytes).collect(),
            current: 0,
            written: 0,
        })
    }
}

/// Writes the data of tensors.
#[derive(Debug)]
pub struct GgufWriter<W> {
    out: W,
    /// Sizes of the tensors in bytes.
    sizes: Vec<u64>,
    /// Index of the tensor that is being written.
    current: usize,
    /// Number of its bytes that have been written.
    written: u64,
}

impl<W: Write> GgufWriter<W> {
    /// Writes the next bytes of the current tensor, and moves to the next tensor when it is complete.
    ///
    /// # Errors
    /// The bytes are more than the rest of the tensor, or cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let size = self.sizes.get(self.current).copied().unwrap_or(0);
        let written = self.written + bytes.len() as u64;
        if written > size {
            return Err(invalid(format!(
                "{written} bytes for tensor {} of {size} bytes",
                self.current
            )));
        }
        self.out.write_all(bytes)?;
        self.written = written;
        if written == size {
            let padding = size.next_multiple_of(ALIGNMENT) - size;
            self.out
                .write_all(&[0; ALIGNMENT as usize][..padding as usize])?;
            self.current += 1;
            self.written = 0;
        }
        Ok(())
    }

    /// Checks that all tensors have been written, and returns the output.
    ///
    /// # Errors
    /// A tensor is incomplete, or the output cannot be flushed.
    pub fn finish(mut self) -> io::Result<W> {
        if self.current < self.sizes.len() {
            return Err(invalid(format!(
                "{} of {} tensors were written",
                self.current,
                self.sizes.len()
            )));
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

fn pad(bytes: &mut Vec<u8>) {
    let len = (bytes.len() as u64).next_multiple_of(ALIGNMENT);
    bytes.resize(len as usize, 0);
}

fn put_string(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn put_value(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(value) => bytes.extend(value.to_le_bytes()),
        Value::I8(value) => bytes.extend(value.to_le_bytes()),
        Value::U16(value) => bytes.extend(value.to_le_bytes()),
        Value::I16(value) => bytes.extend(value.to_le_bytes()),
        Value::U32(value) => bytes.extend(value.to_le_bytes()),
        Value::I32(value) => bytes.extend(value.to_le_bytes()),
        Value::F32(value) => bytes.extend(value.to_le_bytes()),
        Value::Bool(value) => bytes.push(u8::from(*value)),
        Value::String(text) => put_string(bytes, text),
        Value::U64(value) => bytes.extend(value.to_le_bytes()),
        Value::I64(value) => bytes.extend(value.to_le_bytes()),
        Value::F64(value) => bytes.extend(value.to_le_bytes()),
        Value::Array(array) => {
            bytes.extend(array.type_id().to_le_bytes());
            bytes.extend((array.len() as u64).to_le_bytes());
            put_elements(bytes, array);
        }
    }
}

fn put_elements(bytes: &mut Vec<u8>, array: &Array) {
    match array {
        Array::U8(list) => bytes.extend(list),
        Array::I8(list) => bytes.extend(list.iter().flat_map(|x| x.to_le_bytes())),
        Array::U16(list) => bytes.extend(list.iter().flat_map(|x| x.to_le_bytes())),
        Array::I16(list) => bytes.extend(list.iter().flat_map(|x| x.to_le_bytes())),
        Array::U32(list) => bytes.extend(list.iter().flat_map(|x| x.to_le_bytes())),
        Array::I32(list) => bytes.extend(list.iter().flat_map(|x| x.to_le_bytes())),
        Array::F32(list) => bytes.extend(list.iter().flat_map(|x| x.to_le_bytes())),
        Array::Bool(list) => bytes.extend(list.iter().map(|&flag| u8::from(flag))),
        Array::String(list) => list.iter().for_each(|text| put_string(bytes, text)),
        Array::U64(list) => bytes.extend(list.iter().flat_map(|x| x.to_le_bytes())),
        Array::I64(list) => bytes.extend(list.iter().flat_map(|x| x.to_le_bytes())),
        Array::F64(list) => bytes.extend(list.iter().flat_map(|x| x.to_le_bytes())),
    }
}

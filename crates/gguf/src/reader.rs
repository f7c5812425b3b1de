//! Parses the header of a file: metadata and tensor descriptions.
//!
//! Every length is compared with the remaining bytes before memory is allocated for it, so a damaged file cannot cost
//! more than a small multiple of its size.

use std::collections::HashSet;

use crate::metadata::Metadata;
use crate::tensor::TensorInfo;
use crate::tensor_type::TensorType;
use crate::value::{Array, Value};
use crate::{ALIGNMENT, ALIGNMENT_KEY, MAGIC, MAX_DIMENSIONS, VERSION};

/// Maximum size of a header in bytes. The largest in use, with vocabularies of 256,000 tokens, have about 20 MB.
const MAX_HEADER: usize = 512 << 20;
/// Maximum length of a key or a tensor name in bytes. Files in use have at most 64.
const MAX_NAME: u64 = 65_535;
/// Maximum length of a string value in bytes.
const MAX_STRING: u64 = 64 << 20;
/// Maximum number of elements of a list.
const MAX_ELEMENTS: u64 = 1 << 25;
/// Maximum number of keys.
const MAX_KEYS: u64 = 1 << 16;
/// Maximum number of tensors.
const MAX_TENSORS: u64 = 1 << 20;
/// Maximum alignment of tensors in bytes.
const MAX_ALIGNMENT: u64 = 1 << 20;

/// The header of one file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Metadata.
    pub metadata: Metadata,
    /// Tensors in the order of the file.
    pub tensors: Vec<TensorInfo>,
}

type Read<T> = Result<T, String>;

/// Parses a file from its bytes. Tensors are checked to be within the bytes, and are not read.
///
/// # Errors
/// Describes the first violation of the format.
pub fn read_header(bytes: &[u8]) -> Result<Header, String> {
    let mut cursor = Cursor::begin(bytes)?;
    let tensor_count = cursor.length("the number of tensors", MAX_TENSORS)?;
    let key_count = cursor.length("the number of metadata keys", MAX_KEYS)?;
    let mut metadata = Metadata::default();
    for _ in 0..key_count {
        let key = cursor.string("a metadata key", MAX_NAME)?;
        let value = cursor
            .value()
            .map_err(|reason| format!("metadata `{key}`: {reason}"))?;
        if !metadata.insert(key.as_str(), value) {
            return Err(format!("metadata `{key}` is there twice"));
        }
    }
    let alignment = alignment(&metadata)?;
    let mut tensors = Vec::with_capacity(cursor.fitting(tensor_count, 24));
    let mut names = HashSet::new();
    for _ in 0..tensor_count {
        let name = cursor.string("the name of a tensor", MAX_NAME)?;
        if !names.insert(name.clone()) {
            return Err(format!("tensor `{name}` is there twice"));
        }
        let tensor = cursor.tensor(name.clone(), alignment);
        tensors.push(tensor.map_err(|reason| format!("tensor `{name}`: {reason}"))?);
    }
    let data = (cursor.at as u64).next_multiple_of(alignment);
    for tensor in &mut tensors {
        let end = tensor.start.checked_add(tensor.bytes());
        let end = end.and_then(|end| end.checked_add(data));
        if end.is_none_or(|end| end > bytes.len() as u64) {
            return Err(format!(
                "tensor `{}` of {} bytes at {} ends behind the {} bytes of the file",
                tensor.name,
                tensor.bytes(),
                data.saturating_add(tensor.start),
                bytes.len()
            ));
        }
        tensor.start += data;
    }
    Ok(Header { metadata, tensors })
}

fn alignment(metadata: &Metadata) -> Read<u64> {
    let alignment = metadata
        .count(ALIGNMENT_KEY)
        .map_err(|error| error.to_string())?;
    match alignment.unwrap_or(ALIGNMENT) {
        alignment @ 1..=MAX_ALIGNMENT if alignment.is_power_of_two() => Ok(alignment),
        alignment => Err(format!(
            "metadata `{ALIGNMENT_KEY}` = {alignment}: must be a power of two up to {MAX_ALIGNMENT}"
        )),
    }
}

/// A position in a header.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// True for version 1, whose lengths have 32 bits.
    short_lengths: bool,
}

impl<'a> Cursor<'a> {
    /// Reads magic and version.
    fn begin(bytes: &'a [u8]) -> Read<Self> {
        let mut cursor = Self {
            bytes,
            at: 0,
            short_lengths: false,
        };
        if cursor.take(4)? != MAGIC {
            return Err("it does not begin with GGUF".to_owned());
        }
        let version = cursor.number(u32::from_le_bytes)?;
        match version {
            1..=VERSION => {}
            _ if (1..=VERSION).contains(&version.swap_bytes()) => {
                return Err("its numbers are big-endian, which is not supported".to_owned());
            }
            _ => return Err(format!("its version {version} is not 1 to {VERSION}")),
        }
        cursor.short_lengths = version == 1;
        Ok(cursor)
    }

    fn take(&mut self, len: usize) -> Read<&'a [u8]> {
        let end = self.at.checked_add(len);
        let end = end.filter(|&end| end <= MAX_HEADER.min(self.bytes.len()));
        let Some(end) = end else {
            return Err(match self.at.saturating_add(len) > MAX_HEADER {
                true => format!("its header is longer than {MAX_HEADER} bytes"),
                false => format!(
                    "it ends within its header, after {} bytes",
                    self.bytes.len()
                ),
            });
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn number<const N: usize, T>(&mut self, read: fn([u8; N]) -> T) -> Read<T> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(read(bytes))
    }

    fn length(&mut self, what: &str, limit: u64) -> Read<u64> {
        let length = match self.short_lengths {
            true => self.number(u32::from_le_bytes)?.into(),
            false => self.number(u64::from_le_bytes)?,
        };
        match length > limit {
            true => Err(format!("{what} is {length}; the limit is {limit}")),
            false => Ok(length),
        }
    }

    /// `count`, but at most the number of items of at least `item_bytes` that fit into the remaining bytes.
    fn fitting(&self, count: u64, item_bytes: usize) -> usize {
        let remaining = self.bytes.len().saturating_sub(self.at) / item_bytes;
        usize::try_from(count).map_or(remaining, |count| count.min(remaining))
    }

    fn string(&mut self, what: &str, limit: u64) -> Read<String> {
        let len = self.length(&format!("the length of {what}"), limit)?;
        let bytes = self.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        let text = std::str::from_utf8(bytes);
        Ok(text.map_err(|_| format!("{what} is not UTF-8"))?.to_owned())
    }

    fn bool(&mut self) -> Read<bool> {
        match self.number(u8::from_le_bytes)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("a boolean is {other}; must be 0 or 1")),
        }
    }

    fn text(&mut self) -> Read<String> {
        self.string("a string", MAX_STRING)
    }

    fn value(&mut self) -> Read<Value> {
        Ok(match self.number(u32::from_le_bytes)? {
            0 => Value::U8(self.number(u8::from_le_bytes)?),
            1 => Value::I8(self.number(i8::from_le_bytes)?),
            2 => Value::U16(self.number(u16::from_le_bytes)?),
            3 => Value::I16(self.number(i16::from_le_bytes)?),
            4 => Value::U32(self.number(u32::from_le_bytes)?),
            5 => Value::I32(self.number(i32::from_le_bytes)?),
            6 => Value::F32(self.number(f32::from_le_bytes)?),
            7 => Value::Bool(self.bool()?),
            8 => Value::String(self.text()?),
            9 => Value::Array(self.array()?),
            10 => Value::U64(self.number(u64::from_le_bytes)?),
            11 => Value::I64(self.number(i64::from_le_bytes)?),
            12 => Value::F64(self.number(f64::from_le_bytes)?),
            other => return Err(format!("its type is number {other}, which is unknown")),
        })
    }

    fn array(&mut self) -> Read<Array> {
        let kind = self.number(u32::from_le_bytes)?;
        let count = self.length("the number of elements", MAX_ELEMENTS)?;
        Ok(match kind {
            0 => Array::U8(self.list(count, 1, |c| c.number(u8::from_le_bytes))?),
            1 => Array::I8(self.list(count, 1, |c| c.number(i8::from_le_bytes))?),
            2 => Array::U16(self.list(count, 2, |c| c.number(u16::from_le_bytes))?),
            3 => Array::I16(self.list(count, 2, |c| c.number(i16::from_le_bytes))?),
            4 => Array::U32(self.list(count, 4, |c| c.number(u32::from_le_bytes))?),
            5 => Array::I32(self.list(count, 4, |c| c.number(i32::from_le_bytes))?),
            6 => Array::F32(self.list(count, 4, |c| c.number(f32::from_le_bytes))?),
            7 => Array::Bool(self.list(count, 1, Self::bool)?),
            8 => Array::String(self.list(count, 8, Self::text)?),
            9 => return Err("lists of lists are not supported".to_owned()),
            10 => Array::U64(self.list(count, 8, |c| c.number(u64::from_le_bytes))?),
            11 => Array::I64(self.list(count, 8, |c| c.number(i64::from_le_bytes))?),
            12 => Array::F64(self.list(count, 8, |c| c.number(f64::from_le_bytes))?),
            other => {
                return Err(format!(
                    "its elements have type number {other}, which is unknown"
                ));
            }
        })
    }

    fn list<T>(
        &mut self,
        count: u64,
        item_bytes: usize,
        read: impl Fn(&mut Self) -> Read<T>,
    ) -> Read<Vec<T>> {
        let mut list = Vec::with_capacity(self.fitting(count, item_bytes));
        for _ in 0..count {
            list.push(read(self)?);
        }
        Ok(list)
    }

    /// Reads a tensor's description. Its start is still relative to the data.
    fn tensor(&mut self, name: String, alignment: u64) -> Read<TensorInfo> {
        let dimensions = self.number(u32::from_le_bytes)? as usize;
        if dimensions > MAX_DIMENSIONS {
            return Err(format!(
                "it has {dimensions} dimensions; the limit is {MAX_DIMENSIONS}"
            ));
        }
        let mut shape = Vec::with_capacity(dimensions);
        for _ in 0..dimensions {
            // Sizes are as long as lengths.
            let size = self.length("a size", u64::MAX)?;
            let size = usize::try_from(size).ok().filter(|&size| size > 0);
            shape.push(size.ok_or("a size must be at least 1")?);
        }
        shape.reverse();
        let tensor_type = TensorType::from_id(self.number(u32::from_le_bytes)?)?;
        let start = self.number(u64::from_le_bytes)?;
        if !start.is_multiple_of(alignment) {
            return Err(format!(
                "its offset {start} must be a multiple of the alignment {alignment}"
            ));
        }
        TensorInfo::new(name, shape, tensor_type, start)
    }
}

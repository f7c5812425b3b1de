//! Metadata values.

use std::fmt;

/// Maximum number of array elements that an error message shows.
const SHOWN_ELEMENTS: usize = 4;
/// Maximum number of characters of a string that an error message shows.
const SHOWN_CHARACTERS: usize = 80;

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned 8-bit integer.
    U8(u8),
    /// A signed 8-bit integer.
    I8(i8),
    /// An unsigned 16-bit integer.
    U16(u16),
    /// A signed 16-bit integer.
    I16(i16),
    /// An unsigned 32-bit integer.
    U32(u32),
    /// A signed 32-bit integer.
    I32(i32),
    /// A number in single precision.
    F32(f32),
    /// A boolean.
    Bool(bool),
    /// A UTF-8 string.
    String(String),
    /// A list of values of one type.
    Array(Array),
    /// An unsigned 64-bit integer.
    U64(u64),
    /// A signed 64-bit integer.
    I64(i64),
    /// A number in double precision.
    F64(f64),
}

/// A list of values of one type. Lists of lists are not supported.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Unsigned 8-bit integers.
    U8(Vec<u8>),
    /// Signed 8-bit integers.
    I8(Vec<i8>),
    /// Unsigned 16-bit integers.
    U16(Vec<u16>),
    /// Signed 16-bit integers.
    I16(Vec<i16>),
    /// Unsigned 32-bit integers.
    U32(Vec<u32>),
    /// Signed 32-bit integers.
    I32(Vec<i32>),
    /// Numbers in single precision.
    F32(Vec<f32>),
    /// Booleans.
    Bool(Vec<bool>),
    /// UTF-8 strings.
    String(Vec<String>),
    /// Unsigned 64-bit integers.
    U64(Vec<u64>),
    /// Signed 64-bit integers.
    I64(Vec<i64>),
    /// Numbers in double precision.
    F64(Vec<f64>),
}

impl Value {
    /// The number of the type in files.
    pub(crate) const fn type_id(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::String(_) => 8,
            Self::Array(_) => 9,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }

    /// The value as an integer, if it is one.
    pub fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(value) => value.into(),
            Self::I8(value) => value.into(),
            Self::U16(value) => value.into(),
            Self::I16(value) => value.into(),
            Self::U32(value) => value.into(),
            Self::I32(value) => value.into(),
            Self::U64(value) => value.into(),
            Self::I64(value) => value.into(),
            _ => return None,
        })
    }

    /// The value as a number, if it is one. Single precision gives the shortest decimal number that rounds to it, so
    /// that a setting such as 1e-5 is the number that it was written for.
    pub fn number(&self) -> Option<f64> {
        match *self {
            Self::F32(value) => value.to_string().parse().ok(),
            Self::F64(value) => Some(value),
            _ => self.integer().map(|value| value as f64),
        }
    }
}

impl Array {
    /// The number of the elements' type in files.
    pub(crate) const fn type_id(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::String(_) => 8,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(list) => list.len(),
            Self::I8(list) => list.len(),
            Self::U16(list) => list.len(),
            Self::I16(list) => list.len(),
            Self::U32(list) => list.len(),
            Self::I32(list) => list.len(),
            Self::F32(list) => list.len(),
            Self::Bool(list) => list.len(),
            Self::String(list) => list.len(),
            Self::U64(list) => list.len(),
            Self::I64(list) => list.len(),
            Self::F64(list) => list.len(),
        }
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `index`.
    pub fn get(&self, index: usize) -> Option<Value> {
        Some(match self {
            Self::U8(list) => Value::U8(*list.get(index)?),
            Self::I8(list) => Value::I8(*list.get(index)?),
            Self::U16(list) => Value::U16(*list.get(index)?),
            Self::I16(list) => Value::I16(*list.get(index)?),
            Self::U32(list) => Value::U32(*list.get(index)?),
            Self::I32(list) => Value::I32(*list.get(index)?),
            Self::F32(list) => Value::F32(*list.get(index)?),
            Self::Bool(list) => Value::Bool(*list.get(index)?),
            Self::String(list) => Value::String(list.get(index)?.clone()),
            Self::U64(list) => Value::U64(*list.get(index)?),
            Self::I64(list) => Value::I64(*list.get(index)?),
            Self::F64(list) => Value::F64(*list.get(index)?),
        })
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Value> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(value) => value.fmt(f),
            Self::I8(value) => value.fmt(f),
            Self::U16(value) => value.fmt(f),
            Self::I16(value) => value.fmt(f),
            Self::U32(value) => value.fmt(f),
            Self::I32(value) => value.fmt(f),
            Self::F32(value) => value.fmt(f),
            Self::Bool(value) => value.fmt(f),
            Self::U64(value) => value.fmt(f),
            Self::I64(value) => value.fmt(f),
            Self::F64(value) => value.fmt(f),
            Self::String(value) => {
                let shown: String = value.chars().take(SHOWN_CHARACTERS).collect();
                write!(f, "{shown:?}")?;
                f.write_str(if shown.len() < value.len() { "…" } else { "" })
            }
            Self::Array(array) => {
                f.write_str("[")?;
                for (at, value) in array.iter().take(SHOWN_ELEMENTS).enumerate() {
                    f.write_str(if at > 0 { ", " } else { "" })?;
                    value.fmt(f)?;
                }
                match array.len() > SHOWN_ELEMENTS {
                    true => write!(f, ", … {} elements]", array.len()),
                    false => f.write_str("]"),
                }
            }
        }
    }
}

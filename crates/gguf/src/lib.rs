//! Reads and writes GGUF files, the format of llama.cpp: typed metadata and named tensors in one file.
//!
//! The crate defines the container only. The model crate maps metadata and tensors to models, and the tokenizer crate
//! maps them to tokenizers.
//!
//! | type | purpose |
//! |---|---|
//! | [`GgufFile`] | a memory-mapped file, or all files of a split model |
//! | [`Metadata`] | the keys and their values, with typed access |
//! | [`Value`], [`Array`] | a value of any type of the format |
//! | [`TensorType`] | element types and block formats |
//! | [`TensorInfo`] | name, shape, type and location of a tensor |
//! | [`GgufHeader`], [`GgufWriter`] | writing a file |
//! | [`GgufError`] | errors of files and of metadata |
//!
//! ```
//! use emberlm_gguf::{GgufFile, GgufHeader, TensorType, Value};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("model.gguf");
//!
//! let mut header = GgufHeader::new();
//! header.insert("general.architecture", Value::String("llama".to_owned()));
//! header.add_tensor("output_norm.weight", &[2], TensorType::F32)?;
//! let mut writer = header.write_to(std::fs::File::create(&path)?)?;
//! writer.write(&[0; 8])?;
//! writer.finish()?;
//!
//! let file = GgufFile::open(&path)?;
//! assert_eq!(file.metadata().text("general.architecture")?, Some("llama"));
//! assert_eq!(file.tensor("output_norm.weight").map(|tensor| tensor.rows()), Some(2));
//! # Ok(())
//! # }
//! ```

mod error;
mod file;
mod metadata;
mod reader;
mod tensor;
mod tensor_type;
mod value;
mod writer;

pub use error::GgufError;
pub use file::{GgufFile, is_gguf};
pub use metadata::Metadata;
pub use reader::{Header, read_header};
pub use tensor::TensorInfo;
pub use tensor_type::TensorType;
pub use value::{Array, Value};
pub use writer::{GgufHeader, GgufWriter};

/// The first four bytes of a file.
const MAGIC: [u8; 4] = *b"GGUF";
/// The version that is written, and the newest that is read.
const VERSION: u32 = 3;
/// Alignment of tensors in bytes, unless the metadata have another.
const ALIGNMENT: u64 = 32;
/// Key of the alignment.
const ALIGNMENT_KEY: &str = "general.alignment";
/// Maximum number of dimensions of a tensor.
const MAX_DIMENSIONS: usize = 4;

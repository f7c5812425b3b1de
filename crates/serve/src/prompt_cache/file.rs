//! The file of a cached sequence.
//!
//! ```text
//! "emberlm prompt cache 1\n"
//! length of the header in bytes    u32, little-endian
//! header                           JSON: `Header`
//! tensors                          the elements of each, little-endian
//! BLAKE3 of everything before      32 bytes
//! ```

use std::io::Read;

use burn::tensor::{DType, TensorData};
use emberlm_generate::CachedSequence;
use emberlm_model::SavedCache;
use serde::{Deserialize, Serialize};

const MAGIC: [u8; 23] = *b"emberlm prompt cache 1\n";
const HASH: usize = 32;

/// The description of a sequence.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    /// The hash of everything that the values depend on.
    version: String,
    pub tokens: Vec<u32>,
    pub adapter: Option<usize>,
    chunked: usize,
    tensors: Vec<TensorHeader>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct TensorHeader {
    kind: Kind,
    shape: [usize; 4],
}

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    F32,
    /// Packed vectors.
    U8,
}

impl Kind {
    fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F32 => Some(Self::F32),
            DType::U8 => Some(Self::U8),
            _ => None,
        }
    }

    fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::U8 => 1,
        }
    }
}

impl TensorHeader {
    fn of(tensor: &TensorData) -> Option<Self> {
        Some(Self {
            kind: Kind::of(tensor.dtype)?,
            shape: tensor.shape.as_slice().try_into().ok()?,
        })
    }

    fn bytes(&self) -> Option<usize> {
        let mut sizes = self.shape.iter();
        sizes.try_fold(self.kind.size(), |bytes, &size| bytes.checked_mul(size))
    }

    /// The tensor of `bytes`, as many as [`TensorHeader::bytes`] says.
    fn tensor(&self, bytes: &[u8]) -> TensorData {
        match self.kind {
            Kind::F32 => {
                let (elements, _) = bytes.as_chunks::<4>();
                let elements = elements.iter().map(|&bytes| f32::from_le_bytes(bytes));
                TensorData::new(elements.collect::<Vec<f32>>(), self.shape)
            }
            Kind::U8 => TensorData::new(bytes.to_vec(), self.shape),
        }
    }
}

/// The content of a sequence's file. `None` if its tensors have a type that is not supported.
pub(super) fn encode(version: &str, sequence: CachedSequence) -> Option<Vec<u8>> {
    let tensors = sequence.cache.tensors;
    let header = Header {
        version: version.to_owned(),
        tokens: sequence.tokens,
        adapter: sequence.adapter,
        chunked: sequence.chunked,
        tensors: tensors
            .iter()
            .map(TensorHeader::of)
            .collect::<Option<_>>()?,
    };
    let header = serde_json::to_vec(&header).ok()?;
    let mut content = MAGIC.to_vec();
    content.extend(u32::try_from(header.len()).ok()?.to_le_bytes());
    content.extend(header);
    for tensor in &tensors {
        // On a little-endian machine these are the bytes in memory.
        match tensor.dtype {
            DType::F32 => {
                let elements = tensor.as_slice::<f32>().ok()?;
                content.extend(elements.iter().flat_map(|x| x.to_le_bytes()));
            }
            _ => content.extend(tensor.as_bytes()),
        }
    }
    let hash = blake3::hash(&content);
    content.extend(hash.as_bytes());
    Some(content)
}

/// Reads the header at the beginning of a file of at most `limit` bytes, without checking the rest.
pub(super) fn header(file: impl Read, limit: u64) -> Option<Header> {
    let mut file = file.take(limit);
    let mut magic = [0; MAGIC.len()];
    file.read_exact(&mut magic).ok()?;
    let mut length = [0; size_of::<u32>()];
    file.read_exact(&mut length).ok()?;
    let header = file.take(u32::from_le_bytes(length).into());
    let is_known = magic == MAGIC;
    is_known.then(|| serde_json::from_reader(header).ok())?
}

/// The part of a file's content after its header.
fn tensors_of(content: &[u8]) -> Option<&[u8]> {
    let (length, rest) = content.get(MAGIC.len()..)?.split_first_chunk()?;
    rest.get(usize::try_from(u32::from_le_bytes(*length)).ok()?..)
}

/// The sequence of a file. The error states what is wrong with it.
pub(super) fn decode(version: &str, content: &[u8]) -> Result<CachedSequence, &'static str> {
    const CUT: &str = "it is damaged or cut off";
    if !content.starts_with(&MAGIC) {
        return Err("it is not a prompt cache of this version");
    }
    let (content, hash) = content.split_last_chunk::<HASH>().ok_or(CUT)?;
    if blake3::hash(content).as_bytes() != hash {
        return Err(CUT);
    }
    let header = header(content, content.len() as u64).ok_or("its header is invalid")?;
    if header.version != version {
        return Err("it is of another model or configuration");
    }
    let sizes: Option<Vec<usize>> = header.tensors.iter().map(TensorHeader::bytes).collect();
    let sizes = sizes.ok_or("its header is invalid")?;
    let mut rest = tensors_of(content).ok_or(CUT)?;
    let mut tensors = Vec::with_capacity(sizes.len());
    for (tensor, &size) in header.tensors.iter().zip(&sizes) {
        let (bytes, after) = rest.split_at_checked(size).ok_or(CUT)?;
        tensors.push(tensor.tensor(bytes));
        rest = after;
    }
    if !rest.is_empty() {
        return Err("its header is invalid");
    }
    let cache = SavedCache {
        tokens: header.tokens.len(),
        tensors,
    };
    Ok(CachedSequence {
        tokens: header.tokens,
        adapter: header.adapter,
        chunked: header.chunked,
        cache,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence() -> CachedSequence {
        let floats = TensorData::new(vec![0.5_f32, -1.0, f32::NAN, 3.0], [1, 1, 2, 2]);
        let bytes = TensorData::new(vec![1_u8, 2, 3, 4], [1, 1, 2, 2]);
        CachedSequence {
            tokens: vec![7, 300_000],
            adapter: Some(1),
            chunked: 0,
            cache: SavedCache {
                tokens: 2,
                tensors: vec![floats, bytes],
            },
        }
    }

    /// A file with this header and four bytes of tensors, and a valid hash.
    fn with_header(header: &str) -> Vec<u8> {
        let mut content = MAGIC.to_vec();
        content.extend((header.len() as u32).to_le_bytes());
        content.extend(header.as_bytes());
        content.extend([0; 4]);
        let hash = blake3::hash(&content);
        content.extend(hash.as_bytes());
        content
    }

    #[test]
    fn a_file_has_the_same_sequence() {
        let content = encode("v", sequence()).unwrap();
        let found = decode("v", &content).unwrap();
        let expected = sequence();
        assert_eq!(found.tokens, expected.tokens);
        assert_eq!((found.adapter, found.chunked), (Some(1), 0));
        for (found, expected) in found.cache.tensors.iter().zip(&expected.cache.tensors) {
            assert_eq!(found.as_bytes(), expected.as_bytes());
            assert_eq!(
                (&found.shape, found.dtype),
                (&expected.shape, expected.dtype)
            );
        }
        assert_eq!(
            header(&content[..], 1 << 20).unwrap().tokens,
            expected.tokens
        );
        assert!(header(&content[..], 40).is_none());
        assert!(decode("w", &content).is_err());
    }

    #[test]
    fn damaged_files_are_refused() {
        let content = encode("v", sequence()).unwrap();
        for length in 0..content.len() {
            assert!(decode("v", &content[..length]).is_err(), "{length} bytes");
        }
        let tensors = |shape: &str| {
            let tensor = format!("{{\"kind\":\"u8\",\"shape\":{shape}}}");
            format!(
                "{{\"version\":\"v\",\"tokens\":[],\"adapter\":null,\"chunked\":0,\"tensors\":[{tensor},{tensor}]}}"
            )
        };
        assert!(decode("v", &with_header(&tensors("[1,1,1,2]"))).is_ok());
        for header in [
            tensors("[1,1,1,3]"),
            tensors("[4294967296,4294967296,4294967296,1]"),
            tensors("[1,1,1,18446744073709551615]"),
            tensors("[1,1,2]"),
            "{}".to_owned(),
            "[".repeat(1000),
        ] {
            assert!(decode("v", &with_header(&header)).is_err(), "{header}");
        }
    }
}

//! GGUF files of LLaMA models with random weights, in F32 and without a tokenizer. Weights do not affect the speed.

use std::{fs::File, io::BufWriter, path::Path};

use emberlm_gguf::{GgufError, GgufHeader, TensorType, Value};

use crate::error::Error;

/// The size of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Size {
    /// 506 million parameters.
    #[value(name = "0.5b")]
    Half,
    /// 1.1 billion parameters, the sizes of TinyLlama.
    #[value(name = "1.1b")]
    One,
}

/// The sizes of a model. Rows are multiples of 256, the longest block of a type.
struct Sizes {
    blocks: usize,
    width: usize,
    heads: usize,
    kv_heads: usize,
    feed_forward: usize,
    vocabulary: usize,
}

impl Size {
    /// The name of the model.
    pub fn name(self) -> &'static str {
        match self {
            Self::Half => "random-0.5B",
            Self::One => "random-1.1B",
        }
    }

    fn sizes(self) -> Sizes {
        let [blocks, width, heads, kv_heads, feed_forward, vocabulary] = match self {
            Self::Half => [24, 1280, 20, 4, 3584, 32_000],
            Self::One => [22, 2048, 32, 4, 5632, 32_000],
        };
        Sizes {
            blocks,
            width,
            heads,
            kv_heads,
            feed_forward,
            vocabulary,
        }
    }
}

/// A tensor: its name, and `[rows, columns]` of a matrix or the length of a norm's gains.
type Tensor = (String, Vec<usize>);

impl Sizes {
    fn tensors(&self) -> Vec<Tensor> {
        let (width, inner) = (self.width, self.feed_forward);
        let kv = self.width / self.heads * self.kv_heads;
        let mut tensors = vec![("token_embd.weight".to_owned(), vec![self.vocabulary, width])];
        for block in 0..self.blocks {
            let layers = [
                ("attn_norm", vec![width]),
                ("attn_q", vec![width, width]),
                ("attn_k", vec![kv, width]),
                ("attn_v", vec![kv, width]),
                ("attn_output", vec![width, width]),
                ("ffn_norm", vec![width]),
                ("ffn_gate", vec![inner, width]),
                ("ffn_up", vec![inner, width]),
                ("ffn_down", vec![width, inner]),
            ];
            let named = |(name, shape)| (format!("blk.{block}.{name}.weight"), shape);
            tensors.extend(layers.map(named));
        }
        tensors.push(("output_norm.weight".to_owned(), vec![width]));
        tensors.push(("output.weight".to_owned(), vec![self.vocabulary, width]));
        tensors
    }

    fn header(&self, name: &str) -> Result<GgufHeader, GgufError> {
        let mut header = GgufHeader::new();
        let text = |text: &str| Value::String(text.to_owned());
        let size = |size: usize| Value::U32(size as u32);
        header.insert("general.architecture", text("llama"));
        header.insert("general.name", text(name));
        for (key, value) in [
            ("block_count", size(self.blocks)),
            ("context_length", size(8192)),
            ("embedding_length", size(self.width)),
            ("feed_forward_length", size(self.feed_forward)),
            ("attention.head_count", size(self.heads)),
            ("attention.head_count_kv", size(self.kv_heads)),
            ("attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
            ("rope.freq_base", Value::F32(1e4)),
            ("rope.dimension_count", size(self.width / self.heads)),
            ("vocab_size", size(self.vocabulary)),
        ] {
            header.insert(format!("llama.{key}"), value);
        }
        // llama.cpp's name for a model without a tokenizer.
        header.insert("tokenizer.ggml.model", text("no_vocab"));
        for (name, shape) in self.tensors() {
            header.add_tensor(&name, &shape, TensorType::F32)?;
        }
        Ok(header)
    }
}

/// Writes a model. Matrices are uniform with the standard deviation of the inverse root of their columns, and gains are
/// 1.
pub fn write(size: Size, path: &Path) -> Result<(), Error> {
    write_model(size.name(), &size.sizes(), path)
}

fn write_model(name: &str, sizes: &Sizes, path: &Path) -> Result<(), Error> {
    let failed = |source| Error::Write {
        path: path.to_owned(),
        source,
    };
    let header = sizes.header(name).map_err(|error| Error::Invalid {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    let file = BufWriter::new(File::create(path).map_err(failed)?);
    let mut writer = header.write_to(file).map_err(failed)?;
    let mut state = 1u64;
    for (_, shape) in sizes.tensors() {
        let columns = shape.last().copied().unwrap_or(1);
        let bound = (3.0 / columns as f32).sqrt();
        for _ in 0..shape.iter().product::<usize>() / columns {
            let row = (0..columns).map(|_| match shape.len() {
                1 => 1.0,
                _ => bound * uniform(&mut state),
            });
            let bytes: Vec<u8> = row.flat_map(f32::to_le_bytes).collect();
            writer.write(&bytes).map_err(failed)?;
        }
    }
    writer.finish().map_err(failed)?;
    Ok(())
}

/// A number between -1 and 1: the upper bits of a linear congruential generator (Knuth's MMIX).
fn uniform(state: &mut u64) -> f32 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

#[cfg(test)]
mod tests {
    use emberlm_gguf::GgufFile;

    use super::*;

    #[test]
    fn models_have_their_parameters() {
        for (size, millions) in [(Size::Half, 506), (Size::One, 1100)] {
            let tensors = size.sizes().tensors();
            let parameters = tensors
                .iter()
                .map(|(_, shape)| shape.iter().product::<usize>());
            assert_eq!(parameters.sum::<usize>() / 1_000_000, millions, "{size:?}");
            for (name, shape) in tensors {
                assert_eq!(shape.last().unwrap() % 256, 0, "{name}");
            }
        }
    }

    #[test]
    fn a_written_model_is_readable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        let sizes = Sizes {
            blocks: 2,
            width: 256,
            heads: 4,
            kv_heads: 2,
            feed_forward: 512,
            vocabulary: 300,
        };
        write_model("tiny", &sizes, &path).unwrap();
        let file = GgufFile::open(&path).unwrap();
        let metadata = file.metadata();
        assert_eq!(
            metadata.text("general.architecture").unwrap(),
            Some("llama")
        );
        let tensor = file.tensor("blk.1.ffn_down.weight").unwrap();
        assert_eq!(
            (tensor.shape.as_slice(), tensor.rows()),
            (&[256, 512][..], 256)
        );
        assert!(file.tensor("output.weight").is_some());
    }

    #[test]
    fn random_numbers_are_uniform() {
        let mut state = 1;
        let numbers: Vec<f32> = (0..10_000).map(|_| uniform(&mut state)).collect();
        assert!(numbers.iter().all(|x| (-1.0..1.0).contains(x)));
        let mean = numbers.iter().sum::<f32>() / 1e4;
        let square = numbers.iter().map(|x| x * x).sum::<f32>() / 1e4;
        assert!(
            mean.abs() < 0.02 && (square - 1.0 / 3.0).abs() < 0.01,
            "{mean} {square}"
        );
    }
}

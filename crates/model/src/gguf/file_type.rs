//! Types of GGUF files: the type of each tensor, as llama.cpp chooses it.

use emberlm_gguf::TensorType;

use super::store::block_of;

/// A type of file: a type for most matrices, and rules for those that need more bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// f32.
    F32,
    /// f16 matrices.
    F16,
    /// bf16 matrices.
    Bf16,
    /// 8-bit matrices.
    Q8_0,
    /// 4-bit matrices with a scale per 32 elements.
    Q4_0,
    /// The same with a minimum.
    Q4_1,
    /// 5-bit matrices with a scale per 32 elements.
    Q5_0,
    /// The same with a minimum.
    Q5_1,
    /// 4-bit matrices of a table of 16 values.
    Iq4Nl,
    /// 2-bit matrices with scales in blocks of 256 elements; 3 bits for some.
    Q2K,
    /// 3 bits; 4 or 5 for some.
    Q3KM,
    /// 4 bits; 6 for some.
    Q4KM,
    /// 5 bits; 6 for some.
    Q5KM,
    /// 6 bits.
    Q6K,
    /// 4-bit floating point for experts, and 8 bits for the other matrices.
    Mxfp4Moe,
}

/// The properties of a model that the types of its tensors depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    pub(crate) layers: usize,
    /// Query heads per key-value head.
    pub(crate) grouped: usize,
    /// Experts per layer; 0 if there are none.
    pub(crate) experts: usize,
    /// True if the embedding is also the head.
    pub(crate) tied: bool,
    /// True if the architecture has Q8_0 for the head, and fewer bits than usual for the feed-forward layers.
    pub(crate) wide_head: bool,
    /// True if the importance of inputs is known.
    pub(crate) calibrated: bool,
}

/// The use of a tensor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Head,
    /// Keys.
    Key,
    /// Values, or queries, keys and values together.
    Value,
    /// The attention's output projection.
    AttentionOut,
    /// The projection back to the residual stream.
    Down,
    Other,
}

impl FileType {
    /// Every type.
    pub const ALL: [Self; 15] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Iq4Nl,
        Self::Q2K,
        Self::Q3KM,
        Self::Q4KM,
        Self::Q5KM,
        Self::Q6K,
        Self::Mxfp4Moe,
    ];

    /// Name on the command line: llama.cpp's in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Iq4Nl => "iq4_nl",
            Self::Q2K => "q2_k",
            Self::Q3KM => "q3_k_m",
            Self::Q4KM => "q4_k_m",
            Self::Q5KM => "q5_k_m",
            Self::Q6K => "q6_k",
            Self::Mxfp4Moe => "mxfp4_moe",
        }
    }

    /// Returns true if most matrices have blocks of evenly spaced levels, which GPTQ can choose.
    pub const fn has_levels(self) -> bool {
        !matches!(
            self,
            Self::F32 | Self::F16 | Self::Bf16 | Self::Iq4Nl | Self::Mxfp4Moe
        )
    }

    /// Value of `general.file_type`.
    pub(crate) const fn id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q8_0 => 7,
            Self::Q5_0 => 8,
            Self::Q5_1 => 9,
            Self::Q2K => 10,
            Self::Q3KM => 12,
            Self::Q4KM => 15,
            Self::Q5KM => 17,
            Self::Q6K => 18,
            Self::Iq4Nl => 25,
            Self::Bf16 => 32,
            Self::Mxfp4Moe => 38,
        }
    }

    /// The type of most matrices, or of those outside of experts.
    const fn main(self) -> TensorType {
        match self {
            Self::F32 => TensorType::F32,
            Self::F16 => TensorType::F16,
            Self::Bf16 => TensorType::Bf16,
            Self::Q8_0 | Self::Mxfp4Moe => TensorType::Q8_0,
            Self::Q4_0 => TensorType::Q4_0,
            Self::Q4_1 => TensorType::Q4_1,
            Self::Q5_0 => TensorType::Q5_0,
            Self::Q5_1 => TensorType::Q5_1,
            Self::Iq4Nl => TensorType::Iq4Nl,
            Self::Q2K => TensorType::Q2K,
            Self::Q3KM => TensorType::Q3K,
            Self::Q4KM => TensorType::Q4K,
            Self::Q5KM => TensorType::Q5K,
            Self::Q6K => TensorType::Q6K,
        }
    }

    /// The type of a tensor. Vectors, norms, biases, learned positions, routers and short convolutions are f32.
    pub(crate) fn tensor_type(self, name: &str, shape: &[usize], model: Traits) -> TensorType {
        let main = self.main();
        if shape.len() < 2 || is_small(name) {
            return TensorType::F32;
        }
        if main.block_len() == 1 {
            return main;
        }
        let columns = shape.last().copied().unwrap_or(1);
        let chosen = match use_of(name, model.tied) {
            Use::Head if model.wide_head || !columns.is_multiple_of(main.block_len()) => {
                TensorType::Q8_0
            }
            Use::Head if main == TensorType::Q8_0 => main,
            Use::Head => TensorType::Q6K,
            _ if self == Self::Mxfp4Moe => match shape {
                [experts, _, _] if *experts > 1 => TensorType::Mxfp4,
                _ => main,
            },
            part => {
                let layer = block_of(name).unwrap_or_default();
                self.within_block(part, layer as usize, model)
            }
        };
        fitting(chosen, columns)
    }

    /// The type of a matrix of block `layer`, before its rows are considered.
    fn within_block(self, part: Use, layer: usize, model: Traits) -> TensorType {
        let main = self.main();
        let first = |share: usize| layer < model.layers / share;
        let more = more_bits(layer, model.layers);
        // Eight experts share the attention, so that its types hardly change the size.
        let eight = model.experts == 8;
        match (part, self) {
            (Use::Value | Use::Key, _) if eight => TensorType::Q8_0,
            (Use::Value, _) => {
                let chosen = match self {
                    Self::Q2K if model.grouped >= 4 => TensorType::Q4K,
                    Self::Q2K => TensorType::Q3K,
                    Self::Q3KM if layer < 2 => TensorType::Q5K,
                    Self::Q3KM => TensorType::Q4K,
                    Self::Iq4Nl if model.grouped >= 4 => TensorType::Q5K,
                    Self::Q4KM | Self::Q5KM if more => TensorType::Q6K,
                    _ => main,
                };
                // In a model of this depth, values that 8 queries share are an eighth of the attention.
                let is_shared = model.layers == 80 && model.grouped > 1;
                match chosen {
                    TensorType::Q3K | TensorType::Q4K if is_shared => TensorType::Q5K,
                    _ => chosen,
                }
            }
            (Use::Down, Self::Q2K) => TensorType::Q3K,
            (Use::Down, Self::Q3KM) if first(16) => TensorType::Q5K,
            (Use::Down, Self::Q3KM) if model.wide_head && !more => TensorType::Q3K,
            (Use::Down, Self::Q3KM) => TensorType::Q4K,
            (Use::Down, Self::Q4KM) if model.wide_head => match (first(16), more) {
                (true, _) => TensorType::Q6K,
                (false, true) => TensorType::Q5K,
                (false, false) => TensorType::Q4K,
            },
            (Use::Down, Self::Q4KM | Self::Q5KM) if more => TensorType::Q6K,
            (Use::Down, Self::Iq4Nl) if first(8) && !model.calibrated => TensorType::Q5K,
            // Rounding by importance can fail for these inputs without a minimum.
            (Use::Down, Self::Q4_0) if first(8) && model.calibrated => TensorType::Q4_1,
            (Use::Down, Self::Q5_0) if first(8) && model.calibrated => TensorType::Q5_1,
            (Use::AttentionOut, _) if model.wide_head => main,
            (Use::AttentionOut, Self::Q2K | Self::Q3KM | Self::Iq4Nl | Self::Q4KM) if eight => {
                TensorType::Q5K
            }
            (Use::AttentionOut, Self::Q2K) if !eight => TensorType::Q3K,
            (Use::AttentionOut, Self::Q3KM) if !eight => TensorType::Q4K,
            _ => main,
        }
    }
}

/// Returns true for the matrices that stay in f32.
fn is_small(name: &str) -> bool {
    !name.ends_with(".weight")
        || name.contains("_norm.weight")
        || name.contains("ffn_gate_inp")
        || name.contains("ssm_conv1d")
        || name == "position_embd.weight"
}

fn use_of(name: &str, tied: bool) -> Use {
    match name {
        super::HEAD => return Use::Head,
        super::EMBEDDING if tied => return Use::Head,
        _ => {}
    }
    let part = name.rsplit('.').nth(1).unwrap_or_default();
    match part {
        "attn_v" | "attn_qkv" => Use::Value,
        "attn_k" => Use::Key,
        "attn_output" => Use::AttentionOut,
        part if part.starts_with("ffn_down") => Use::Down,
        _ => Use::Other,
    }
}

/// Returns true for the first and last eighth of the layers, and for every third between them.
fn more_bits(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

/// The type for rows of `columns` elements: the given one, or one with smaller blocks.
fn fitting(chosen: TensorType, columns: usize) -> TensorType {
    let fits = |kind: TensorType| columns.is_multiple_of(kind.block_len());
    if fits(chosen) {
        return chosen;
    }
    let smaller = match chosen {
        TensorType::Q2K | TensorType::Q3K => TensorType::Q4_0,
        TensorType::Q4K => TensorType::Q5_0,
        TensorType::Q5K => TensorType::Q5_1,
        TensorType::Q6K => TensorType::Q8_0,
        other => other,
    };
    match fits(smaller) {
        true => smaller,
        false => TensorType::F16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: Traits = Traits {
        layers: 16,
        grouped: 4,
        experts: 0,
        tied: true,
        wide_head: false,
        calibrated: false,
    };

    fn types(kind: FileType, part: &str, columns: usize, model: Traits) -> String {
        let layers = (0..model.layers).map(|layer| {
            let name = format!("blk.{layer}.{part}.weight");
            kind.tensor_type(&name, &[64, columns], model).name()
        });
        let names: Vec<&str> = layers.collect();
        names.join(" ")
    }

    /// The names that `llama-quantize` prints for a model of these sizes.
    #[test]
    fn mixtures_give_more_bits_to_the_same_layers_as_llama_cpp() {
        let (four, six) = ("Q4_K", "Q6_K");
        let more = [0, 1, 4, 7, 10, 13, 14, 15];
        let expected: Vec<&str> = (0..16)
            .map(|layer| if more.contains(&layer) { six } else { four })
            .collect();
        for part in ["attn_v", "ffn_down"] {
            assert_eq!(types(FileType::Q4KM, part, 256, MODEL), expected.join(" "));
        }
        assert_eq!(
            types(FileType::Q4KM, "attn_q", 256, MODEL),
            [four; 16].join(" ")
        );
        let values = types(FileType::Q3KM, "attn_v", 256, MODEL);
        assert_eq!(values, format!("Q5_K Q5_K{}", " Q4_K".repeat(14)));
        let down = types(FileType::Q3KM, "ffn_down", 256, MODEL);
        assert_eq!(down, format!("Q5_K{}", " Q4_K".repeat(15)));
    }

    #[test]
    fn rows_of_broken_blocks_have_types_with_smaller_ones() {
        let of = |kind: FileType, columns| {
            let name = "blk.2.ffn_up.weight";
            kind.tensor_type(name, &[64, columns], MODEL).name()
        };
        assert_eq!(of(FileType::Q2K, 576), "Q4_0");
        assert_eq!(of(FileType::Q3KM, 576), "Q4_0");
        assert_eq!(of(FileType::Q4KM, 576), "Q5_0");
        assert_eq!(of(FileType::Q5KM, 576), "Q5_1");
        assert_eq!(of(FileType::Q6K, 576), "Q8_0");
        assert_eq!(of(FileType::Q4KM, 40), "F16");
        assert_eq!(of(FileType::Q8_0, 40), "F16");
    }

    #[test]
    fn a_tied_embedding_has_the_type_of_the_head() {
        let of = |kind: FileType, name: &str, tied| {
            let model = Traits { tied, ..MODEL };
            kind.tensor_type(name, &[512, 256], model).name()
        };
        let table = "token_embd.weight";
        assert_eq!(of(FileType::Q4_0, table, true), "Q6_K");
        assert_eq!(of(FileType::Q4_0, table, false), "Q4_0");
        assert_eq!(of(FileType::Q4_0, "output.weight", false), "Q6_K");
        assert_eq!(of(FileType::Q8_0, table, true), "Q8_0");
        assert_eq!(of(FileType::F16, table, true), "F16");
        assert_eq!(of(FileType::Q4KM, "position_embd.weight", true), "F32");
        assert_eq!(of(FileType::Q4KM, "blk.0.ffn_gate_inp.weight", true), "F32");
        assert_eq!(of(FileType::F16, "blk.0.ssm_conv1d.weight", true), "F32");
    }
}

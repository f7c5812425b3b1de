//! The type of a GGUF file as llama.cpp names it.

use emberlm_gguf::{GgufFile, Metadata};

use super::main_type;

/// Added to a type that was estimated from the tensors.
const ESTIMATED: u64 = 1024;

/// The name of a file's type in lower case: that of `general.file_type`, such as `q4_k_m`, whose matrices have several types.
/// Without it, that of the type of most elements.
pub fn type_name(file: &GgufFile) -> String {
    let recorded = recorded(file.metadata());
    let main = || main_type(file).name().to_lowercase();
    recorded.map_or_else(main, str::to_owned)
}

/// The types of llama.cpp (`llama_ftype`), in lower case.
fn recorded(metadata: &Metadata) -> Option<&'static str> {
    let id = metadata.count("general.file_type").ok().flatten()?;
    Some(match id & !ESTIMATED {
        0 => "f32",
        1 => "f16",
        2 => "q4_0",
        3 => "q4_1",
        7 => "q8_0",
        8 => "q5_0",
        9 => "q5_1",
        10 => "q2_k",
        11 => "q3_k_s",
        12 => "q3_k_m",
        13 => "q3_k_l",
        14 => "q4_k_s",
        15 => "q4_k_m",
        16 => "q5_k_s",
        17 => "q5_k_m",
        18 => "q6_k",
        19 => "iq2_xxs",
        20 => "iq2_xs",
        21 => "q2_k_s",
        22 => "iq3_xs",
        23 => "iq3_xxs",
        24 => "iq1_s",
        25 => "iq4_nl",
        26 => "iq3_s",
        27 => "iq3_m",
        28 => "iq2_s",
        29 => "iq2_m",
        30 => "iq4_xs",
        31 => "iq1_m",
        32 => "bf16",
        36 => "tq1_0",
        37 => "tq2_0",
        38 => "mxfp4_moe",
        39 => "nvfp4",
        40 => "q1_0",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use emberlm_gguf::Value;

    use super::*;
    use crate::gguf::FileType;

    fn of(id: u32) -> Option<&'static str> {
        let mut metadata = Metadata::default();
        metadata.insert("general.file_type", Value::U32(id));
        recorded(&metadata)
    }

    #[test]
    fn types_have_the_names_of_the_export_option() {
        for file_type in FileType::ALL {
            assert_eq!(of(file_type.id()), Some(file_type.name()));
            assert_eq!(of(file_type.id() + 1024), Some(file_type.name()));
        }
        // LLAMA_FTYPE_MOSTLY_Q4_K_S and LLAMA_FTYPE_MOSTLY_IQ4_XS.
        assert_eq!((of(14), of(30)), (Some("q4_k_s"), Some("iq4_xs")));
        assert_eq!(of(4), None);
        assert_eq!(recorded(&Metadata::default()), None);
    }
}

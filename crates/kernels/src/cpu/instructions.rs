//! The instructions that this CPU multiplies with.

use super::{bf16, integer};

/// The instructions of products by type, such as "f32 with AVX-512, bf16 with AMX, f16 as f32, quantized weights with
/// AVX512-VNNI".
pub fn of_products() -> String {
    let with = |name: Option<&str>| name.map_or(String::new(), |name| format!(" with {name}"));
    let bf16 = match bf16::instructions() {
        Some(instructions) => format!("bf16 with {}, f16 as f32", instructions.name()),
        None => "bf16 and f16 as f32".to_owned(),
    };
    let integers = integer::instructions::Instructions::fastest().name();
    format!(
        "f32{}, {bf16}, quantized weights{}",
        with(f32_instructions()),
        with(integers)
    )
}

/// The widest vectors of f32.
fn f32_instructions() -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        let sets = [
            (is_x86_feature_detected!("avx512f"), "AVX-512"),
            (is_x86_feature_detected!("fma"), "AVX2"),
        ];
        sets.into_iter().find_map(|(has, name)| has.then_some(name))
    }
    #[cfg(not(target_arch = "x86_64"))]
    cfg!(target_arch = "aarch64").then_some("NEON")
}

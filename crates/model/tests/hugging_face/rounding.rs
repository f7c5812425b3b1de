//! Conversions to narrower types round to nearest, ties to even, like PyTorch's `Tensor.to`.

use safetensors::Dtype;

use emberlm_model::hugging_face::export;
use emberlm_model::weights::Element;

use super::{Copied, load, options, stored};

/// Values and their bits as f16 and bf16, derived from the format definitions and confirmed with PyTorch.
const ROUNDED: [(f32, u16, u16); 15] = [
    (1.0, 0x3c00, 0x3f80),
    (-0.0, 0x8000, 0x8000),
    (0.1, 0x2e66, 0x3dcd),
    (1.0 / 3.0, 0x3555, 0x3eab),
    // Halfway between two values with 11-bit significands: round to even, down and up.
    (1.0 + 1.0 / 2048.0, 0x3c00, 0x3f80),
    (1.0 + 3.0 / 2048.0, 0x3c02, 0x3f80),
    // The same for 8-bit significands.
    (1.0 + 1.0 / 256.0, 0x3c04, 0x3f80),
    (1.0 + 3.0 / 256.0, 0x3c0c, 0x3f82),
    // The largest f16 value, a value that rounds to it, and one that overflows.
    (65_504.0, 0x7bff, 0x4780),
    (65_519.99, 0x7bff, 0x4780),
    (65_520.0, 0x7c00, 0x4780),
    (f32::MAX, 0x7c00, 0x7f80),
    // The smallest f16 value, half of it, and more than half.
    (1.0 / 16_777_216.0, 0x0001, 0x3380),
    (1.0 / 33_554_432.0, 0x0000, 0x3300),
    (1.5 / 33_554_432.0, 0x0001, 0x3340),
];

#[test]
fn values_are_rounded_to_nearest_even() {
    let copied = Copied::tiny();
    copied.rewrite(|tensors| {
        let embedding = tensors.get_mut("model.embed_tokens.weight").unwrap();
        let elements = embedding.bytes.chunks_exact_mut(4);
        for ((number, ..), element) in ROUNDED.iter().zip(elements) {
            element.copy_from_slice(&number.to_le_bytes());
        }
    });
    let decoder = load(copied.0.path());
    for (element, dtype) in [(Element::F16, Dtype::F16), (Element::Bf16, Dtype::BF16)] {
        let folder = tempfile::tempdir().unwrap();
        export(&decoder, folder.path(), &options(element)).unwrap();
        let tensors = stored(folder.path());
        assert!(tensors.values().all(|stored| stored.dtype == dtype));
        let embedding = &tensors["model.embed_tokens.weight"];
        for ((number, f16, bf16), bytes) in ROUNDED.iter().zip(embedding.bytes.chunks_exact(2)) {
            let found = u16::from_le_bytes([bytes[0], bytes[1]]);
            let expected = if element == Element::F16 { f16 } else { bf16 };
            assert_eq!(found, *expected, "{number:e} as {element:?}: {found:#06x}");
        }
        // Reading is exact, so writing the value again gives the same bits.
        let again = tempfile::tempdir().unwrap();
        export(&load(folder.path()), again.path(), &options(element)).unwrap();
        assert!(stored(again.path()) == tensors);
    }
}

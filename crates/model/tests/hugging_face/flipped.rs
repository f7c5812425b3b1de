//! Flips single bits of a weight file. Flips in the header are detected unless they do not affect the tensors; flips in
//! the data change one element.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn_flex::Flex;
use emberlm_model::hugging_face::HuggingFaceModel;
use emberlm_model::{HuggingFaceError, Transformer};

use super::{Copied, bits};

struct Flipped {
    copied: Copied,
    model: HuggingFaceModel,
    bytes: Vec<u8>,
    /// Offset of the tensor data.
    header: usize,
    whole: Vec<(String, Vec<u32>)>,
}

impl Flipped {
    fn new() -> Self {
        let copied = Copied::tiny();
        let bytes = fs::read(copied.path("model.safetensors")).unwrap();
        Self {
            model: HuggingFaceModel::open(copied.0.path()).unwrap(),
            header: 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize,
            whole: bits(&copied.load().unwrap()),
            copied,
            bytes,
        }
    }

    fn load(&mut self, bit: usize) -> Result<Transformer<Flex>, HuggingFaceError> {
        let (byte, mask) = (bit / 8, 1 << (bit % 8));
        self.bytes[byte] ^= mask;
        self.copied.write("model.safetensors", &self.bytes);
        self.bytes[byte] ^= mask;
        let found = catch_unwind(AssertUnwindSafe(|| self.model.decoder(&Default::default())));
        found.unwrap_or_else(|_| panic!("bit {bit} panics"))
    }
}

#[test]
fn flips_of_every_header_bit() {
    let mut flipped = Flipped::new();
    let mut read = 0;
    for bit in 0..8 * flipped.header {
        if let Ok(decoder) = flipped.load(bit) {
            assert_eq!(
                bits(&decoder),
                flipped.whole,
                "bit {bit} changes the weights"
            );
            read += 1;
        }
    }
    // Only the `format` metadata does not affect the tensors.
    let note = r#""__metadata__":{"format":"pt"}"#;
    assert!(
        read <= 8 * note.len(),
        "{read} wrong bits of the header were not noticed"
    );
}

#[test]
fn flips_of_data_bits() {
    let mut flipped = Flipped::new();
    // Covers every bit of an element, and every tensor.
    for bit in (8 * flipped.header..8 * flipped.bytes.len()).step_by(37) {
        let now = bits(&flipped.load(bit).unwrap());
        let changed: Vec<u32> = (now.iter().zip(&flipped.whole))
            .flat_map(|((_, now), (_, then))| now.iter().zip(then))
            .filter(|(now, then)| now != then)
            .map(|(now, then)| now ^ then)
            .collect();
        // The data consists of little-endian elements of four bytes and starts after the header.
        let expected = 1_u32 << ((bit - 8 * flipped.header) % 32);
        assert_eq!(changed, [expected], "bit {bit}");
    }
}

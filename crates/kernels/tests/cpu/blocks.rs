//! Compares the block formats with ggml: packed bytes and unpacked values are identical to the bit. The fixture is
//! written by `crates/kernels/tests/fixtures/make_blocks.py`.

use emberlm_kernels::cpu::matrix::Matrix;
use emberlm_kernels::cpu::packed::{PackedMatrix, pack, pack_by_importance, unpack};
use emberlm_kernels::{PackedError, PackedFormat};
use safetensors::SafeTensors;

/// Weights per row of the fixture.
const COLUMNS: usize = 512;

/// Every format that ggml has.
fn formats() -> impl Iterator<Item = PackedFormat> {
    let formats = PackedFormat::ALL.into_iter();
    formats.filter(|format| *format != PackedFormat::Int8)
}

fn fixture() -> SafeTensors<'static> {
    SafeTensors::deserialize(include_bytes!("../fixtures/blocks.safetensors")).unwrap()
}

fn floats(fixture: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let (numbers, _) = fixture.tensor(name).unwrap().data().as_chunks::<4>();
    numbers
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect()
}

#[test]
fn unpacking_equals_ggml_to_the_bit() {
    let fixture = fixture();
    for format in formats() {
        let name = format.name();
        let bytes = fixture.tensor(&format!("{name}.bytes")).unwrap();
        let expected = floats(&fixture, &format!("{name}.unpacked"));
        let rows = expected.len() / COLUMNS;
        let packed = PackedMatrix::new(format, [rows, COLUMNS], bytes.data().to_vec()).unwrap();
        let mut found = vec![f32::NAN; expected.len()];
        unpack(packed.view(), &mut found);
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(
                found.to_bits(),
                expected.to_bits(),
                "{name}: weight {at}: {found} {expected}"
            );
        }
    }
}

#[test]
fn packing_equals_ggml_byte_for_byte() {
    let fixture = fixture();
    let weights = floats(&fixture, "weights");
    let importance = floats(&fixture, "importance");
    let matrix = Matrix::row_major(&weights, weights.len() / COLUMNS, COLUMNS);
    for format in formats() {
        for (case, importance) in [("packed", None), ("weighted", Some(&importance[..]))] {
            let name = format!("{}.{case}", format.name());
            let found = pack_by_importance(format, matrix, importance);
            let expected = fixture.tensor(&name).unwrap();
            assert_eq!(found.bytes().len(), expected.data().len(), "{name}");
            let block = format.block_bytes();
            let blocks = found
                .bytes()
                .chunks(block)
                .zip(expected.data().chunks(block));
            for (at, (found, expected)) in blocks.enumerate() {
                assert_eq!(found, expected, "{name}: block {at}");
            }
        }
    }
}

/// Largest weights around which the exponent of the scale changes, and weights in the middle between two values.
#[test]
fn mxfp4_rounds_edges_as_ggml_does() {
    let fixture = fixture();
    let weights = floats(&fixture, "mxfp4.edges");
    let found = pack(PackedFormat::Mxfp4, Matrix::row_major(&weights, 1, COLUMNS));
    let expected = fixture.tensor("mxfp4.edges.packed").unwrap();
    assert_eq!(found.bytes().len(), expected.data().len());
    let blocks = found.bytes().chunks(17).zip(expected.data().chunks(17));
    for (at, (found, expected)) in blocks.enumerate() {
        assert_eq!(found, expected, "block {at}");
    }
}

#[test]
fn transposed_weights_are_packed_row_by_row() {
    let fixture = fixture();
    let weights = floats(&fixture, "weights");
    let rows = weights.len() / COLUMNS;
    let matrix = Matrix::row_major(&weights, rows, COLUMNS);
    let transposed: Vec<f32> = (0..COLUMNS)
        .flat_map(|column| weights.iter().skip(column).step_by(COLUMNS).copied())
        .collect();
    let transposed = Matrix::row_major(&transposed, COLUMNS, rows).transposed();
    for format in PackedFormat::ALL {
        assert_eq!(
            pack(format, transposed),
            pack(format, matrix),
            "{}",
            format.name()
        );
    }
}

#[test]
fn wrong_sizes_are_refused() {
    let refused = |format, shape, bytes: usize| {
        PackedMatrix::new(format, shape, vec![0; bytes])
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused(PackedFormat::Q4_0, [2, 48], 54),
        "rows of 48 weights cannot be packed as q4_0: must be a multiple of 32"
    );
    assert_eq!(
        refused(PackedFormat::Q6K, [2, 256], 419),
        "a 2 × 256 matrix in q6_k has 420 bytes (got 419)"
    );
    let empty = PackedMatrix::new(PackedFormat::Q4K, [3, 0], Vec::new());
    assert_eq!(
        empty.map(|empty| empty.shape()),
        Ok::<_, PackedError>([3, 0])
    );
}

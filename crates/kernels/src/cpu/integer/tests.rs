use super::*;
use crate::PackedFormat;
use crate::cpu::packed::{PackedMatrix, pack, unpack};

fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let number = |at: usize| ((at * 7919 + seed) % 1009) as f32 / 500.0 - 1.0;
    (0..count).map(number).collect()
}

/// The product by an instruction set that the CPU has.
fn product_of(instructions: Instructions, x: &[f32], w: &PackedMatrix) -> Vec<f32> {
    let [n, k] = w.shape();
    let m = x.len() / k;
    let mut y = vec![f32::NAN; m * n];
    let place = MatrixMut::row_major(&mut y, m, n);
    let x = Matrix::row_major(x, m, k);
    // SAFETY: the CPU has the instructions.
    unsafe { product_by(instructions, place, x, w.view(), Output::Overwrite) };
    y
}

fn formats(k: usize) -> impl Iterator<Item = PackedFormat> {
    let mut formats = PackedFormat::ALL.into_iter();
    std::iter::from_fn(move || {
        formats.find(|format| levels::offset(*format).is_some() && format.check_columns(k).is_ok())
    })
}

/// Products in f64 of the rounded elements of x and the unpacked weights.
fn exact(x: &[f32], w: &PackedMatrix) -> Vec<f64> {
    let [n, k] = w.shape();
    let mut dense = vec![0.0; n * k];
    unpack(w.view(), &mut dense);
    let mut y = Vec::new();
    for x in x.chunks(k) {
        let x: Vec<f64> = x
            .chunks(BLOCK)
            .flat_map(|block| {
                let largest = block.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
                let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
                let round = move |x: &f32| {
                    f64::from((x * inverse).round_ties_even()) * f64::from(largest / 127.0)
                };
                block.iter().map(round)
            })
            .collect();
        for w in dense.chunks(k) {
            y.push(x.iter().zip(w).map(|(x, w)| x * f64::from(*w)).sum());
        }
    }
    y
}

#[test]
fn every_instruction_set_computes_the_same_bits() {
    // Chunks and steps that are not whole, and rows of W that do not fill a panel.
    for k in [32, 64, 256, 288, 736, 1024] {
        for format in formats(k) {
            for (m, n) in [
                (1, 3),
                (2, 16),
                (3, 33),
                (4, 50),
                (5, 17),
                (6, 31),
                (9, 70),
                (20, 33),
                (45, 18),
            ] {
                let (x, w) = (numbers(3, m * k), numbers(11, n * k));
                let w = pack(format, Matrix::row_major(&w, n, k));
                let expected = product_of(Instructions::Portable, &x, &w);
                for (found, exact) in expected.iter().zip(exact(&x, &w)) {
                    let error = (f64::from(*found) - exact).abs();
                    assert!(error <= 2e-5 * exact.abs().max(10.0), "{found} {exact}");
                }
                for instructions in Instructions::supported() {
                    let found = product_of(instructions, &x, &w);
                    assert_eq!(found, expected, "{instructions:?} {format:?} {m} {n} {k}");
                }
            }
        }
    }
}

/// A row of W for each exponent of mxfp4: subnormal scales, the largest ones, and NaN.
#[test]
fn every_instruction_set_reads_every_exponent() {
    let (format, n, k) = (PackedFormat::Mxfp4, 256, 288);
    let packed = pack(format, Matrix::row_major(&numbers(11, n * k), n, k));
    let mut bytes = packed.bytes().to_vec();
    for (e, row) in (0..=255).zip(bytes.chunks_mut(format.row_bytes(k))) {
        for block in row.chunks_mut(format.block_bytes()) {
            block[0] = e;
        }
    }
    let w = PackedMatrix::new(format, [n, k], bytes).unwrap();
    for m in [1, 5] {
        let x = numbers(3, m * k);
        let expected = product_of(Instructions::Portable, &x, &w);
        let exact = exact(&x, &w);
        for (at, (found, exact)) in expected.iter().zip(&exact).enumerate() {
            let e = at % n;
            // Products with other scales are subnormal or infinite.
            if (16..240).contains(&e) {
                let error = (f64::from(*found) - exact).abs();
                let scale = 2f64.powi(e as i32 - 128);
                assert!(error <= 1e-3 * scale, "{e}: {found} {exact}");
            }
            assert!(e < 255 || found.is_nan(), "{found}");
        }
        for instructions in Instructions::supported() {
            let found = product_of(instructions, &x, &w);
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let same = found == expected || found.is_nan() && expected.is_nan();
                assert!(same, "{instructions:?} {m} {}: {found} {expected}", at % n);
            }
        }
    }
}

/// All levels and elements of x have the largest magnitudes, for which 16-bit sums are the largest.
#[test]
fn largest_levels_do_not_saturate() {
    let k = 512;
    for format in formats(k) {
        for (m, byte) in [
            (1, 0xff),
            (1, 0x00),
            (8, 0xff),
            (8, 0x80),
            (8, 0x7f),
            (8, 0x00),
        ] {
            let row_bytes = format.row_bytes(k);
            // The scales in the bytes are any numbers, among them NaN and infinity in some formats: they are replaced by
            // those of packed weights.
            let packed = pack(format, Matrix::row_major(&numbers(7, k), 1, k));
            let scales = scale_bytes(format);
            let bytes = packed.bytes().iter().enumerate().map(|(at, packed)| {
                let at = at % format.block_bytes();
                if scales.contains(&at) { *packed } else { byte }
            });
            let w = PackedMatrix::new(format, [1, k], bytes.collect()).unwrap();
            assert_eq!(w.bytes().len(), row_bytes);
            for sign in [-1.0, 1.0] {
                let x = vec![sign; m * k];
                let expected = product_of(Instructions::Portable, &x, &w);
                for (found, exact) in expected.iter().zip(exact(&x, &w)) {
                    let error = (f64::from(*found) - exact).abs();
                    assert!(
                        error <= 1e-5 * exact.abs().max(1.0),
                        "{format:?}: {found} {exact}"
                    );
                }
                for instructions in Instructions::supported() {
                    let found = product_of(instructions, &x, &w);
                    assert_eq!(found, expected, "{instructions:?} {format:?} {m} {byte:x}");
                }
            }
        }
    }
}

/// The bytes of a block that hold floating-point scales.
fn scale_bytes(format: PackedFormat) -> Range<usize> {
    match format {
        PackedFormat::Q4_1 | PackedFormat::Q5_1 | PackedFormat::Q4K | PackedFormat::Q5K => 0..4,
        PackedFormat::Q2K => 80..84,
        PackedFormat::Q3K => 108..110,
        PackedFormat::Q6K => 208..210,
        PackedFormat::Mxfp4 => 0..1,
        _ => 0..2,
    }
}

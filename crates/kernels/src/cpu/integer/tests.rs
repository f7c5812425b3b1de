use super::*;
use crate::cpu::packed::{PackedMatrix, pack};

fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let number = |at: usize| ((at * 7919 + seed) % 1009) as f32 / 500.0 - 1.0;
    (0..count).map(number).collect()
}

/// The product by `run`.
fn product(x: &[Rounded], w: &PackedMatrix, run: impl Fn(Task<'_>)) -> Vec<f32> {
    let n = w.shape()[0];
    let mut y = vec![f32::NAN; x.len() * n];
    let mut place = MatrixMut::row_major(&mut y, x.len(), n);
    run(Task {
        x,
        w: w.view(),
        outputs: 0..n,
        sums: Sums::new(&mut place, Output::Overwrite),
    });
    y
}

#[test]
fn instructions_of_any_cpu_agree() {
    if !vnni::supported() {
        return;
    }
    // Chunks and steps that are not whole, and rows of W that do not fill a panel.
    for k in [32, 64, 256, 288, 736, 1024] {
        for format in PackedFormat::ALL {
            if levels::offset(format).is_none() || format.check_columns(k).is_err() {
                continue;
            }
            for (m, n) in [(1, 3), (2, 16), (3, 33), (4, 50), (6, 31), (9, 70)] {
                let x = numbers(3, m * k);
                let mut x = rounded_rows(Matrix::row_major(&x, m, k));
                let w = pack(format, Matrix::row_major(&numbers(11, n * k), n, k));
                let expected = product(&x, &w, |task| wide(task));
                // SAFETY: the instructions are supported.
                let many = product(&x, &w, |task| unsafe { panel::run(&task) });
                vnni::reorder(&mut x, format);
                // SAFETY: as above.
                let few = product(&x, &w, |task| unsafe { vnni::run(&task) });
                for found in [few, many] {
                    for (found, expected) in found.iter().zip(&expected) {
                        let error = (found - expected).abs();
                        assert!(
                            error <= 1e-6 * expected.abs().max(100.0),
                            "{}: {m} {n} {k}: {found} {expected}",
                            format.name()
                        );
                    }
                }
            }
        }
    }
}

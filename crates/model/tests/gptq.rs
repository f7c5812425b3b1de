//! GPTQ against a NumPy implementation, and its errors against those of rounding each weight separately.

use emberlm_kernels::PackedFormat;
use emberlm_kernels::cpu::gptq::Gptq;
use emberlm_kernels::cpu::matrix::Matrix;
use emberlm_kernels::cpu::packed::{PackedMatrix, pack, pack_by_importance, unpack};
use emberlm_kernels::cpu::packed_levels::has_levels;

/// Rows of a field of `gptq.json`, and their length.
fn field(name: &str) -> (Vec<f32>, usize) {
    let fixture: serde_json::Value =
        serde_json::from_str(include_str!("fixtures/gptq.json")).unwrap();
    let rows: Vec<Vec<f32>> = serde_json::from_value(fixture[name].clone()).unwrap();
    (rows.concat(), rows[0].len())
}

fn products(inputs: &[f32], columns: usize) -> Vec<f32> {
    let mut sums = vec![0.0; columns * columns];
    for row in inputs.chunks(columns) {
        for (sums, a) in sums.chunks_mut(columns).zip(row) {
            sums.iter_mut().zip(row).for_each(|(sum, b)| *sum += a * b);
        }
    }
    sums
}

fn values(packed: &PackedMatrix) -> Vec<f32> {
    let [rows, columns] = packed.shape();
    let mut values = vec![0.0; rows * columns];
    unpack(packed.view(), &mut values);
    values
}

#[test]
fn levels_are_those_of_numpy() {
    let (inputs, columns) = field("inputs");
    let (weights, _) = field("weights");
    let w = Matrix::row_major(&weights, weights.len() / columns, columns);
    let mut packed = pack(PackedFormat::Q4_0, w);
    let nearest = values(&packed);
    let gptq = Gptq::new(&products(&inputs, columns)).unwrap();
    gptq.choose(w, &mut packed);
    let found = values(&packed);
    assert_eq!(found, field("values").0);
    let changed = found.iter().zip(&nearest).filter(|(a, b)| a != b).count();
    assert!(changed > weights.len() / 10, "{changed}");
}

/// `Σ |X (w - q)|²` over the rows.
fn error(inputs: &[f32], weights: &[f32], packed: &PackedMatrix) -> f64 {
    let [_, columns] = packed.shape();
    let found = values(packed);
    let rows = weights.chunks(columns).zip(found.chunks(columns));
    rows.map(|(w, q)| {
        let difference: Vec<f64> = w.iter().zip(q).map(|(w, q)| f64::from(w - q)).collect();
        let outputs = inputs.chunks(columns).map(|x| {
            let terms = x.iter().zip(&difference);
            terms.map(|(x, d)| f64::from(*x) * d).sum::<f64>().powi(2)
        });
        outputs.sum::<f64>()
    })
    .sum()
}

#[test]
fn errors_of_correlated_inputs_are_smaller_than_without_feedback() {
    const COLUMNS: usize = 512;
    let mut state = 7u64;
    // A sum of uniform numbers is close to normal.
    let mut normal = || -> f32 {
        (0..4)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1 << 24) as f32 - 0.5
            })
            .sum()
    };
    let mut inputs = Vec::new();
    for _ in 0..1024 {
        let mut last = 0.0;
        for column in 0..COLUMNS {
            last = 0.9 * last + normal();
            inputs.push(last * (1.0 + (column % 7) as f32));
        }
    }
    let weights: Vec<f32> = (0..8 * COLUMNS).map(|_| normal()).collect();
    let w = Matrix::row_major(&weights, 8, COLUMNS);
    let products = products(&inputs, COLUMNS);
    let importance: Vec<f32> = products
        .iter()
        .step_by(COLUMNS + 1)
        .map(|sum| sum / 1024.0)
        .collect();
    let gptq = Gptq::new(&products).unwrap();
    for format in PackedFormat::ALL.into_iter().filter(|&it| has_levels(it)) {
        let nearest = error(&inputs, &weights, &pack(format, w));
        let mut packed = pack_by_importance(format, w, Some(&importance));
        let by_importance = error(&inputs, &weights, &packed);
        gptq.choose(w, &mut packed);
        let by_gptq = error(&inputs, &weights, &packed);
        let shown = format!("{}: {nearest}, {by_importance}, {by_gptq}", format.name());
        assert!(by_gptq < 0.7 * nearest.min(by_importance), "{shown}");
    }
}

#[test]
fn formats_without_levels_and_rows_with_infinite_weights_stay_as_they_are() {
    let (inputs, columns) = field("inputs");
    let (mut weights, _) = field("weights");
    let gptq = Gptq::new(&products(&inputs, columns)).unwrap();
    let rows = weights.len() / columns;
    for format in [PackedFormat::Int8, PackedFormat::F16, PackedFormat::Iq4Nl] {
        let w = Matrix::row_major(&weights, rows, columns);
        let mut packed = pack(format, w);
        let before = packed.clone();
        gptq.choose(w, &mut packed);
        assert_eq!(packed, before);
    }
    weights[3] = f32::INFINITY;
    let w = Matrix::row_major(&weights, rows, columns);
    let mut packed = pack(PackedFormat::Q4_0, w);
    let before = values(&packed);
    gptq.choose(w, &mut packed);
    let after = values(&packed);
    assert_eq!(after[32..columns], before[32..columns]);
    assert!(after[columns..] != before[columns..]);
}

#[test]
fn inputs_without_finite_products_have_no_factor() {
    assert!(Gptq::new(&[0.0; 4]).is_none());
    assert!(Gptq::new(&[1.0, f32::NAN, f32::NAN, 1.0]).is_none());
    assert!(Gptq::new(&[]).is_none());
}

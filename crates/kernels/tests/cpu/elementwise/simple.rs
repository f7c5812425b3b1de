//! Tests AdamW, reductions, elementwise passes, embeddings and rotary embeddings.

use emberlm_kernels::cpu::adamw::{adamw, sum_of_squares};
use emberlm_kernels::cpu::attention::HeadStrides;
use emberlm_kernels::cpu::embedding::{gather, scatter_add};
use emberlm_kernels::cpu::reduce::{
    add_row_in_place, column_sums, copy, fill_rows, scale_in_place,
};
use emberlm_kernels::cpu::rotary::{rotate, rotate_in_place};
use emberlm_kernels::cpu::rows::{add_weighted, add_weighted_backward};
use emberlm_kernels::{AdamWStep, RotaryLayout};

use crate::numbers::{assert_close, numbers, same_on_any_threads};

const LENS: [usize; 7] = [0, 1, 31, 33, 4097, 32_768, 300_007];

fn doubles(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

#[test]
fn adamw_matches_its_equation() {
    let step = AdamWStep {
        rate: 1e-2,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        decay: 0.1,
        cautious: false,
        step: 3,
    };
    for len in LENS {
        let (p, g, m) = (numbers(1, len), numbers(2, len), numbers(3, len));
        let v: Vec<f32> = numbers(4, len).iter().map(|v| v.abs()).collect();
        let actual = same_on_any_threads(|| {
            let (mut p, mut m, mut v) = (p.clone(), m.clone(), v.clone());
            adamw(&mut p, &g, &mut m, &mut v, 0.5, step);
            [p, m, v].concat()
        });
        let mut expected = vec![0.0; 3 * len];
        for i in 0..len {
            let [p, g, m, v] = [p[i], g[i] * 0.5, m[i], v[i]].map(f64::from);
            let m = 0.9 * m + 0.1 * g;
            let v = 0.95 * v + 0.05 * g * g;
            let (m_hat, v_hat) = (m / (1.0 - 0.9f64.powi(3)), v / (1.0 - 0.95f64.powi(3)));
            expected[i] = p * (1.0 - 1e-3) - 1e-2 * m_hat / (v_hat.sqrt() + 1e-8);
            expected[len + i] = m;
            expected[2 * len + i] = v;
        }
        assert_close("AdamW", &actual, &expected, 1e-6);
    }
}

#[test]
fn sums_include_every_element() {
    for len in LENS {
        let x = numbers(1, len);
        let actual = same_on_any_threads(|| {
            let sum = sum_of_squares(&x);
            vec![sum as f32, (sum - f64::from(sum as f32)) as f32]
        });
        let expected: f64 = doubles(&x).iter().map(|x| x * x).sum();
        assert!((f64::from(actual[0]) - expected).abs() <= 1e-6 * expected);
    }
    for (rows, width) in [(0, 3), (1, 70), (7, 1), (4, 9), (1001, 67), (5, 20_001)] {
        let x = numbers(1, rows * width);
        let actual = same_on_any_threads(|| {
            let mut out = vec![f32::NAN; width];
            column_sums(&x, width, &mut out);
            out
        });
        let mut expected = vec![0.0; width];
        for row in doubles(&x).chunks(width) {
            expected.iter_mut().zip(row).for_each(|(e, x)| *e += x);
        }
        assert_close("column sums", &actual, &expected, 1e-6);
    }
}

#[test]
fn passes_process_every_element() {
    for len in LENS {
        let x = numbers(1, len);
        let actual = same_on_any_threads(|| {
            let mut out = vec![f32::NAN; len];
            copy(&x, &mut out);
            scale_in_place(&mut out, 0.5);
            out
        });
        let expected: Vec<f32> = x.iter().map(|x| x * 0.5).collect();
        assert_eq!(actual, expected);
    }
    for (rows, width) in [(0, 3), (1, 70), (1001, 67)] {
        let (x, row) = (numbers(1, rows * width), numbers(2, width));
        let actual = same_on_any_threads(|| {
            let mut out = vec![f32::NAN; x.len()];
            copy(&x, &mut out);
            add_row_in_place(&mut out, &row);
            let mut rows_alone = vec![f32::NAN; x.len()];
            fill_rows(&row, &mut rows_alone);
            assert!(rows_alone.chunks(width).all(|filled| filled == row));
            out
        });
        let expected: Vec<f32> = (0..x.len()).map(|i| x[i] + row[i % width]).collect();
        assert_eq!(actual, expected);
    }
}

#[test]
fn weighted_rows_are_added_and_differentiated() {
    for (rows, every, width) in [(3, 1, 1), (40, 2, 7), (700, 3, 129), (9, 10, 4)] {
        let base = numbers(1, rows * width);
        let ids: Vec<i32> = (0..rows as i32).skip(1).step_by(every).collect();
        let (x, weights) = (numbers(2, ids.len() * width), numbers(3, ids.len()));
        let mut expected = base.clone();
        for (i, id) in ids.iter().enumerate() {
            for column in 0..width {
                expected[*id as usize * width + column] += weights[i] * x[i * width + column];
            }
        }
        let found = same_on_any_threads(|| {
            let mut found = base.clone();
            add_weighted(&mut found, &ids, &x, &weights, width);
            found
        });
        assert_eq!(found, expected);

        // With the base as the output's gradient.
        let found = same_on_any_threads(|| {
            let (mut x_grad, mut weights_grad) = (x.clone(), weights.clone());
            let grads = [x_grad.as_mut_slice(), weights_grad.as_mut_slice()];
            add_weighted_backward(grads, &ids, &x, &weights, &base, width);
            [x_grad, weights_grad].concat()
        });
        let rows = |i: usize| {
            let id = ids[i] as usize;
            let x = &x[i * width..][..width];
            x.iter().zip(&base[id * width..][..width])
        };
        let x_grad = (0..ids.len()).flat_map(|i| rows(i).map(move |(_, g)| (i, *g)));
        let x_grad = x_grad.map(|(i, g)| weights[i] * g);
        let products = (0..ids.len()).map(|i| rows(i).map(|(x, g)| x * g).sum::<f32>());
        let expected: Vec<f32> = x_grad.chain(products).collect();
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
    }
}

#[test]
fn embedding_gathers_and_scatters() {
    for (tokens, width) in [(0, 3), (1, 1), (40, 7), (500, 129)] {
        let rows = 23;
        let table = numbers(1, rows * width);
        let grad = numbers(2, tokens * width);
        // Row 5 has no id.
        let ids: Vec<i32> = (0..tokens as i32)
            .map(|i| (i * 7 + i / 3) % 23)
            .map(|i| i - i32::from(i == 5))
            .collect();
        let mut out = vec![f32::NAN; tokens * width];
        gather(&table, &ids, width, &mut out);
        // The gradients of an id are summed first.
        let mut sums = vec![0.0; rows * width];
        for (i, id) in ids.iter().enumerate() {
            let row = *id as usize * width..(*id as usize + 1) * width;
            let token = i * width..(i + 1) * width;
            assert_eq!(out[token.clone()], table[row.clone()]);
            sums[row]
                .iter_mut()
                .zip(&grad[token])
                .for_each(|(sum, g)| *sum += g);
        }
        let expected: Vec<f32> = table.iter().zip(&sums).map(|(x, sum)| x + sum).collect();
        let actual = same_on_any_threads(|| {
            let mut table = table.clone();
            scatter_add(&mut table, &ids, &grad, width);
            table
        });
        assert_eq!(actual, expected);
    }
}

#[test]
#[should_panic(expected = "an id is no row of the table")]
fn an_invalid_id_panics() {
    gather(&[0.0; 6], &[0, -1], 2, &mut [0.0; 4]);
}

#[test]
fn rotary_supports_any_strides() {
    for ([batch, heads, seq, head_dim], pairs) in [
        ([1, 1, 1, 2], 1),
        ([2, 3, 5, 10], 4),
        ([3, 2, 7, 6], 3),
        ([2, 4, 67, 64], 32),
        ([2, 1, 3, 4], 0),
    ] {
        let shape = [batch, heads, seq, head_dim];
        let width = (heads + 2) * head_dim;
        let data = numbers(1, batch * seq * width);
        let place = HeadStrides {
            batch: seq * width,
            head: head_dim,
            token: width,
        };
        let angles: Vec<f64> = doubles(&numbers(2, seq * pairs));
        let cos: Vec<f32> = angles.iter().map(|a| a.cos() as f32).collect();
        let sin: Vec<f32> = angles.iter().map(|a| a.sin() as f32).collect();
        for layout in [RotaryLayout::Interleaved, RotaryLayout::HalfSplit] {
            let mut expected = doubles(&data);
            let mut compact = vec![];
            for (b, h, t) in (0..batch)
                .flat_map(|b| (0..heads).flat_map(move |h| (0..seq).map(move |t| (b, h, t))))
            {
                let start = b * place.batch + h * place.head + t * place.token;
                for i in 0..pairs {
                    let (first, second) = match layout {
                        RotaryLayout::Interleaved => (start + 2 * i, start + 2 * i + 1),
                        RotaryLayout::HalfSplit => (start + i, start + pairs + i),
                    };
                    let (sin, cos) = angles[t * pairs + i].sin_cos();
                    let (x, y) = (expected[first], expected[second]);
                    expected[first] = x * cos - y * sin;
                    expected[second] = y * cos + x * sin;
                }
                compact.extend_from_slice(&expected[start..start + head_dim]);
            }
            let actual = same_on_any_threads(|| {
                let mut data = data.clone();
                rotate_in_place(layout, &mut data, place, shape, &cos, &sin, false);
                data
            });
            assert_close("in place", &actual, &expected, 1e-6);
            let out = same_on_any_threads(|| {
                let mut out = vec![f32::NAN; compact.len()];
                rotate(layout, &data, place, &mut out, shape, &cos, &sin);
                out
            });
            assert_close("out of place", &out, &compact, 1e-6);
            let mut back = actual;
            rotate_in_place(layout, &mut back, place, shape, &cos, &sin, true);
            assert_close("and back", &back, &doubles(&data), 1e-6);
        }
    }
}

#[test]
#[should_panic(expected = "overlap")]
fn overlapping_heads_are_rejected() {
    let place = HeadStrides {
        batch: 100,
        head: 3,
        token: 50,
    };
    rotate_in_place(
        RotaryLayout::HalfSplit,
        &mut [0.0; 100],
        place,
        [1, 2, 2, 4],
        &[1.0; 4],
        &[0.0; 4],
        false,
    );
}

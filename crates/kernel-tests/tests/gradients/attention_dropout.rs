//! Statistics of the dropout mask of blocked attention: its rate, its independence across queries and keys, and
//! that it preserves the mean. The bounds are several standard deviations of independent draws.

use burn::tensor::{Tensor, TensorData};
use burn_flex::Flex;
use emberlm_kernels::reference::{self, AttentionBlocks};
use emberlm_kernels::{AttentionMask, AttentionOptions, Backend};

use crate::compare::{causal, constant, host, numbers, primitive, random_state, typed};

const ROWS: [usize; 3] = [4, 8, 64]; // batch, heads, queries
const PAST: usize = 449;
/// The number of keys that are visible to every query.
const VISIBLE: usize = PAST + 1;

fn options(dropout: f64) -> AttentionOptions {
    AttentionOptions {
        dropout,
        ..causal(1.0)
    }
}

/// The dropout mask, 1 for kept and 0 for dropped weights: one row of `VISIBLE` keys per query. The keys are
/// identical, so all weights are equal; the values are rows of the identity, so the output is the mask.
fn mask<B: Backend>(dropout: f64) -> Vec<Vec<f64>> {
    let _drawing = random_state();
    B::seed(&Default::default(), 3);
    let [batch, heads, queries] = ROWS;
    let k_len = PAST + queries;
    let zeros = |shape| primitive(Tensor::<B, 4>::zeros(shape, &Default::default()));
    let identity: Vec<f32> = (0..k_len * k_len)
        .map(|at| f32::from(u8::from(at / k_len == at % k_len)))
        .collect();
    let identity = constant::<B, 4>(&TensorData::new(identity, [1, 1, k_len, k_len]));
    let (output, _) = reference::blocked_attention_training::<B>(
        zeros([batch, heads, queries, 1]),
        zeros([batch, 1, k_len, 1]),
        primitive(identity.repeat_dim(0, batch)),
        AttentionMask::default(),
        options(dropout),
        Some(AttentionBlocks {
            sequences: 2,
            queries: 32,
        }),
    );
    let output = host(typed::<B, 4>(output));
    let kept = |row: &[f32]| {
        let row = row[..VISIBLE].iter();
        row.map(|&weight| f64::from(u8::from(weight > 0.0)))
            .collect()
    };
    output.chunks(k_len).map(kept).collect()
}

fn transposed(rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column]).collect())
        .collect()
}

/// The mean over all lines of the squared correlation of `together` consecutive lines, times their length. It is
/// 1 for independent lines, with a standard deviation of about `√(2 / lines)`.
fn squared_correlation(lines: &[Vec<f64>], kept: f64, together: usize) -> f64 {
    let deviation = (kept * (1.0 - kept)).sqrt();
    let normed = |x: f64| (x - kept) / deviation;
    let squares = lines.windows(together).map(|lines| {
        let products = (0..lines[0].len())
            .map(|at| lines.iter().map(|line| normed(line[at])).product::<f64>());
        products.sum::<f64>().powi(2) / lines[0].len() as f64
    });
    squares.sum::<f64>() / (lines.len() + 1 - together) as f64
}

/// The rate at which adjacent elements of a line differ.
fn changes(lines: &[Vec<f64>]) -> f64 {
    let of_line = |line: &Vec<f64>| line.windows(2).filter(|two| two[0] != two[1]).count();
    let pairs = lines.len() * (lines[0].len() - 1);
    lines.iter().map(of_line).sum::<usize>() as f64 / pairs as f64
}

/// Asserts that the elements of the mask are independent at this dropout rate.
pub fn independent<B: Backend>(dropout: f64) {
    let rows = mask::<B>(dropout);
    let kept = 1.0 - dropout;
    let count = (rows.len() * VISIBLE) as f64;
    let share = rows.iter().flatten().sum::<f64>() / count;
    let deviation = (kept * dropout / count).sqrt();
    assert!((share - kept).abs() < 5.0 * deviation, "kept {share}");
    for (what, lines) in [("queries", &rows), ("keys", &transposed(&rows))] {
        // The share of kept weights in every line is within the bounds of chance.
        let length = lines[0].len() as f64;
        for line in lines {
            let share = line.iter().sum::<f64>() / length;
            let deviation = (kept * dropout / length).sqrt();
            assert!((share - kept).abs() < 6.0 * deviation, "{what}: {share}");
        }
        for together in [2, 3] {
            let actual = squared_correlation(lines, kept, together);
            let deviation = (2.0 / lines.len() as f64).sqrt();
            let off = (actual - 1.0).abs();
            // The squares have larger fourth moments at low dropout rates, and more so for three lines.
            assert!(off < 8.0 * deviation, "{what}, {together}: {actual}");
        }
        let expected = 2.0 * kept * dropout;
        let deviation = (expected * (1.0 - expected) / count).sqrt();
        let actual = changes(lines);
        assert!(
            (actual - expected).abs() < 8.0 * deviation,
            "{what}: {actual}"
        );
    }
}

/// The mean of many outputs with dropout is the output without dropout.
pub fn preserves_the_mean() {
    let [q, k, v] = [1, 2, 3].map(|seed| numbers(seed, [1, 2, 12, 4]));
    let output = |dropout| {
        let [q, k, v] = [&q, &k, &v].map(|data| primitive(constant::<Flex, 4>(data)));
        let (mask, options) = (AttentionMask::default(), options(dropout));
        let made = reference::blocked_attention_training::<Flex>(q, k, v, mask, options, None);
        host(typed::<Flex, 4>(made.0))
    };
    let _drawing = random_state();
    <Flex as burn::tensor::backend::Backend>::seed(&Default::default(), 5);
    let draws = 2000;
    let (mut sums, mut squares) = (vec![0.0; 96], vec![0.0; 96]);
    for _ in 0..draws {
        for (at, x) in output(0.25).into_iter().enumerate() {
            sums[at] += f64::from(x);
            squares[at] += f64::from(x) * f64::from(x);
        }
    }
    for ((sum, square), expected) in sums.into_iter().zip(squares).zip(output(0.0)) {
        let mean = sum / f64::from(draws);
        let variance: f64 = square / f64::from(draws) - mean * mean;
        let deviation = (variance / f64::from(draws)).sqrt();
        let off = (mean - f64::from(expected)).abs();
        assert!(off < 5.0 * deviation + 1e-5, "{mean} for {expected}");
        // Some weights were dropped.
        assert!(deviation > 0.0);
    }
}

/// Dropout rates near 0 and 1 do not divide by 0.
pub fn extreme_rates_give_finite_outputs() {
    for dropout in [1e-9, 1.0 - 1e-9] {
        let rows = mask::<Flex>(dropout);
        let kept = rows.iter().flatten().sum::<f64>() / (rows.len() * VISIBLE) as f64;
        assert!((kept - (1.0 - dropout)).abs() < 1e-3, "{kept}");
    }
}

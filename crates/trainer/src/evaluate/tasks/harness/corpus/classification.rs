//! F1 and Matthews' correlation coefficient of choices, as scikit-learn's `f1_score` and `matthews_corrcoef`.
//!
//! The counts are the confusion matrix: a row for each correct choice, a column for each chosen one.

/// The counts of an item, for tasks of `classes` choices.
pub(super) fn counts(correct: usize, chosen: usize, classes: usize) -> Vec<u64> {
    let mut counts = vec![0; classes * classes];
    if let Some(count) = counts.get_mut(correct * classes + chosen) {
        *count = 1;
    }
    counts
}

/// The sums of the rows and of the columns, and that of the diagonal.
fn sums(counts: &[u64]) -> (Vec<f64>, Vec<f64>, f64) {
    let classes = counts.len().isqrt();
    let (mut rows, mut columns, mut diagonal) = (vec![0.0; classes], vec![0.0; classes], 0.0);
    for (at, count) in counts.iter().enumerate() {
        let (row, column, count) = (at / classes, at % classes, *count as f64);
        rows[row] += count;
        columns[column] += count;
        if row == column {
            diagonal += count;
        }
    }
    (rows, columns, diagonal)
}

/// `2 · hits / (correct + chosen)` of the second choice; 0 if it is neither correct nor chosen.
pub(super) fn f1(counts: &[u64]) -> f64 {
    let (rows, columns, _) = sums(counts);
    let (Some(correct), Some(chosen)) = (rows.get(1), columns.get(1)) else {
        return 0.0;
    };
    match correct + chosen {
        0.0 => 0.0,
        total => 2.0 * counts[rows.len() + 1] as f64 / total,
    }
}

/// Matthews' correlation coefficient of any number of classes (Gorodkin 2004); 0 if all items have one correct choice or one
/// chosen one.
pub(super) fn mcc(counts: &[u64]) -> f64 {
    let (rows, columns, hits) = sums(counts);
    let items: f64 = rows.iter().sum();
    let dot = |one: &[f64], other: &[f64]| -> f64 {
        one.iter().zip(other).map(|(one, other)| one * other).sum()
    };
    let covariance = hits * items - dot(&rows, &columns);
    let variances = (items * items - dot(&columns, &columns)) * (items * items - dot(&rows, &rows));
    match variances {
        0.0 => 0.0,
        variances => covariance / variances.sqrt(),
    }
}

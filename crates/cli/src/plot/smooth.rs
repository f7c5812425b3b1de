//! Smoothing of curves, and downsampling to as many points as are visible.

/// Curves with fewer points are not smoothed.
const FEW: usize = 100;
/// Maximum number of distinguishable points.
const MANY: usize = 3000;

/// The number of neighbours on each side to smooth over. Returns 0 if there are few points.
fn reach(points: usize) -> usize {
    if points < FEW { 0 } else { points / 40 }
}

/// Smooths a curve by [`local_regression`]. Returns `None` if there are too few points.
pub fn smoothed(points: &[(f64, f64)]) -> Option<Vec<(f64, f64)>> {
    let points = &averaged(points);
    match reach(points.len()) {
        0 => None,
        reach => Some(local_regression(points, reach)),
    }
}

/// Smooths a curve by local linear regression over `reach` neighbours on each side, with weights that decrease with distance.
/// The result does not lag behind the curve (Cleveland 1979, without the robustness iterations). NaN values are ignored. Fewer
/// neighbours are used near the steep beginning of a curve.
pub fn local_regression(points: &[(f64, f64)], reach: usize) -> Vec<(f64, f64)> {
    let at = |middle: usize| {
        let reach = reach.min(middle);
        let right = reach.min(points.len() - 1 - middle);
        // At the end of the curve, the window keeps its size and extends to the left instead.
        let left = middle.min(2 * reach - right);
        let scale = (left.max(right) + 1) as f64;
        let mut sums = Sums::default();
        let near = points[middle - left..=middle + right].iter();
        for (at, &point) in near.enumerate() {
            let weight = 1.0 - at.abs_diff(left) as f64 / scale;
            sums.add(weight, point.0 - points[middle].0, point.1);
        }
        (points[middle].0, sums.at_zero())
    };
    (0..points.len()).map(at).collect()
}

/// Sums of a weighted linear regression.
#[derive(Default)]
struct Sums {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Sums {
    fn add(&mut self, weight: f64, x: f64, y: f64) {
        if y.is_finite() {
            self.weight += weight;
            self.x += weight * x;
            self.y += weight * y;
            self.xx += weight * x * x;
            self.xy += weight * x * y;
        }
    }

    /// The regression line's value at 0, or the mean if the line is undetermined.
    fn at_zero(&self) -> f64 {
        let determinant = self.weight * self.xx - self.x * self.x;
        if determinant > 1e-9 * self.weight * self.xx {
            return (self.xx * self.y - self.x * self.xy) / determinant;
        }
        self.y / self.weight
    }
}

/// Averages neighbouring points if there are more than [`MANY`].
pub fn averaged(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let of = |part: &[(f64, f64)]| {
        let numbers = || part.iter().filter(|(_, y)| y.is_finite());
        let count = numbers().count() as f64;
        let y = numbers().map(|(_, y)| y).sum::<f64>() / count;
        (part[part.len() / 2].0, y)
    };
    let each = points.len().div_ceil(MANY).max(1);
    points.chunks(each).map(of).collect()
}

/// Downsamples a curve and keeps its outline: the lowest and the highest point of each chunk.
pub fn outline(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if points.len() <= MANY {
        return points;
    }
    let each = points.len().div_ceil(MANY / 2);
    let mut kept = Vec::new();
    for part in points.chunks(each) {
        let numbers = || part.iter().enumerate().filter(|(_, (_, y))| y.is_finite());
        let by = |a: &(usize, &(f64, f64)), b: &(usize, &(f64, f64))| a.1.1.total_cmp(&b.1.1);
        if let (Some((low, _)), Some((high, _))) = (numbers().min_by(by), numbers().max_by(by)) {
            kept.push(part[low.min(high)]);
            if low != high {
                kept.push(part[low.max(high)]);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_keeps_lines_and_removes_noise() {
        let line: Vec<_> = (0..300)
            .map(|i| (f64::from(i), f64::from(i) * 0.5))
            .collect();
        let smooth = smoothed(&line).expect("many points");
        for (a, b) in line.iter().zip(&smooth) {
            assert!((a.1 - b.1).abs() < 1e-9, "{a:?} {b:?}");
        }
        let noise = |i: i32| if i % 2 == 0 { 1.0 } else { -1.0 };
        let noisy: Vec<_> = (0..300).map(|i| (f64::from(i), noise(i))).collect();
        let smooth = smoothed(&noisy).expect("many points");
        assert!(smooth[10..290].iter().all(|(_, y)| y.abs() < 0.1));
    }

    #[test]
    fn few_points_are_not_smoothed_and_nan_is_ignored() {
        assert_eq!(smoothed(&[(0.0, 1.0); 99]), None);
        let mut points = vec![(0.0, 1.0); 200];
        points[100].1 = f64::NAN;
        let smooth = smoothed(&points).expect("many points");
        assert!(smooth.iter().all(|&(_, y)| (y - 1.0).abs() < 1e-9));
    }

    #[test]
    fn downsampling_keeps_the_outline() {
        let mut points: Vec<_> = (0..100_000).map(|i| (f64::from(i), 1.0)).collect();
        points[50_001].1 = 9.0;
        points[70_000].1 = -9.0;
        assert!(smoothed(&points).expect("many points").len() <= MANY);
        let outline = outline(points);
        assert!(outline.len() <= MANY);
        assert!(outline.contains(&(50_001.0, 9.0)) && outline.contains(&(70_000.0, -9.0)));
        assert!(outline.is_sorted_by(|a, b| a.0 < b.0));
    }
}

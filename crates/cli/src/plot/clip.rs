//! Clips lines and bands at the edges of the plot.

/// Clips a polyline to `low..=high`, and returns its visible parts. A missing height breaks the line.
pub fn clipped(
    points: impl IntoIterator<Item = (f64, Option<f64>)>,
    low: f64,
    high: f64,
) -> Vec<Vec<(f64, f64)>> {
    let mut parts = Vec::new();
    let mut part: Vec<(f64, f64)> = Vec::new();
    let mut before: Option<(f64, f64)> = None;
    for (x, y) in points {
        let Some(y) = y else {
            parts.push(std::mem::take(&mut part));
            before = None;
            continue;
        };
        let cut = before.and_then(|before| segment(before, (x, y), low, high));
        match cut {
            Some((from, to)) => {
                if part.last() != Some(&from) {
                    parts.push(std::mem::replace(&mut part, vec![from]));
                }
                part.push(to);
            }
            None => parts.push(std::mem::take(&mut part)),
        }
        before = Some((x, y));
    }
    parts.push(part);
    parts.retain(|part| part.len() > 1);
    parts
}

/// Clips a line segment to a range of heights (Liang and Barsky 1984, in one dimension).
fn segment(
    (x0, y0): (f64, f64),
    (x1, y1): (f64, f64),
    low: f64,
    high: f64,
) -> Option<((f64, f64), (f64, f64))> {
    let inside = |y: f64| (low..=high).contains(&y);
    if inside(y0) && inside(y1) {
        return Some(((x0, y0), (x1, y1)));
    }
    if y0.max(y1) < low || y0.min(y1) > high {
        return None;
    }
    // The segment crosses a limit, so it is not horizontal and `y1 - y0` is not 0.
    let at = |y: f64| (x0 + (x1 - x0) * (y - y0) / (y1 - y0), y);
    let end = |x: f64, y: f64| match y {
        _ if y < low => at(low),
        _ if y > high => at(high),
        _ => (x, y),
    };
    Some((end(x0, y0), end(x1, y1)))
}

/// Clips a band to `low..=high`, and returns its visible polygons. Points are the position and the two edges; a missing
/// edge breaks the band.
pub fn clipped_band(
    points: impl IntoIterator<Item = (f64, Option<(f64, f64)>)>,
    low: f64,
    high: f64,
) -> Vec<Vec<(f64, f64)>> {
    let mut polygons = Vec::new();
    let mut edges: [Vec<(f64, f64)>; 2] = Default::default();
    let mut finish = |[lower, upper]: [Vec<(f64, f64)>; 2]| {
        if lower.len() > 1 {
            let around: Vec<_> = lower.into_iter().chain(upper.into_iter().rev()).collect();
            let below = half_plane(&around, high, |y| y <= high);
            polygons.push(half_plane(&below, low, |y| y >= low));
        }
    };
    for (x, band) in points {
        match band {
            Some((lower, upper)) => {
                edges[0].push((x, lower));
                edges[1].push((x, upper));
            }
            None => finish(std::mem::take(&mut edges)),
        }
    }
    finish(edges);
    polygons.retain(|polygon| polygon.len() > 2);
    polygons
}

/// Clips a polygon at a height (Sutherland and Hodgman 1974).
fn half_plane(polygon: &[(f64, f64)], limit: f64, inside: impl Fn(f64) -> bool) -> Vec<(f64, f64)> {
    let mut kept = Vec::new();
    let mut before = polygon.last();
    for corner in polygon {
        if let Some(&(x0, y0)) = before.filter(|(_, y)| inside(*y) != inside(corner.1)) {
            let (x1, y1) = *corner;
            kept.push((x0 + (x1 - x0) * (limit - y0) / (y1 - y0), limit));
        }
        if inside(corner.1) {
            kept.push(*corner);
        }
        before = Some(corner);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_cut_at_the_limits() {
        let inside = [(0.0, Some((1.0, 2.0))), (1.0, Some((1.0, 3.0)))];
        let corners = vec![(0.0, 1.0), (1.0, 1.0), (1.0, 3.0), (0.0, 2.0)];
        assert_eq!(clipped_band(inside, 0.0, 4.0), [corners]);
        // The upper edge, from (0, 2) to (1, 3), crosses 2.5 at 0.5.
        let cut = vec![(0.0, 1.0), (1.0, 1.0), (1.0, 2.5), (0.5, 2.5), (0.0, 2.0)];
        assert_eq!(clipped_band(inside, 0.0, 2.5), [cut]);
        assert_eq!(clipped_band(inside, 5.0, 6.0).len(), 0);
        let broken = [inside[0], inside[1], (2.0, None), inside[0]];
        assert_eq!(clipped_band(broken, 0.0, 4.0).len(), 1);
    }

    #[test]
    fn lines_are_cut_at_the_limits() {
        let line = [(0.0, 4.0), (1.0, 2.0), (2.0, 0.0), (3.0, 2.0)];
        let placed = line.map(|(x, y)| (x, Some(y)));
        assert_eq!(
            clipped(placed, 1.0, 3.0),
            [
                vec![(0.5, 3.0), (1.0, 2.0), (1.5, 1.0)],
                vec![(2.5, 1.0), (3.0, 2.0)]
            ]
        );
        assert_eq!(clipped(placed, 0.0, 4.0), [line.to_vec()]);
        assert_eq!(
            clipped([(0.0, Some(9.0)), (1.0, Some(8.0))], 0.0, 1.0).len(),
            0
        );
    }

    #[test]
    fn a_steep_line_crosses_the_whole_range() {
        let line = [(0.0, Some(-10.0)), (1.0, Some(10.0))];
        assert_eq!(clipped(line, -5.0, 5.0), [vec![(0.25, -5.0), (0.75, 5.0)]]);
    }

    #[test]
    fn a_missing_value_breaks_the_line() {
        let line = [
            (0.0, Some(1.0)),
            (1.0, Some(1.0)),
            (2.0, None),
            (3.0, Some(1.0)),
            (4.0, Some(1.0)),
        ];
        assert_eq!(clipped(line, 0.0, 2.0).len(), 2);
        assert_eq!(clipped([(0.0, Some(1.0))], 0.0, 2.0).len(), 0);
    }
}

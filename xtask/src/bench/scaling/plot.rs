//! The plot of the costs: a column of panels per dimension, speed above memory, with logarithmic axes.
//!
//! It is written as text, because xtask is built before every task and six small panels do not justify a
//! plotting crate.

use super::{Dimension, Measured};

/// The size of a panel with its margins.
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 46.0;
/// Space beyond the outermost points for their labels.
const INSET: f64 = 22.0;

/// A quantity that is plotted over a size.
#[derive(Clone, Copy)]
struct Quantity {
    name: &'static str,
    color: &'static str,
    of: fn(&Measured) -> f64,
}

const QUANTITIES: [Quantity; 2] = [
    Quantity {
        name: "tokens/s",
        color: "#1f6fb4",
        of: |measured| measured.speed,
    },
    Quantity {
        name: "peak MiB",
        color: "#c2571a",
        of: |measured| measured.peak,
    },
];

/// The complete plot as SVG.
pub fn svg(measured: &[Measured]) -> String {
    let (columns, rows) = (Dimension::ALL.len(), QUANTITIES.len());
    let (width, height) = (WIDTH * columns as f64, HEIGHT * rows as f64);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (column, dimension) in Dimension::ALL.into_iter().enumerate() {
        for (row, quantity) in QUANTITIES.into_iter().enumerate() {
            let (x, y) = (WIDTH * column as f64, HEIGHT * row as f64);
            text.push_str(&format!("<g transform=\"translate({x} {y})\">\n"));
            text.push_str(&panel(measured, dimension, quantity));
            text.push_str("</g>\n");
        }
    }
    text + "</svg>\n"
}

/// One curve with its axes.
fn panel(measured: &[Measured], dimension: Dimension, quantity: Quantity) -> String {
    let points = dimension.points();
    let of = |point: &super::Point| measured.iter().find(|it| it.point == *point);
    let measured: Vec<&Measured> = points.iter().filter_map(of).collect();
    let values: Vec<f64> = measured.iter().map(|&m| (quantity.of)(m)).collect();
    let ticks = ticks(&values);
    let sizes: Vec<f64> = measured
        .iter()
        .map(|m| dimension.of(m.point) as f64)
        .collect();
    let x = Axis::new(&sizes, LEFT + INSET, WIDTH - RIGHT - INSET);
    let y = Axis::new(&ticks, HEIGHT - BOTTOM, TOP);
    let name = quantity.name;
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let mut text = format!(
        "<text x=\"{middle}\" y=\"20\" text-anchor=\"middle\" font-size=\"14\">{name} over {}</text>\n",
        dimension.name()
    );
    for &tick in &ticks {
        let at = y.place(tick);
        let (from, to, label) = (LEFT, WIDTH - RIGHT, LEFT - 6.0);
        text.push_str(&format!(
            "<path d=\"M{from} {at:.1}H{to}\" stroke=\"#ddd\"/>\n\
             <text x=\"{label}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>\n",
            at + 4.0
        ));
    }
    let below = HEIGHT - BOTTOM + 18.0;
    for &size in &sizes {
        text.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{below}\" text-anchor=\"middle\">{size}</text>\n",
            x.place(size)
        ));
    }
    let places: Vec<(f64, f64)> = sizes
        .iter()
        .zip(&values)
        .map(|(&size, &value)| (x.place(size), y.place(value)))
        .collect();
    let joined: Vec<String> = places
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    text.push_str(&format!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
        joined.join(" "),
        quantity.color
    ));
    for ((x, y), value) in places.iter().zip(&values) {
        text.push_str(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{}\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\">{value:.0}</text>\n",
            quantity.color,
            y - 8.0
        ));
    }
    text
}

/// A logarithmic axis.
struct Axis {
    least: f64,
    greatest: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(numbers: &[f64], from: f64, to: f64) -> Self {
        let logarithms = || numbers.iter().map(|number| number.ln());
        Self {
            least: logarithms().fold(f64::INFINITY, f64::min),
            greatest: logarithms().fold(f64::NEG_INFINITY, f64::max),
            from,
            to,
        }
    }

    fn place(&self, number: f64) -> f64 {
        let span = self.greatest - self.least;
        // Centres a single number.
        let part = match span > 0.0 {
            true => (number.ln() - self.least) / span,
            false => 0.5,
        };
        self.from + part * (self.to - self.from)
    }
}

/// The multiples 1, 2 and 5 of powers of ten around the values.
fn ticks(values: &[f64]) -> Vec<f64> {
    let positive = || values.iter().copied().filter(|value| *value > 0.0);
    let least = positive().fold(f64::INFINITY, f64::min);
    let greatest = positive().fold(0.0, f64::max);
    let all: Vec<f64> = (-3..12)
        .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)))
        .collect();
    let first = all.iter().rposition(|&tick| tick <= least);
    let last = all.iter().position(|&tick| tick >= greatest);
    match first.zip(last) {
        Some((first, last)) if first <= last => all[first..=last].to_vec(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::points, *};

    #[test]
    fn the_ticks_are_around_the_values() {
        assert_eq!(ticks(&[130.0, 900.0]), [100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(ticks(&[20.0]), [20.0]);
        assert!(ticks(&[]).is_empty());
    }

    #[test]
    fn an_axis_is_logarithmic() {
        let axis = Axis::new(&[1.0, 100.0], 0.0, 50.0);
        assert!((axis.place(10.0) - 25.0).abs() < 1e-9);
        assert_eq!(Axis::new(&[7.0], 0.0, 50.0).place(7.0), 25.0);
    }

    #[test]
    fn every_size_is_a_point_in_two_panels() {
        let measured = |point: super::super::Point| Measured {
            point,
            speed: 1e9 / (point.width * point.seq * point.batch) as f64,
            peak: 90.0,
        };
        let measured: Vec<_> = points(None).into_iter().map(measured).collect();
        let picture = svg(&measured);
        assert_eq!(picture.matches("<polyline").count(), 6);
        assert_eq!(picture.matches("<circle").count(), 2 * (4 + 6 + 5));
        assert!(
            !picture.contains("NaN") && !picture.contains("inf"),
            "{picture}"
        );
    }
}

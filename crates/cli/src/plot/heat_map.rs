//! Attention weights as heat maps: one panel per layer and head, with queries as rows and keys as columns.

mod layout;

use plotters::backend::DrawingBackend;
use plotters::coord::Shift;
use plotters::drawing::DrawingArea;
use plotters::style::RGBColor;

use super::cells::{DrawResult, colour_bar, filled, framed, share, viridis};
use super::legend::middle_cut;
use super::paint::{Pen, Picture};
use super::theme::{FAINT, INK, Lettering, Side};
use layout::Layout;
pub use layout::{cells, fits};

/// A heat map of attention weights.
pub struct HeatMap<'a> {
    /// The heading.
    pub title: String,
    /// Layer indices, one row of panels each.
    pub layers: &'a [usize],
    /// Head indices, one column of panels each.
    pub heads: &'a [usize],
    /// Labels of the query tokens.
    pub queries: &'a [String],
    /// Labels of the key tokens.
    pub keys: &'a [String],
    /// The keys that a query may attend to; the other cells are left empty.
    pub reach: Reach,
    /// Returns the weights `[queries, keys]` of a layer and a head. The arguments index `layers` and `heads`.
    pub weights: &'a dyn Fn(usize, usize) -> &'a [f32],
}

/// The keys that a query may attend to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Its own token and earlier ones. Queries and keys are the same tokens.
    Causal,
    /// All.
    Full,
}

impl Reach {
    /// The number of keys, of `keys`, that query `query` may attend to.
    pub fn keys(self, query: usize, keys: usize) -> usize {
        match self {
            Self::Causal => (query + 1).min(keys),
            Self::Full => keys,
        }
    }
}

const ABOUT: &str = "row: query token; column: key token; colour: attention weight";
/// Weights with a tick on the colour bar.
const MARKS: [f64; 6] = [1.0, 0.5, 0.25, 0.1, 0.01, 0.0];

/// Maps a weight to a colour: the square root as the share, so that 0.01 is visible next to 1.
fn colour(weight: f32) -> RGBColor {
    viridis(f64::from(weight.clamp(0.0, 1.0)).sqrt())
}

impl Picture for HeatMap<'_> {
    fn size(&self) -> (u32, u32) {
        self.layout().size()
    }

    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, pen: Pen) -> DrawResult<DB> {
        let layout = self.layout();
        let (x, y) = layout.title();
        let title = middle_cut(&self.title, layout.title_characters());
        pen.write(area, &title, (x, y), Lettering::new(38, INK, Side::Left))?;
        pen.write(
            area,
            ABOUT,
            (x, y + 40),
            Lettering::new(25, FAINT, Side::Left),
        )?;
        for row in 0..self.layers.len() {
            for column in 0..self.heads.len() {
                self.panel(&layout, row, column, area, pen)?;
            }
        }
        self.headings(&layout, area, pen)?;
        self.token_labels(&layout, area, pen)?;
        let marks = MARKS.map(|weight| (weight.sqrt(), weight.to_string()));
        colour_bar(layout.colour_bar(), "weight", &marks, area, pen)
    }
}

impl HeatMap<'_> {
    fn layout(&self) -> Layout {
        Layout::new(self.layers.len(), self.heads.len(), self.queries, self.keys)
    }

    fn panel<DB: DrawingBackend>(
        &self,
        layout: &Layout,
        row: usize,
        column: usize,
        area: &DrawingArea<DB, Shift>,
        pen: Pen,
    ) -> DrawResult<DB> {
        let weights = (self.weights)(row, column);
        let (left, top) = layout.panel(row, column);
        let (width, height) = (layout.width, layout.height);
        framed(area, pen, (left, top), (width as i32, height as i32))?;
        let (queries, keys) = (self.queries.len(), self.keys.len());
        let (rows, columns) = (height.min(queries), width.min(keys));
        let below = |row: usize| (row * height / rows) as i32;
        let beside = |column: usize| (column * width / columns) as i32;
        for row in 0..rows {
            let of_row = share(row, rows, queries);
            let reached = self.reach.keys(of_row.end - 1, keys);
            let columns_of_row =
                (0..columns).take_while(|&c| share(c, columns, keys).start < reached);
            let of_column = |column| {
                let of_column = share(column, columns, keys);
                colour(largest(
                    weights,
                    keys,
                    self.reach,
                    of_row.clone(),
                    of_column,
                ))
            };
            let colours: Vec<RGBColor> = columns_of_row.map(of_column).collect();
            let (above, below) = (top + below(row), top + below(row + 1));
            let mut column = 0;
            for run in colours.chunk_by(|a, b| a == b) {
                let (from, to) = (left + beside(column), left + beside(column + run.len()));
                filled(area, pen, (from, above), (to, below), run[0])?;
                column += run.len();
            }
        }
        Ok(())
    }

    fn headings<DB: DrawingBackend>(
        &self,
        layout: &Layout,
        area: &DrawingArea<DB, Shift>,
        pen: Pen,
    ) -> DrawResult<DB> {
        let lettering = Lettering::new(layout.heading_size(), INK, Side::Middle);
        for (column, head) in self.heads.iter().enumerate() {
            let (left, top) = layout.panel(0, column);
            let place = (left + layout.width as i32 / 2, top - 26);
            pen.write(area, &format!("head {head}"), place, lettering)?;
        }
        for (row, layer) in self.layers.iter().enumerate() {
            let (_, top) = layout.panel(row, 0);
            let place = (layout.title().0 + 14, top + layout.height as i32 / 2);
            let upwards = lettering.upwards();
            pen.write(area, &format!("layer {layer}"), place, upwards)?;
        }
        Ok(())
    }

    /// Labels the rows of the leftmost panels and the columns of the bottom panels, if the cells are large
    /// enough.
    fn token_labels<DB: DrawingBackend>(
        &self,
        layout: &Layout,
        area: &DrawingArea<DB, Shift>,
        pen: Pen,
    ) -> DrawResult<DB> {
        let Some(size) = layout.token_size() else {
            return Ok(());
        };
        let right = Lettering::new(size, FAINT, Side::Right).monospaced();
        let centre =
            |n: usize, side: usize, count: usize| ((2 * n + 1) * side / (2 * count)) as i32;
        for row in 0..self.layers.len() {
            let (left, top) = layout.panel(row, 0);
            for (n, token) in self.queries.iter().enumerate() {
                let y = top + centre(n, layout.height, self.queries.len());
                pen.write(area, token, (left - 6, y), right)?;
            }
        }
        let upright = self.keys.iter().all(|token| token.chars().count() == 1);
        let middle = Lettering::new(size, FAINT, Side::Middle).monospaced();
        for column in 0..self.heads.len() {
            let (left, top) = layout.panel(self.layers.len() - 1, column);
            let bottom = top + layout.height as i32 + 6;
            for (n, token) in self.keys.iter().enumerate() {
                let x = left + centre(n, layout.width, self.keys.len());
                match upright {
                    true => pen.write(area, token, (x, bottom + size / 2), middle)?,
                    false => pen.write(area, token, (x, bottom), right.upwards())?,
                }
            }
        }
        Ok(())
    }
}

/// Returns the largest of the weights `[queries, count]` of some queries and keys that may attend to each other.
fn largest(
    weights: &[f32],
    count: usize,
    reach: Reach,
    queries: std::ops::Range<usize>,
    keys: std::ops::Range<usize>,
) -> f32 {
    let visible = queries.flat_map(|query| {
        let reached = reach.keys(query, count);
        let keys = keys.clone().take_while(move |&key| key < reached);
        keys.map(move |key| weights[query * count + key])
    });
    visible.reduce(f32::max).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_partition_the_tokens() {
        let shares = |cells, count| {
            (0..cells)
                .map(move |at| share(at, cells, count))
                .collect::<Vec<_>>()
        };
        assert_eq!(shares(2, 5), [0..2, 2..5]);
        assert_eq!(shares(3, 3), [0..1, 1..2, 2..3]);
    }

    #[test]
    fn a_cell_of_several_tokens_shows_the_largest_visible_weight() {
        #[rustfmt::skip]
        let weights = [
            1.0, 0.9, 0.9, 0.9,
            0.6, 0.4, 0.9, 0.9,
            0.1, 0.2, 0.7, 0.9,
            0.3, 0.1, 0.1, 0.5,
        ];
        let of = |queries, keys| largest(&weights, 4, Reach::Causal, queries, keys);
        assert_eq!(of(0..2, 0..2), 1.0);
        assert_eq!(of(2..4, 0..2), 0.3);
        assert_eq!(of(2..4, 2..4), 0.7);
        let full = |queries, keys| largest(&weights, 4, Reach::Full, queries, keys);
        assert_eq!(full(2..4, 2..4), 0.9);
        assert_eq!(full(1..2, 0..2), 0.6);
    }

    #[test]
    fn colours_get_lighter_with_the_weight() {
        let light = |weight| {
            let RGBColor(r, g, b) = colour(weight);
            0.2126 * f64::from(r) + 0.7152 * f64::from(g) + 0.0722 * f64::from(b)
        };
        let lights: Vec<f64> = (0..=100).map(|n| light(n as f32 / 100.0)).collect();
        assert!(lights.is_sorted(), "{lights:?}");
        assert_eq!(colour(f32::NAN), RGBColor(0, 0, 0), "NaN is black");
    }
}

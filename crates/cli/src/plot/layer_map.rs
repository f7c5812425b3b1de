//! A norm of each layer over the steps of a run, as a heat map with a logarithmic colour scale.

use std::ops::Range;

use emberlm_trainer::events::{LayerNorms, NormKind};
use plotters::backend::DrawingBackend;
use plotters::coord::Shift;
use plotters::drawing::DrawingArea;
use plotters::style::RGBColor;

use super::axis::{Axis, ends, short, significant};
use super::cells::{DrawResult, colour_bar, filled, framed, share, viridis};
use super::group::NamedRun;
use super::legend::middle_cut;
use super::paint::{Pen, Picture};
use super::theme::{FAINT, INK, Lettering, Side};

const WIDTH: i32 = 1600;
/// The top left corner of the cells.
const LEFT: i32 = 270;
const TOP: i32 = 140;
/// The width of the cells, and their most columns.
const CELLS: i32 = 1150;
const MOST_COLUMNS: usize = 575;
/// The intended height of the cells, and the limits of a row.
const HEIGHT: i32 = 640;
const ROW: (i32, i32) = (6, 56);
/// The height of a label.
const LABEL: i32 = 24;

/// A heat map of one norm: a row per layer, a column per step or for several neighbouring ones.
pub struct LayerMap {
    title: String,
    layers: Vec<String>,
    steps: Vec<usize>,
    /// `[layers][steps]`; absent where a layer has no norm.
    values: Vec<Vec<Option<f64>>>,
    /// The colour scale.
    scale: Axis,
}

impl LayerMap {
    /// The norms of a run. `None` if it recorded none above 0.
    pub fn new(run: &NamedRun, kind: NormKind) -> Option<Self> {
        let norms = &run.history.norms;
        let mut layers: Vec<String> = Vec::new();
        for layer in norms.iter().flat_map(|(_, layers)| layers) {
            if kind.of(layer).is_some() && !layers.contains(&layer.layer) {
                layers.push(layer.layer.clone());
            }
        }
        let of = |name: &String| {
            let of_step = |(_, layers): &(usize, Vec<LayerNorms>)| {
                let layer = layers.iter().find(|layer| layer.layer == *name)?;
                kind.of(layer).filter(|&norm| norm > 0.0)
            };
            norms.iter().map(of_step).collect()
        };
        let values: Vec<Vec<Option<f64>>> = layers.iter().map(of).collect();
        let positive: Vec<f64> = values.iter().flatten().flatten().copied().collect();
        let (low, high) = ends(&positive)?;
        Some(Self {
            title: format!("{}: {}", kind.title(), run.name),
            layers,
            steps: norms.iter().map(|(step, _)| *step).collect(),
            values,
            scale: Axis::logarithmic(low, high, 6),
        })
    }

    /// The heading of the picture.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// A row per layer for a table: its name, and its first, last, lowest and highest norm.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |(layer, values): (&String, &Vec<Option<f64>>)| {
            let known: Vec<f64> = values.iter().flatten().copied().collect();
            let extremes = ends(&known);
            let cells = [
                known.first().copied(),
                known.last().copied(),
                extremes.map(|(low, _)| low),
                extremes.map(|(_, high)| high),
            ];
            let cells = cells.map(|cell| cell.map_or_else(|| "–".to_owned(), significant));
            std::iter::once(layer.clone()).chain(cells).collect()
        };
        self.layers.iter().zip(&self.values).map(row).collect()
    }

    fn row_height(&self) -> i32 {
        (HEIGHT / self.layers.len().max(1) as i32).clamp(ROW.0, ROW.1)
    }

    fn height(&self) -> i32 {
        self.row_height() * self.layers.len() as i32
    }

    /// The colour of the largest of some steps' norms of a layer.
    fn colour(&self, layer: usize, steps: Range<usize>) -> Option<RGBColor> {
        let largest = self.values[layer][steps].iter().flatten().copied();
        let place = self.scale.coordinate(largest.reduce(f64::max)?)?;
        let Axis { from, to, .. } = self.scale;
        Some(viridis((place - from) / (to - from)))
    }

    fn cells<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, pen: Pen) -> DrawResult<DB> {
        let columns = self.steps.len().min(MOST_COLUMNS);
        let x = |column: usize| LEFT + (column * CELLS as usize / columns) as i32;
        for layer in 0..self.layers.len() {
            let top = TOP + layer as i32 * self.row_height();
            let colours: Vec<_> = (0..columns)
                .map(|column| self.colour(layer, share(column, columns, self.steps.len())))
                .collect();
            let mut column = 0;
            for same in colours.chunk_by(|a, b| a == b) {
                let (from, to) = (x(column), x(column + same.len()));
                if let Some(colour) = same[0] {
                    filled(
                        area,
                        pen,
                        (from, top),
                        (to, top + self.row_height()),
                        colour,
                    )?;
                }
                column += same.len();
            }
        }
        Ok(())
    }

    fn labels<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        pen: Pen,
    ) -> DrawResult<DB> {
        let row = self.row_height();
        let right = Lettering::new(22, INK, Side::Right);
        for (number, layer) in self
            .layers
            .iter()
            .enumerate()
            .step_by((LABEL / row).max(1) as usize)
        {
            let y = TOP + number as i32 * row + row / 2;
            pen.write(area, &middle_cut(layer, 20), (LEFT - 10, y), right)?;
        }
        let middle = Lettering::new(22, INK, Side::Middle);
        let (count, below) = (self.steps.len(), TOP + self.height() + 24);
        for (number, step) in self.steps.iter().enumerate().step_by(count.div_ceil(12)) {
            let x = LEFT + ((2 * number + 1) * CELLS as usize / (2 * count)) as i32;
            pen.write(area, &short(*step as f64), (x, below), middle)?;
        }
        let place = (LEFT + CELLS / 2, below + 34);
        pen.write(area, "step", place, middle)
    }
}

impl Picture for LayerMap {
    fn size(&self) -> (u32, u32) {
        (WIDTH as u32, (TOP + self.height().max(160) + 90) as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, pen: Pen) -> DrawResult<DB> {
        let title = Lettering::new(38, INK, Side::Left);
        pen.write(area, &middle_cut(&self.title, 80), (44, 46), title)?;
        let about = "row: layer; column: step; colour: norm (logarithmic)";
        pen.write(area, about, (44, 86), Lettering::new(25, FAINT, Side::Left))?;
        framed(area, pen, (LEFT, TOP), (CELLS, self.height()))?;
        self.cells(area, pen)?;
        self.labels(area, pen)?;
        let Axis { from, to, .. } = self.scale;
        let share = |place: f64| (place - from) / (to - from);
        let ticks = self.scale.ticks.iter();
        let marks: Vec<_> = ticks
            .map(|(place, label)| (share(*place), label.clone()))
            .collect();
        let bar = (
            (LEFT + CELLS + 24, TOP),
            (24, self.height().clamp(160, 360)),
        );
        colour_bar(bar, "norm", &marks, area, pen)
    }
}

//! Plots means with confidence intervals, one row per configuration.

use plotters::backend::DrawingBackend;
use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{Circle, PathElement, Text};
use plotters::style::Color;

use super::axis::{Axis, ends};
use super::legend::middle_cut;
use super::marker::marker;
use super::paint::{Pen, Picture};
use super::theme::{FAINT, FRAME, GRID, INK, Lettering, Look, Shape, Side};

/// A plot of means with confidence intervals.
#[derive(Clone, Debug)]
pub struct Intervals {
    /// The heading.
    pub title: String,
    /// Rows from top to bottom.
    pub rows: Vec<IntervalRow>,
}

/// A row of the plot.
#[derive(Clone, Debug)]
pub struct IntervalRow {
    pub name: String,
    /// The averaged values.
    pub values: Vec<f64>,
    pub mean: f64,
    /// Half the width of the confidence interval.
    pub half_width: Option<f64>,
    /// The mean of the runs' lowest values.
    pub lowest: f64,
    /// The mean as displayed.
    pub text: String,
}

const WIDTH: i32 = 1600;
const LEFT: i32 = 44;
const TOP: i32 = 132;
const ROW: i32 = 62;
const BELOW: i32 = 84;
/// Width of the numbers on the right.
const FIGURES: i32 = 260;
/// Maximum length of a name, in characters.
const NAME: usize = 40;

type DrawResult<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

impl Picture for Intervals {
    fn size(&self) -> (u32, u32) {
        (WIDTH as u32, (self.bottom() + BELOW) as u32)
    }

    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, pen: Pen) -> DrawResult<DB> {
        let write = |text: &str, place: (i32, i32), size: i32, colour, side| {
            pen.write(area, text, place, Lettering::new(size, colour, side))
        };
        let about = "disc: mean at the end, with its 95% confidence interval over seeds; dots: runs; \
                     diamond: mean of each run's lowest";
        write(&self.title, (LEFT, 46), 38, INK, Side::Left)?;
        write(about, (LEFT, 86), 25, FAINT, Side::Left)?;
        let axis = self.axis();
        for (place, label) in &axis.ticks {
            let x = self.x(&axis, *place, pen);
            let ends = vec![(x, pen.px(TOP)), (x, pen.px(self.bottom()))];
            area.draw(&PathElement::new(ends, GRID.stroke_width(pen.width(15))))?;
            let style = pen.style(Lettering::new(26, INK, Side::Middle));
            let place = (x, pen.px(self.bottom() + 24) + pen.drop(26));
            area.draw(&Text::new(label.clone(), place, style))?;
        }
        let bottom = pen.px(self.bottom());
        let ends = vec![
            (pen.px(self.from()), bottom),
            (pen.px(WIDTH - FIGURES), bottom),
        ];
        area.draw(&PathElement::new(ends, FRAME.stroke_width(pen.width(15))))?;
        let middle = (self.from() + WIDTH - FIGURES) / 2;
        let below = (middle, self.bottom() + 62);
        write(
            "validation loss, nats per token",
            below,
            25,
            FAINT,
            Side::Middle,
        )?;
        for (number, row) in self.rows.iter().enumerate() {
            let y = TOP + ROW * number as i32 + ROW / 2;
            write(&middle_cut(&row.name, NAME), (LEFT, y), 27, INK, Side::Left)?;
            write(&row.text, (WIDTH - LEFT, y), 27, INK, Side::Right)?;
            self.row(row, &axis, pen.px(y), area, pen)?;
        }
        Ok(())
    }
}

impl Intervals {
    fn bottom(&self) -> i32 {
        TOP + ROW * self.rows.len() as i32
    }

    /// The left end of the axis, to the right of the names. Leaves space for a wider font.
    fn from(&self) -> i32 {
        let names = self.rows.iter().map(|row| row.name.chars().count());
        LEFT + 36 + 16 * names.max().unwrap_or(0).clamp(8, NAME) as i32
    }

    fn axis(&self) -> Axis {
        let of = |row: &IntervalRow| {
            let half = row.half_width.unwrap_or(0.0);
            let others = [row.mean - half, row.mean + half, row.lowest];
            row.values.clone().into_iter().chain(others)
        };
        let all: Vec<f64> = self.rows.iter().flat_map(of).collect();
        let (low, high) = ends(&all).unwrap_or((0.0, 1.0));
        let room = 0.05 * (high - low);
        let ticks = (WIDTH - FIGURES - self.from()) / 150;
        Axis::linear(low - room, high + room, ticks.max(2) as usize)
    }

    fn x(&self, axis: &Axis, value: f64, pen: Pen) -> i32 {
        let (from, to) = (pen.px(self.from()), pen.px(WIDTH - FIGURES));
        axis.map(&value, (from, to))
    }

    fn row<DB: DrawingBackend>(
        &self,
        row: &IntervalRow,
        axis: &Axis,
        y: i32,
        area: &DrawingArea<DB, Shift>,
        pen: Pen,
    ) -> DrawResult<DB> {
        let look = Look::of(0);
        let place = |value| self.x(axis, value, pen);
        let diamond = Look {
            shape: Shape::Diamond,
            ..Look::of(3)
        };
        marker(area, (place(row.lowest), y), diamond, pen)?;
        for &value in &row.values {
            let dot = Circle::new((place(value), y + pen.px(16)), pen.px(4), FAINT.filled());
            area.draw(&dot)?;
        }
        if let Some(half) = row.half_width {
            let (low, high) = (place(row.mean - half), place(row.mean + half));
            let style = look.colour.stroke_width(pen.width(35));
            area.draw(&PathElement::new(vec![(low, y), (high, y)], style))?;
            for end in [low, high] {
                let ends = vec![(end, y - pen.px(9)), (end, y + pen.px(9))];
                area.draw(&PathElement::new(ends, style))?;
            }
        }
        marker(area, (place(row.mean), y), look, pen)
    }
}

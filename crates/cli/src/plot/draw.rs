//! Draws a figure: heading, legend, axes, grid and curves.

use plotters::backend::DrawingBackend;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{EmptyElement, PathElement, Polygon, Rectangle, Text};
use plotters::style::{Color, RGBColor};

use super::axis::Axis;
use super::clip::{clipped, clipped_band};
use super::curve::{Curve, Line};
use super::figure::Figure;
use super::marker::{cross, marker};
use super::paint::{Pen, Picture};
use super::theme::{self, FAINT, FRAME, GRID, INK, Lettering, Side};

/// Width of the picture, and its height below the legend.
pub const WIDTH: u32 = 1600;
pub const BELOW: u32 = 820;

/// Maximum number of markers per curve. More would hide the line.
const MARKERS: usize = 60;

type Failure<DB> = DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>;
/// The chart area with its axes.
pub type Plane<'a, DB> = ChartContext<'a, DB, Cartesian2d<Axis, Axis>>;

impl Picture for Figure {
    fn size(&self) -> (u32, u32) {
        (WIDTH, self.legend.height() as u32 + BELOW)
    }

    fn draw<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        pen: Pen,
    ) -> Result<(), Failure<DB>> {
        let (head, below) = area.split_vertically(pen.px(self.legend.height()));
        self.legend.draw(&head, pen)?;
        let mut plane = plane(&below, pen, &self.x, &self.y, &self.along)?;
        if let Some(floor) = self.floor.and_then(|floor| self.y.coordinate(floor)) {
            dashes(&mut plane, &self.x, floor, pen)?;
        }
        for curve in &self.curves {
            for line in curve.lines() {
                self.band(line, curve.look.colour, &mut plane)?;
                let behind = theme::lighter(curve.look.colour);
                self.line(&line.logged, behind, pen.width(12), &mut plane, pen)?;
            }
        }
        for curve in &self.curves {
            self.training(curve, &mut plane, pen)?;
        }
        for curve in &self.curves {
            self.validation(curve, &mut plane, pen)?;
        }
        if let Some((floor, place)) = self.floor.and_then(|f| Some((f, self.y.coordinate(f)?))) {
            let name = format!("floor {floor:.4}");
            let above = place - self.y.from < 0.055 * (self.y.to - self.y.from);
            label(&mut plane, (self.x.to, place), above, &name, pen)?;
        }
        Ok(())
    }
}

/// Draws the axes and the grid.
pub fn plane<'a, DB: DrawingBackend>(
    area: &'a DrawingArea<DB, Shift>,
    pen: Pen,
    x: &Axis,
    y: &Axis,
    along: &str,
) -> Result<Plane<'a, DB>, Failure<DB>> {
    let mut plane = ChartBuilder::on(area)
        .margin_top(pen.px(12))
        .margin_right(pen.px(48))
        .margin_bottom(pen.px(14))
        .margin_left(pen.px(20))
        .x_label_area_size(pen.px(84))
        .y_label_area_size(pen.px(96))
        .build_cartesian_2d(x.clone(), y.clone())?;
    plane
        .configure_mesh()
        .light_line_style(GRID.mix(0.0))
        .bold_line_style(GRID.stroke_width(pen.width(15)))
        .axis_style(FRAME.stroke_width(pen.width(15)))
        .label_style(pen.style(Lettering::new(26, INK, Side::Middle)))
        .x_desc(along)
        .y_label_offset(pen.drop(26))
        .axis_desc_style(pen.style(Lettering::new(26, FAINT, Side::Middle)))
        .set_all_tick_mark_size(pen.px(6))
        .draw()?;
    Ok(plane)
}

/// Draws a dashed horizontal line.
fn dashes<DB: DrawingBackend>(
    plane: &mut Plane<DB>,
    x: &Axis,
    place: f64,
    pen: Pen,
) -> Result<(), Failure<DB>> {
    let dashes = 90;
    let at = |n: f64| x.from + (x.to - x.from) * n / f64::from(dashes);
    let dash = |n| {
        let ends = vec![(at(f64::from(n)), place), (at(f64::from(n) + 0.55), place)];
        PathElement::new(ends, INK.stroke_width(pen.width(22)))
    };
    plane.draw_series((0..dashes).map(dash))?;
    Ok(())
}

/// Draws right-aligned text above or below a point, on a background.
fn label<DB: DrawingBackend>(
    plane: &mut Plane<DB>,
    place: (f64, f64),
    above: bool,
    text: &str,
    pen: Pen,
) -> Result<(), Failure<DB>> {
    let size = 25;
    let style = pen.style(Lettering::new(size, INK, Side::Right));
    let width = pen.px(14 * text.chars().count() as i32);
    let (low, high) = match above {
        true => (-pen.px(5), -pen.px(35)),
        false => (pen.px(35), pen.px(5)),
    };
    let middle = (low + high) / 2 + pen.drop(size);
    let label = EmptyElement::at(place)
        + Rectangle::new([(-width, high), (-pen.px(2), low)], theme::PAPER.filled())
        + Text::new(text.to_owned(), (-pen.px(8), middle), style);
    plane.draw_series(std::iter::once(label))?;
    Ok(())
}

/// The pixel of a place within the chart area. It leaves room for a whole marker at the top.
pub fn pixel<DB: DrawingBackend>(plane: &Plane<DB>, place: (f64, f64), pen: Pen) -> (i32, i32) {
    let at = plane.backend_coord(&place);
    let (left, top) = plane.plotting_area().get_base_pixel();
    (at.0 - left, (at.1 - top).max(pen.px(10)))
}

impl Figure {
    /// Draws the band of a mean.
    fn band<DB: DrawingBackend>(
        &self,
        line: &Line,
        colour: RGBColor,
        plane: &mut Plane<DB>,
    ) -> Result<(), Failure<DB>> {
        let placed = line.band.iter().filter_map(|&(x, low, high)| {
            let edges = self.y.coordinate(high).map(|high| {
                // On a logarithmic axis, an edge at 0 or below is beyond the lower end.
                let low = self.y.coordinate(low).unwrap_or(self.y.from - 1.0);
                (low, high)
            });
            Some((self.x.coordinate(x)?, edges))
        });
        let polygons = clipped_band(placed, self.y.from, self.y.to).into_iter();
        let style = colour.mix(theme::BAND).filled();
        plane.draw_series(polygons.map(|polygon| Polygon::new(polygon, style)))?;
        Ok(())
    }

    fn training<DB: DrawingBackend>(
        &self,
        curve: &Curve,
        plane: &mut Plane<DB>,
        pen: Pen,
    ) -> Result<(), Failure<DB>> {
        let line = &curve.training.points;
        let width = match curve.validation.points.is_empty() {
            true => pen.width(30),
            false => pen.width(18),
        };
        self.line(line, curve.look.colour, width, plane, pen)?;
        if let [(x, y)] = line[..] {
            self.mark(x, Some(y), curve, plane, pen, false)?;
        }
        for &(x, y) in &curve.skipped {
            self.mark(x, y, curve, plane, pen, true)?;
        }
        Ok(())
    }

    fn validation<DB: DrawingBackend>(
        &self,
        curve: &Curve,
        plane: &mut Plane<DB>,
        pen: Pen,
    ) -> Result<(), Failure<DB>> {
        let points = &curve.validation.points;
        self.line(points, curve.look.colour, pen.width(42), plane, pen)?;
        let every = points.len().div_ceil(MARKERS).max(1);
        // Counts from the latest point, so that it always has a marker.
        for &(x, y) in points.iter().rev().step_by(every) {
            self.mark(x, Some(y), curve, plane, pen, false)?;
        }
        Ok(())
    }

    fn line<DB: DrawingBackend>(
        &self,
        points: &[(f64, f64)],
        colour: RGBColor,
        width: u32,
        plane: &mut Plane<DB>,
        pen: Pen,
    ) -> Result<(), Failure<DB>> {
        let placed = points.iter();
        let placed =
            placed.filter_map(|&(x, y)| Some((self.x.coordinate(x)?, self.y.coordinate(y))));
        let style = colour.stroke_width(width);
        for part in clipped(placed, self.y.from, self.y.to) {
            if pen.is_bitmap {
                let pieces = part
                    .windows(2)
                    .map(|pair| PathElement::new(pair.to_vec(), style));
                plane.draw_series(pieces)?;
            } else {
                plane.draw_series(std::iter::once(PathElement::new(part, style)))?;
            }
        }
        Ok(())
    }

    /// Draws a marker or a cross. The cross of a NaN or a value outside the plot is at the top edge.
    fn mark<DB: DrawingBackend>(
        &self,
        x: f64,
        y: Option<f64>,
        curve: &Curve,
        plane: &mut Plane<DB>,
        pen: Pen,
        is_cross: bool,
    ) -> Result<(), Failure<DB>> {
        let Some(x) = self.x.coordinate(x) else {
            return Ok(());
        };
        let place = y.and_then(|y| self.y.coordinate(y));
        let inside = place.filter(|place| (self.y.from..=self.y.to).contains(place));
        let place = match (inside, is_cross) {
            (Some(place), _) => place,
            (None, true) => self.y.to,
            (None, false) => return Ok(()),
        };
        let at = pixel(plane, (x, place), pen);
        let area = plane.plotting_area().strip_coord_spec();
        match is_cross {
            true => cross(&area, at, curve.look, pen),
            false => marker(&area, at, curve.look, pen),
        }
    }
}

//! Draws a plot of points: legend, axes, error bars and markers.

use plotters::backend::DrawingBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::PathElement;
use plotters::style::Color;

use super::draw::{BELOW, Plane, WIDTH, pixel, plane};
use super::marker::{cross, marker};
use super::mean::Mean;
use super::paint::{Pen, Picture};
use super::scatter::{DrawnSeries, Scatter};
use super::theme;

type DrawResult<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

impl Picture for Scatter {
    fn size(&self) -> (u32, u32) {
        (WIDTH, self.legend.height() as u32 + BELOW)
    }

    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, pen: Pen) -> DrawResult<DB> {
        let (head, below) = area.split_vertically(pen.px(self.legend.height()));
        self.legend.draw(&head, pen)?;
        let mut plane = plane(&below, pen, &self.x, &self.y, &self.along)?;
        for series in &self.series {
            self.line(series, &mut plane, pen)?;
        }
        for series in &self.series {
            for &(x, value) in &series.points {
                self.point(series, x, value, &plane, pen)?;
            }
        }
        Ok(())
    }
}

impl Scatter {
    /// Draws the line of a series.
    fn line<DB: DrawingBackend>(
        &self,
        series: &DrawnSeries,
        plane: &mut Plane<DB>,
        pen: Pen,
    ) -> DrawResult<DB> {
        let colour = theme::lighter(series.look.colour);
        let places = series
            .line
            .iter()
            .filter_map(|&(x, y)| Some((self.x.coordinate(x)?, self.y.coordinate(y))));
        for part in super::clip::clipped(places, self.y.from, self.y.to) {
            let pairs = part.windows(2).map(<[_]>::to_vec);
            let style = colour.stroke_width(pen.width(20));
            plane.draw_series(pairs.map(|pair| PathElement::new(pair, style)))?;
        }
        Ok(())
    }

    /// Draws a point with its error bar, or a cross at the edge for a value outside.
    fn point<DB: DrawingBackend>(
        &self,
        series: &DrawnSeries,
        x: f64,
        value: Mean,
        plane: &Plane<DB>,
        pen: Pen,
    ) -> DrawResult<DB> {
        let places = self.x.coordinate(x).zip(self.y.coordinate(value.mean));
        let Some((x, y)) = places else {
            return Ok(());
        };
        let area = plane.plotting_area().strip_coord_spec();
        let within = |place: f64| place.clamp(self.y.from, self.y.to);
        if y != within(y) {
            return cross(&area, pixel(plane, (x, within(y)), pen), series.look, pen);
        }
        if value.deviation > 0.0 {
            let end = |edge: f64| within(self.y.coordinate(edge).unwrap_or(self.y.from));
            let low = pixel(plane, (x, end(value.mean - value.deviation)), pen);
            let high = pixel(plane, (x, end(value.mean + value.deviation)), pen);
            let style = series.look.colour.stroke_width(pen.width(25));
            area.draw(&PathElement::new(vec![low, high], style))?;
            for (x, y) in [low, high] {
                let cap = vec![(x - pen.px(9), y), (x + pen.px(9), y)];
                area.draw(&PathElement::new(cap, style))?;
            }
        }
        marker(&area, pixel(plane, (x, y), pen), series.look, pen)
    }
}

//! Markers and crosses on curves.

use plotters::backend::DrawingBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::style::Color;

use super::paint::Pen;
use super::theme::{Look, Shape};

type DrawResult<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// Draws a marker centred at a point.
pub fn marker<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    (x, y): (i32, i32),
    look: Look,
    pen: Pen,
) -> DrawResult<DB> {
    let size = pen.px(7);
    let style = look.colour.filled();
    match look.shape {
        Shape::Circle => area.draw(&Circle::new((x, y), size, style)),
        Shape::Square => area.draw(&Rectangle::new(
            [(x - size, y - size), (x + size, y + size)],
            style,
        )),
        Shape::Triangle => {
            let (side, low) = (size * 5 / 4, y + size);
            let corners = vec![(x - side, low), (x + side, low), (x, y - size * 5 / 4)];
            area.draw(&Polygon::new(corners, style))
        }
        Shape::Diamond => {
            let side = size * 4 / 3;
            let corners = vec![(x - side, y), (x, y - side), (x + side, y), (x, y + side)];
            area.draw(&Polygon::new(corners, style))
        }
    }
}

/// Draws a cross centred at a point.
pub fn cross<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    (x, y): (i32, i32),
    look: Look,
    pen: Pen,
) -> DrawResult<DB> {
    let size = pen.px(8);
    let style = look.colour.stroke_width(pen.width(30));
    for ends in [
        vec![(x - size, y - size), (x + size, y + size)],
        vec![(x - size, y + size), (x + size, y - size)],
    ] {
        area.draw(&PathElement::new(ends, style))?;
    }
    Ok(())
}

//! Coloured cells, and the bar that explains their colours.

use std::ops::Range;

use plotters::backend::DrawingBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::Rectangle;
use plotters::style::{Color, RGBColor};

use super::paint::Pen;
use super::theme::{FAINT, FRAME, INK, Lettering, PAPER, Side};

pub type DrawResult<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// The colour of a share of the scale, from 0 to 1.
pub fn viridis(share: f64) -> RGBColor {
    let [r, g, b] = colorous::VIRIDIS.eval_continuous(share).into_array();
    RGBColor(r, g, b)
}

/// The range of items, of `count`, that cell `at` of `cells` covers.
pub fn share(at: usize, cells: usize, count: usize) -> Range<usize> {
    at * count / cells..(at + 1) * count / cells
}

/// Draws a filled rectangle. In SVG it overlaps its right and lower neighbours, since viewers show light
/// seams between shapes that only touch.
pub fn filled<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    pen: Pen,
    (left, top): (i32, i32),
    (right, bottom): (i32, i32),
    colour: RGBColor,
) -> DrawResult<DB> {
    let overlap = i32::from(!pen.is_bitmap);
    let corners = [
        (pen.px(left), pen.px(top)),
        (pen.px(right) + overlap, pen.px(bottom) + overlap),
    ];
    area.draw(&Rectangle::new(corners, colour.filled()))
}

/// Draws a background with a frame around it.
pub fn framed<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    pen: Pen,
    (left, top): (i32, i32),
    (width, height): (i32, i32),
) -> DrawResult<DB> {
    let (right, bottom) = (left + width, top + height);
    let outer = ((left - 1, top - 1), (right + 1, bottom + 1));
    filled(area, pen, outer.0, outer.1, FRAME)?;
    filled(area, pen, (left, top), (right, bottom), PAPER)
}

/// Draws the colour scale, from 0 at the bottom to 1 at the top, with labels at some shares of it.
pub fn colour_bar<DB: DrawingBackend>(
    ((left, top), (width, height)): ((i32, i32), (i32, i32)),
    heading: &str,
    marks: &[(f64, String)],
    area: &DrawingArea<DB, Shift>,
    pen: Pen,
) -> DrawResult<DB> {
    let right = left + width;
    framed(area, pen, (left, top), (width, height))?;
    for y in 0..height {
        let share = 1.0 - (f64::from(y) + 0.5) / f64::from(height);
        let row = ((left, top + y), (right, top + y + 1));
        filled(area, pen, row.0, row.1, viridis(share))?;
    }
    let lettering = Lettering::new(22, INK, Side::Left);
    for (share, label) in marks {
        let y = top + ((1.0 - share) * f64::from(height - 1)).round() as i32;
        filled(area, pen, (right + 1, y), (right + 6, y + 1), FAINT)?;
        pen.write(area, label, (right + 11, y), lettering)?;
    }
    pen.write(area, heading, (left, top - 26), lettering)
}

//! The head of a plot of runs: title, description of the lines, and a row for each run.

use plotters::backend::DrawingBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::PathElement;
use plotters::style::Color;

use super::figure::Figure;
use super::marker::marker;
use super::paint::Pen;
use super::theme::{FAINT, INK, Lettering, Side};

/// Maximum number of rows. More would leave no space for the plot.
const ROWS: usize = 24;
const LEFT: i32 = 44;
const TITLE: i32 = 46;
const ABOUT: i32 = 86;
const HEADINGS: i32 = 132;
const ROW: i32 = 36;
/// Maximum length of a name next to its numbers, in characters.
const NAME: usize = 56;

type DrawResult<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// The legend's height in pixels.
pub fn height(figure: &Figure) -> i32 {
    let rows = figure.curves.len();
    let more = i32::from(rows > ROWS);
    HEADINGS + ROW * (rows.min(ROWS) as i32 + more) + 34
}

/// Draws the legend.
pub fn draw<DB: DrawingBackend>(
    figure: &Figure,
    area: &DrawingArea<DB, Shift>,
    pen: Pen,
) -> DrawResult<DB> {
    let write = |text: &str, x: i32, y: i32, size: i32, colour, side| {
        pen.write(area, text, (x, y), Lettering::new(size, colour, side))
    };
    write(&figure.title, LEFT, TITLE, 38, INK, Side::Left)?;
    write(&figure.about, LEFT, ABOUT, 25, FAINT, Side::Left)?;
    let columns = columns(figure);
    let side = |column: usize| if column == 0 { Side::Left } else { Side::Right };
    for (column, (heading, &x)) in figure.headings.iter().zip(&columns).enumerate() {
        write(heading, x, HEADINGS, 24, FAINT, side(column))?;
    }
    let rows = figure.curves.iter().zip(&figure.rows).take(ROWS);
    for (number, (curve, row)) in rows.enumerate() {
        let y = HEADINGS + ROW * (number as i32 + 1);
        let ends = vec![(pen.px(LEFT), pen.px(y)), (pen.px(LEFT + 48), pen.px(y))];
        let style = curve.look.colour.stroke_width(pen.width(42));
        area.draw(&PathElement::new(ends, style))?;
        marker(area, (pen.px(LEFT + 24), pen.px(y)), curve.look, pen)?;
        for (column, (cell, &x)) in row.iter().zip(&columns).enumerate() {
            let cell = if column == 0 {
                middle_cut(cell, NAME)
            } else {
                cell.clone()
            };
            write(&cell, x, y, 27, INK, side(column))?;
        }
    }
    if figure.curves.len() > ROWS {
        let y = HEADINGS + ROW * (ROWS as i32 + 1);
        let text = format!("and {} more", figure.curves.len() - ROWS);
        write(&text, LEFT + 64, y, 27, FAINT, Side::Left)?;
    }
    Ok(())
}

/// Horizontal positions of the columns: the left edge of the first and the right edges of the others.
fn columns(figure: &Figure) -> [i32; 4] {
    let names = figure.rows.iter().map(|row| row[0].chars().count());
    let longest = names.max().unwrap_or(0).clamp(12, NAME) as i32;
    // Viewers of SVG may use a wider font than the bundled one.
    let figures = LEFT + 64 + 16 * longest;
    [LEFT + 64, figures + 210, figures + 330, figures + 450]
}

/// Shortens text to `most` characters by cutting out its middle, since names often differ at their ends.
pub fn middle_cut(text: &str, most: usize) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(1);
    let head = kept / 2;
    let tail = kept - head;
    let (head, tail) = (&characters[..head], &characters[characters.len() - tail..]);
    head.iter().chain(&['…']).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::middle_cut;

    #[test]
    fn long_names_are_cut_in_the_middle() {
        assert_eq!(middle_cut("short", 5), "short");
        assert_eq!(middle_cut("a-long-name-001", 9), "a-lo…-001");
        assert_eq!(middle_cut("äöüß", 3), "ä…ß");
    }
}

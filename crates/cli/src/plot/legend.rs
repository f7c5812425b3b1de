//! The head of a plot of runs: title, description of the lines, and a row for each run.

use plotters::backend::DrawingBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::PathElement;
use plotters::style::Color;

use super::marker::marker;
use super::paint::Pen;
use super::theme::{FAINT, INK, Lettering, Look, Side};

/// The head of a plot.
#[derive(Clone, Debug)]
pub struct Legend {
    /// The heading.
    pub title: String,
    /// A description of the lines, below the heading.
    pub about: String,
    /// Column headings of the rows.
    pub headings: Vec<String>,
    pub rows: Vec<LegendRow>,
}

/// A row of a legend.
#[derive(Clone, Debug)]
pub struct LegendRow {
    pub look: Look,
    /// A name followed by numbers.
    pub cells: Vec<String>,
}

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

impl Legend {
    /// The height in pixels.
    pub fn height(&self) -> i32 {
        let rows = self.rows.len();
        let more = i32::from(rows > ROWS);
        HEADINGS + ROW * (rows.min(ROWS) as i32 + more) + 34
    }

    /// Draws the legend.
    ///
    /// # Errors
    /// Returns an error if the backend fails.
    pub fn draw<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        pen: Pen,
    ) -> DrawResult<DB> {
        let write = |text: &str, x: i32, y: i32, size: i32, colour, side| {
            pen.write(area, text, (x, y), Lettering::new(size, colour, side))
        };
        write(&self.title, LEFT, TITLE, 38, INK, Side::Left)?;
        write(&self.about, LEFT, ABOUT, 25, FAINT, Side::Left)?;
        let columns = self.columns();
        let side = |column: usize| if column == 0 { Side::Left } else { Side::Right };
        for (column, (heading, &x)) in self.headings.iter().zip(&columns).enumerate() {
            write(heading, x, HEADINGS, 24, FAINT, side(column))?;
        }
        for (number, row) in self.rows.iter().take(ROWS).enumerate() {
            let y = HEADINGS + ROW * (number as i32 + 1);
            let ends = vec![(pen.px(LEFT), pen.px(y)), (pen.px(LEFT + 48), pen.px(y))];
            let style = row.look.colour.stroke_width(pen.width(42));
            area.draw(&PathElement::new(ends, style))?;
            marker(area, (pen.px(LEFT + 24), pen.px(y)), row.look, pen)?;
            for (column, (cell, &x)) in row.cells.iter().zip(&columns).enumerate() {
                let cell = if column == 0 {
                    middle_cut(cell, NAME)
                } else {
                    cell.clone()
                };
                write(&cell, x, y, 27, INK, side(column))?;
            }
        }
        if self.rows.len() > ROWS {
            let y = HEADINGS + ROW * (ROWS as i32 + 1);
            let text = format!("and {} more", self.rows.len() - ROWS);
            write(&text, LEFT + 64, y, 27, FAINT, Side::Left)?;
        }
        Ok(())
    }

    /// Horizontal positions of the columns: the left edge of the first and the right edges of the others.
    fn columns(&self) -> Vec<i32> {
        let longest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(column));
            let cells = cells.map(|cell| cell.chars().count());
            let heading = self
                .headings
                .get(column)
                .map_or(0, |text| text.chars().count());
            cells.max().unwrap_or(0).max(heading)
        };
        let mut columns = vec![LEFT + 64];
        // Viewers of SVG may use a wider font than the bundled one.
        let mut right = LEFT + 64 + 16 * longest(0).clamp(12, NAME) as i32;
        for column in 1..self.headings.len() {
            right += 14 * longest(column) as i32 + 36;
            columns.push(right);
        }
        columns
    }
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

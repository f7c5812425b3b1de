//! The places of a heat map's parts, in pixels.
//!
//! ```text
//! title
//!            head 0     head 1          weight
//! layer 0  a ┌──────┐   ┌──────┐        █ 1
//!          b │      │   │      │        █
//!            └──────┘   └──────┘        █ 0
//!            a b        a b
//! ```

/// The longest side of a picture.
const LONGEST: usize = 8000;
/// The side that a grid of panels aims at.
const AIM: usize = 1440;
/// The limits of a panel's side.
const SMALLEST_PANEL: usize = 64;
const LARGEST_PANEL: usize = 1024;
const LARGEST_AIM: usize = 768;
const MARGIN: usize = 44;
const GAP: usize = 22;
/// The height of the title and of the heads' names.
const ABOVE: usize = 132;
/// The width of the layers' names.
const BESIDE: usize = 40;
/// The width of the colour bar with its gap and its numbers.
const BAR: usize = 110;
/// The least width, which has room for the line below the title.
const TITLE: usize = 960;
/// The most room of tokens' labels: 12 characters and a gap.
const LABELS: usize = 138;
/// The size of the largest token labels.
const LARGEST_LABEL: usize = 20;

/// Returns true if panels in so many rows and columns fit on a picture.
pub fn fits(rows: usize, columns: usize) -> bool {
    room(rows, columns) >= SMALLEST_PANEL
}

/// The largest number of coloured cells that a picture of so many panels and tokens has.
pub fn cells(rows: usize, columns: usize, tokens: usize) -> usize {
    let of_side = side(rows, columns, tokens).min(tokens);
    rows * columns * of_side * (of_side + 1) / 2
}

/// The largest panel that the picture's longest side allows.
fn room(rows: usize, columns: usize) -> usize {
    let taken = 2 * MARGIN + ABOVE + BESIDE + BAR + LABELS;
    ((LONGEST - taken) / rows.max(columns)).saturating_sub(GAP)
}

/// The places of a picture's parts.
pub struct Layout {
    /// The side of a panel, which is square.
    pub side: usize,
    rows: usize,
    columns: usize,
    tokens: usize,
    /// Room for tokens' labels left of the panels, and below them.
    labels: (usize, usize),
}

impl Layout {
    pub fn new(rows: usize, columns: usize, tokens: &[String]) -> Self {
        let mut this = Self {
            side: side(rows, columns, tokens.len()),
            rows,
            columns,
            tokens: tokens.len(),
            labels: (0, 0),
        };
        if let Some(size) = this.token_size() {
            let lengths = tokens.iter().map(|token| token.chars().count());
            let longest = lengths.max().unwrap_or(0);
            let size = size as usize;
            // A character is about half as wide as its line is high.
            let beside = (longest * size * 11).div_ceil(20);
            let below = if longest == 1 { size } else { beside };
            this.labels = (beside + 6, below + 6);
        }
        this
    }

    /// The picture's width and height.
    pub fn size(&self) -> (u32, u32) {
        let (right, bottom) = self.grid_end();
        let width = (right + GAP + BAR + MARGIN).max(TITLE);
        (width as u32, (bottom + self.labels.1 + MARGIN) as u32)
    }

    /// The left end of the title, centred in height.
    pub fn title(&self) -> (i32, i32) {
        (MARGIN as i32, 46)
    }

    /// The longest title that has room.
    pub fn title_characters(&self) -> usize {
        (self.size().0 as usize - 2 * MARGIN) / 19
    }

    /// The first pixel of a panel.
    pub fn panel(&self, row: usize, column: usize) -> (i32, i32) {
        let left = MARGIN + BESIDE + self.labels.0 + column * (self.side + GAP);
        let top = MARGIN + ABOVE + row * (self.side + GAP);
        (left as i32, top as i32)
    }

    /// The first pixel of the colour bar, and its width and height.
    pub fn colour_bar(&self) -> ((i32, i32), (i32, i32)) {
        let (right, bottom) = self.grid_end();
        let (_, top) = self.panel(0, 0);
        let height = (bottom as i32 - top).min(360);
        (((right + GAP) as i32, top), (24, height))
    }

    /// The size of the heads' and layers' names.
    pub fn heading_size(&self) -> i32 {
        (self.side / 4).clamp(12, 26) as i32
    }

    /// The size of the tokens' labels; none where a token's cell is too small for one.
    pub fn token_size(&self) -> Option<i32> {
        match self.side / self.tokens {
            0..10 => None,
            cell => Some(cell.min(LARGEST_LABEL) as i32),
        }
    }

    /// Right of the last column and below the last row.
    fn grid_end(&self) -> (usize, usize) {
        let (left, top) = self.panel(self.rows - 1, self.columns - 1);
        (left as usize + self.side, top as usize + self.side)
    }
}

/// A panel's side: a whole number of pixels per token where there is room for one, and a picture of about the intended size.
fn side(rows: usize, columns: usize, tokens: usize) -> usize {
    let room = room(rows, columns).min(LARGEST_PANEL);
    let aim = (AIM / rows.max(columns)).clamp(128, LARGEST_AIM).min(room);
    let whole = match aim / tokens {
        0 => tokens.min(room),
        per_token => per_token * tokens,
    };
    whole.max(SMALLEST_PANEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(rows: usize, columns: usize, tokens: usize) -> Layout {
        Layout::new(rows, columns, &vec!["abcdefghij..".to_owned(); tokens])
    }

    #[test]
    fn panels_are_whole_tokens_where_there_is_room() {
        assert_eq!(layout(1, 1, 10).side, 760);
        assert_eq!(layout(4, 6, 32).side, 224);
        assert_eq!(layout(12, 12, 100).side, 100);
        assert_eq!(layout(1, 1, 1000).side, 1000);
        assert_eq!(layout(1, 1, 4096).side, 1024);
    }

    #[test]
    fn a_picture_is_bounded_whatever_it_shows() {
        for rows in [1, 2, 7, 24, 48, 80] {
            for columns in [1, 6, 25, 64, 80] {
                for tokens in [2, 3, 50, 129, 1024, 4096] {
                    let layout = layout(rows, columns, tokens);
                    let what = format!("{rows} x {columns} of {tokens}");
                    assert!(fits(rows, columns), "{what}");
                    assert!((64..=1024).contains(&layout.side), "{what}");
                    let (width, height) = layout.size();
                    assert!(width.max(height) <= LONGEST as u32, "{what}");
                }
            }
        }
        assert!(!fits(1, 100) && !fits(200, 2));
    }
}

//! Pixel positions of a heat map's elements.
//!
//! ```text
//! title
//!            head 0     head 1          weight
//! layer 0  a ┌──────┐   ┌──────┐        █ 1
//!          b │      │   │      │        █
//!            └──────┘   └──────┘        █ 0
//!            a b        a b
//! ```

use super::Reach;

/// Maximum side of a picture.
const LONGEST: usize = 8000;
/// Intended side of the panel grid.
const AIM: usize = 1440;
/// Limits of a panel's side.
const SMALLEST_PANEL: usize = 64;
const LARGEST_PANEL: usize = 1024;
/// Smallest width or height of a panel that is no square.
const THINNEST_PANEL: usize = 12;
const LARGEST_AIM: usize = 768;
const MARGIN: usize = 44;
const GAP: usize = 22;
/// Height of the title and the head names.
const ABOVE: usize = 132;
/// Width of the layer names.
const BESIDE: usize = 40;
/// Width of the colour bar, including its gap and labels.
const BAR: usize = 110;
/// Minimum width of a picture, which fits the line below the title.
const TITLE: usize = 960;
/// Maximum width of token labels: 12 characters and a gap.
const LABELS: usize = 138;
/// Maximum font size of token labels.
const LARGEST_LABEL: usize = 20;

/// Returns true if `rows` by `columns` panels fit in a picture.
pub fn fits(rows: usize, columns: usize) -> bool {
    room(rows, columns) >= SMALLEST_PANEL
}

/// Returns the maximum number of coloured cells in a picture of `rows` by `columns` panels.
pub fn cells(
    (rows, columns): (usize, usize),
    (queries, keys): (usize, usize),
    reach: Reach,
) -> usize {
    let side = side(rows, columns, queries.max(keys));
    let (queries, keys) = (queries.min(side), keys.min(side));
    let of_panel: usize = (0..queries).map(|query| reach.keys(query, keys)).sum();
    rows * columns * of_panel
}

/// The largest panel side that fits in the largest picture.
fn room(rows: usize, columns: usize) -> usize {
    let taken = 2 * MARGIN + ABOVE + BESIDE + BAR + LABELS;
    ((LONGEST - taken) / rows.max(columns)).saturating_sub(GAP)
}

/// Pixel positions of a heat map's elements.
pub struct Layout {
    /// The width of a panel.
    pub width: usize,
    /// The height of a panel.
    pub height: usize,
    rows: usize,
    columns: usize,
    /// The number of queries or of keys, whichever is larger.
    tokens: usize,
    /// Space for token labels to the left of and below the panels.
    labels: (usize, usize),
}

impl Layout {
    /// The panels of `queries` by `keys` tokens. Cells are squares where every token has whole pixels.
    pub fn new(rows: usize, columns: usize, queries: &[String], keys: &[String]) -> Self {
        let tokens = queries.len().max(keys.len());
        let side = side(rows, columns, tokens);
        let of_tokens = |count: usize| (side * count / tokens).max(THINNEST_PANEL);
        let mut this = Self {
            width: of_tokens(keys.len()),
            height: of_tokens(queries.len()),
            rows,
            columns,
            tokens,
            labels: (0, 0),
        };
        if let Some(size) = this.token_size() {
            let longest = |tokens: &[String]| {
                let lengths = tokens.iter().map(|token| token.chars().count());
                lengths.max().unwrap_or(0)
            };
            let size = size as usize;
            // A character's width is about half of the font size.
            let room = |characters: usize| (characters * size * 11).div_ceil(20);
            let below = match longest(keys) {
                1 => size,
                longest => room(longest),
            };
            this.labels = (room(longest(queries)) + 6, below + 6);
        }
        this
    }

    /// Returns the picture's width and height.
    pub fn size(&self) -> (u32, u32) {
        let (right, bottom) = self.grid_end();
        let width = (right + GAP + BAR + MARGIN).max(TITLE);
        (width as u32, (bottom + self.labels.1 + MARGIN) as u32)
    }

    /// The left end of the title, at its vertical centre.
    pub fn title(&self) -> (i32, i32) {
        (MARGIN as i32, 46)
    }

    /// The maximum length of the title, in characters.
    pub fn title_characters(&self) -> usize {
        (self.size().0 as usize - 2 * MARGIN) / 19
    }

    /// The top left corner of a panel.
    pub fn panel(&self, row: usize, column: usize) -> (i32, i32) {
        let left = MARGIN + BESIDE + self.labels.0 + column * (self.width + GAP);
        let top = MARGIN + ABOVE + row * (self.height + GAP);
        (left as i32, top as i32)
    }

    /// The top left corner of the colour bar, and its width and height.
    pub fn colour_bar(&self) -> ((i32, i32), (i32, i32)) {
        let (right, bottom) = self.grid_end();
        let (_, top) = self.panel(0, 0);
        let height = (bottom as i32 - top).min(360);
        (((right + GAP) as i32, top), (24, height))
    }

    /// The font size of head and layer names.
    pub fn heading_size(&self) -> i32 {
        (self.width / 4).clamp(12, 26) as i32
    }

    /// The font size of token labels. Returns `None` if the cells are too small for labels.
    pub fn token_size(&self) -> Option<i32> {
        match self.width.max(self.height) / self.tokens {
            0..10 => None,
            cell => Some(cell.min(LARGEST_LABEL) as i32),
        }
    }

    /// The bottom right corner of the panel grid.
    fn grid_end(&self) -> (usize, usize) {
        let (left, top) = self.panel(self.rows - 1, self.columns - 1);
        (left as usize + self.width, top as usize + self.height)
    }
}

/// Returns the panel side: a whole number of pixels per token if there is space, for a picture of about the
/// intended size.
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
        let tokens = vec!["abcdefghij..".to_owned(); tokens];
        Layout::new(rows, columns, &tokens, &tokens)
    }

    #[test]
    fn panels_have_whole_pixels_per_token_if_possible() {
        assert_eq!(layout(1, 1, 10).width, 760);
        assert_eq!(layout(4, 6, 32).width, 224);
        assert_eq!(layout(12, 12, 100).width, 100);
        assert_eq!(layout(1, 1, 1000).width, 1000);
        assert_eq!(layout(1, 1, 4096).height, 1024);
    }

    #[test]
    fn cells_of_unequal_sides_are_squares() {
        let labels = |count| vec!["a".to_owned(); count];
        let layout = Layout::new(1, 1, &labels(5), &labels(10));
        assert_eq!((layout.width, layout.height), (760, 380));
        assert_eq!(cells((2, 3), (5, 10), Reach::Full), 300);
        assert_eq!(cells((1, 1), (5, 5), Reach::Causal), 15);
    }

    #[test]
    fn pictures_have_a_maximum_size() {
        for rows in [1, 2, 7, 24, 48, 80] {
            for columns in [1, 6, 25, 64, 80] {
                for tokens in [2, 3, 50, 129, 1024, 4096] {
                    let layout = layout(rows, columns, tokens);
                    let what = format!("{rows} x {columns} of {tokens}");
                    assert!(fits(rows, columns), "{what}");
                    assert!((64..=1024).contains(&layout.width), "{what}");
                    let (width, height) = layout.size();
                    assert!(width.max(height) <= LONGEST as u32, "{what}");
                }
            }
        }
        assert!(!fits(1, 100) && !fits(200, 2));
    }
}

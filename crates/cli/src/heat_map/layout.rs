//! Where everything goes, in pixels.
//!
//! ```text
//! title
//!            head 0     head 1          weight
//! layer 0  a ┌──────┐   ┌──────┐        █ 1
//!          b │      │   │      │        █
//!            └──────┘   └──────┘        █ 0
//!            a b        a b
//! ```

use embedded_graphics::mono_font::MonoFont;
use embedded_graphics::mono_font::iso_8859_1::{FONT_6X10, FONT_7X13, FONT_9X18};

/// The longest side of a picture.
const LONGEST: usize = 8000;
/// What a grid of panels aims at.
const AIM: usize = 1440;
/// The sides of a panel.
const SMALLEST_PANEL: usize = 64;
const LARGEST_PANEL: usize = 1024;
const LARGEST_AIM: usize = 768;
const MARGIN: usize = 28;
const GAP: usize = 22;
/// Of title and heads' names.
const ABOVE: usize = 100;
/// Of layers' names.
const BESIDE: usize = 34;
/// Of the colour bar with its gap and its numbers.
const BAR: usize = 110;
/// The least width: the line below the title has room.
const TITLE: usize = 720;
/// The most that tokens' labels take: 12 characters and a gap.
const LABELS: usize = 120;

/// Whether panels in so many rows and columns fit on a picture.
pub fn fits(rows: usize, columns: usize) -> bool {
    room(rows, columns) >= SMALLEST_PANEL
}

/// The largest panel that the picture's longest side allows.
fn room(rows: usize, columns: usize) -> usize {
    let taken = 2 * MARGIN + ABOVE + BESIDE + BAR + LABELS;
    ((LONGEST - taken) / rows.max(columns)).saturating_sub(GAP)
}

/// The places of a picture's parts.
pub struct Layout {
    /// Of a panel, which is square.
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
        if let Some(font) = this.token_font() {
            let lengths = tokens.iter().map(|token| token.chars().count());
            let longest = lengths.max().unwrap_or(0);
            let (width, height) = (font.character_size.width, font.character_size.height);
            let beside = longest * width as usize;
            let below = if longest == 1 {
                height as usize
            } else {
                beside
            };
            this.labels = (beside + 5, below + 5);
        }
        this
    }

    pub fn width(&self) -> usize {
        let (right, _) = self.grid_end();
        (right + GAP + BAR + MARGIN).max(TITLE)
    }

    pub fn height(&self) -> usize {
        let (_, bottom) = self.grid_end();
        bottom + self.labels.1 + MARGIN
    }

    /// Where the title begins, centred in height.
    pub fn title(&self) -> (i32, i32) {
        (MARGIN as i32, (MARGIN + 8) as i32)
    }

    /// The first pixel of a panel.
    pub fn panel(&self, row: usize, column: usize) -> (i32, i32) {
        let left = MARGIN + BESIDE + self.labels.0 + column * (self.side + GAP);
        let top = MARGIN + ABOVE + row * (self.side + GAP);
        (left as i32, top as i32)
    }

    /// Its first pixel, its width, its height.
    pub fn colour_bar(&self) -> (i32, i32, usize, usize) {
        let (right, bottom) = self.grid_end();
        let (_, top) = self.panel(0, 0);
        let height = (bottom - top as usize).min(360);
        ((right + GAP) as i32, top, 24, height)
    }

    pub fn heading_font(&self) -> &'static MonoFont<'static> {
        match self.side {
            0..100 => &FONT_6X10,
            _ => &FONT_9X18,
        }
    }

    /// The largest font that a token's pixels have room for, if one does.
    pub fn token_font(&self) -> Option<&'static MonoFont<'static>> {
        match self.side / self.tokens {
            0..10 => None,
            10..14 => Some(&FONT_6X10),
            14..20 => Some(&FONT_7X13),
            _ => Some(&FONT_9X18),
        }
    }

    /// Right of the last column and below the last row.
    fn grid_end(&self) -> (usize, usize) {
        let (left, top) = self.panel(self.rows - 1, self.columns - 1);
        (left as usize + self.side, top as usize + self.side)
    }
}

/// A panel's side: a whole number of pixels per token where there is room for one, the picture near its aim.
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
                    let (width, height) = (layout.width(), layout.height());
                    assert!(width <= LONGEST && height <= LONGEST, "{what}");
                }
            }
        }
        assert!(!fits(1, 100) && !fits(200, 2));
    }
}

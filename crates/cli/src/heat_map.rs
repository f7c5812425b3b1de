//! Attention drawn as pictures: a panel per layer and head, a row per query, a column per key.
//!
//! Map: `layout` is where everything goes, `canvas` holds the pixels, `labels` makes tokens printable.

mod canvas;
mod labels;
mod layout;

use embedded_graphics::mono_font::MonoFont;
use embedded_graphics::mono_font::iso_8859_1::{FONT_9X18, FONT_9X18_BOLD};

use canvas::{Canvas, Side};
pub use labels::label;
use layout::Layout;
pub use layout::fits;

/// What is drawn.
pub struct HeatMap<'a> {
    /// Above all.
    pub title: String,
    /// The layers' numbers, a row of panels each.
    pub layers: &'a [usize],
    /// The heads' numbers, a column of panels each.
    pub heads: &'a [usize],
    /// The tokens as text.
    pub tokens: &'a [String],
    /// The weights of layer and head, by their places in `layers` and `heads`: a row of `tokens` per query.
    pub weights: &'a dyn Fn(usize, usize) -> &'a [f32],
}

type Colour = [u8; 3];

const PAPER: Colour = [255, 255, 255];
const INK: Colour = [38, 38, 46];
const FAINT: Colour = [96, 96, 108];
const FRAME: Colour = [200, 200, 208];
/// What causality hides.
const HIDDEN: Colour = [240, 240, 243];

/// The colour of a weight: viridis over its root, so that a weight of 0.01 is seen beside one of 1.
fn colour(weight: f32) -> Colour {
    let share = f64::from(weight.clamp(0.0, 1.0)).sqrt();
    colorous::VIRIDIS.eval_continuous(share).into_array()
}

impl HeatMap<'_> {
    /// The picture as a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, png::EncodingError> {
        let layout = Layout::new(self.layers.len(), self.heads.len(), self.tokens);
        let mut canvas = Canvas::new(layout.width(), layout.height(), PAPER);
        self.title(&layout, &mut canvas);
        for row in 0..self.layers.len() {
            for column in 0..self.heads.len() {
                self.panel(&layout, row, column, &mut canvas);
            }
        }
        self.headings(&layout, &mut canvas);
        self.token_labels(&layout, &mut canvas);
        colour_bar(&layout, &mut canvas);
        canvas.png()
    }

    fn title(&self, layout: &Layout, canvas: &mut Canvas) {
        let (x, y) = layout.title();
        canvas.text(&self.title, (x, y), Side::Left, &FONT_9X18_BOLD, INK);
        let about = "each row is a token, its colours are the weights of the tokens up to it";
        canvas.text(about, (x, y + 22), Side::Left, &FONT_9X18, FAINT);
    }

    fn panel(&self, layout: &Layout, row: usize, column: usize, canvas: &mut Canvas) {
        let weights = (self.weights)(row, column);
        let (left, top) = layout.panel(row, column);
        let (side, count) = (layout.side, self.tokens.len());
        canvas.frame((left - 1, top - 1), side + 2, side + 2, FRAME);
        let shares: Vec<_> = (0..side).map(|at| share(at, side, count)).collect();
        for (y, queries) in shares.iter().enumerate() {
            for (x, keys) in shares.iter().enumerate() {
                // Of several weights in one pixel the largest shows.
                let mut largest: Option<f32> = None;
                for query in queries.clone() {
                    for key in keys.clone().take_while(|&key| key <= query) {
                        let weight = weights[query * count + key];
                        largest = Some(largest.map_or(weight, |other| other.max(weight)));
                    }
                }
                let colour = largest.map_or(HIDDEN, colour);
                canvas.set(left + x as i32, top + y as i32, colour);
            }
        }
    }

    fn headings(&self, layout: &Layout, canvas: &mut Canvas) {
        let font = layout.heading_font();
        for (column, head) in self.heads.iter().enumerate() {
            let (left, top) = layout.panel(0, column);
            let middle = left + layout.side as i32 / 2;
            let baseline = top - 8 - font.character_size.height as i32 / 2;
            let text = format!("head {head}");
            canvas.text(&text, (middle, baseline), Side::Middle, font, INK);
        }
        for (row, layer) in self.layers.iter().enumerate() {
            let (_, top) = layout.panel(row, 0);
            let middle = top + layout.side as i32 / 2;
            let x = layout.title().0 + font.character_size.height as i32 / 2;
            canvas.text_upwards(
                &format!("layer {layer}"),
                (x, middle),
                Side::Middle,
                font,
                INK,
            );
        }
    }

    /// Beside the leftmost panels and below the lowest, where a token is as high as its label.
    fn token_labels(&self, layout: &Layout, canvas: &mut Canvas) {
        let Some(font) = layout.token_font() else {
            return;
        };
        let centre = |n: usize| ((2 * n + 1) * layout.side / (2 * self.tokens.len())) as i32;
        for row in 0..self.layers.len() {
            let (left, top) = layout.panel(row, 0);
            for (n, token) in self.tokens.iter().enumerate() {
                let place = (left - 5, top + centre(n));
                canvas.text(token, place, Side::Right, font, FAINT);
            }
        }
        let upright = self.tokens.iter().all(|token| token.chars().count() == 1);
        for column in 0..self.heads.len() {
            let (left, top) = layout.panel(self.layers.len() - 1, column);
            let bottom = top + layout.side as i32 + 5;
            for (n, token) in self.tokens.iter().enumerate() {
                let x = left + centre(n);
                if upright {
                    let y = bottom + font.character_size.height as i32 / 2;
                    canvas.text(token, (x, y), Side::Middle, font, FAINT);
                } else {
                    canvas.text_upwards(token, (x, bottom), Side::Right, font, FAINT);
                }
            }
        }
    }
}

/// The tokens that pixel `at` of `side` shows.
fn share(at: usize, side: usize, count: usize) -> std::ops::Range<usize> {
    let first = at * count / side;
    first..((at + 1) * count / side).max(first + 1)
}

/// What the colours mean: 0 at the bottom, 1 at the top.
fn colour_bar(layout: &Layout, canvas: &mut Canvas) {
    let (left, top, width, height) = layout.colour_bar();
    canvas.frame((left - 1, top - 1), width + 2, height + 2, FRAME);
    for y in 0..height {
        let root = 1.0 - (y as f32 + 0.5) / height as f32;
        for x in 0..width {
            canvas.set(left + x as i32, top + y as i32, colour(root * root));
        }
    }
    let font: &MonoFont = &FONT_9X18;
    for (text, weight) in [
        ("1", 1.0_f64),
        ("0.5", 0.5),
        ("0.25", 0.25),
        ("0.1", 0.1),
        ("0.01", 0.01),
        ("0", 0.0),
    ] {
        let y = top + ((1.0 - weight.sqrt()) * (height - 1) as f64).round() as i32;
        let right = left + width as i32;
        for x in right + 1..right + 6 {
            canvas.set(x, y, FAINT);
        }
        canvas.text(text, (right + 10, y), Side::Left, font, INK);
    }
    let heading = (left, top - 8 - font.character_size.height as i32 / 2);
    canvas.text("weight", heading, Side::Left, font, INK);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_share_the_tokens_out() {
        let shares = |side, count| {
            (0..side)
                .map(|at| share(at, side, count))
                .collect::<Vec<_>>()
        };
        assert_eq!(shares(4, 2), [0..1, 0..1, 1..2, 1..2]);
        assert_eq!(shares(2, 5), [0..2, 2..5]);
        assert_eq!(shares(3, 3), [0..1, 1..2, 2..3]);
    }

    #[test]
    fn colours_get_lighter_with_the_weight() {
        let light = |weight| {
            let [r, g, b] = colour(weight).map(f64::from);
            0.2126 * r + 0.7152 * g + 0.0722 * b
        };
        let lights: Vec<f64> = (0..=100).map(|n| light(n as f32 / 100.0)).collect();
        assert!(lights.is_sorted(), "{lights:?}");
        assert_eq!(colour(f32::NAN), [0; 3], "what is no number is black");
    }
}

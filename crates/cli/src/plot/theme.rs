//! Colours and fonts of plots.

use std::sync::OnceLock;

use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontStyle, FontTransform, IntoFont, RGBColor, TextStyle, register_font,
};

use crate::error::CliError;

/// The background.
pub const PAPER: RGBColor = RGBColor(255, 255, 255);
/// Text.
pub const INK: RGBColor = RGBColor(38, 38, 46);
/// Secondary text.
pub const FAINT: RGBColor = RGBColor(96, 96, 108);
/// Grid lines.
pub const GRID: RGBColor = RGBColor(226, 226, 232);
/// Axes and frames.
pub const FRAME: RGBColor = RGBColor(160, 160, 170);

/// A palette for colour-blind readers (Okabe and Ito 2008), without yellow, which is faint on white, and
/// black, which is used for text.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];

/// A marker shape. Shapes distinguish curves when there are more curves than colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
}

/// The appearance of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub colour: RGBColor,
    pub shape: Shape,
}

impl Look {
    /// The appearance of curve `number`, from 0. Colours vary first, then shapes.
    pub fn of(number: usize) -> Self {
        const SHAPES: [Shape; 4] = [
            Shape::Circle,
            Shape::Square,
            Shape::Triangle,
            Shape::Diamond,
        ];
        Self {
            colour: COLOURS[number % COLOURS.len()],
            shape: SHAPES[number / COLOURS.len() % SHAPES.len()],
        }
    }
}

/// Opacity of bands.
pub const BAND: f64 = 0.18;

/// A colour for lines behind a curve: the colour at 30% opacity on white.
pub fn lighter(colour: RGBColor) -> RGBColor {
    mixed(colour, PAPER)
}

/// Mixes 30% of the first colour with 70% of the second.
fn mixed(RGBColor(r, g, b): RGBColor, RGBColor(r0, g0, b0): RGBColor) -> RGBColor {
    let mix = |a: u8, b: u8| ((3 * u16::from(a) + 7 * u16::from(b)) / 10) as u8;
    RGBColor(mix(r, r0), mix(g, g0), mix(b, b0))
}

/// Pairs of a colour and its replacement on a dark page.
pub fn dark() -> Vec<(RGBColor, RGBColor)> {
    const DARK_PAPER: RGBColor = RGBColor(21, 23, 28);
    let mut pairs = vec![
        (PAPER, DARK_PAPER),
        (INK, RGBColor(232, 232, 238)),
        (FAINT, RGBColor(165, 165, 178)),
        (GRID, RGBColor(43, 46, 54)),
        (FRAME, RGBColor(92, 96, 108)),
        // The darkest curve colour.
        (COLOURS[0], RGBColor(61, 154, 214)),
    ];
    let behind = COLOURS.map(|colour| (lighter(colour), mixed(colour, DARK_PAPER)));
    pairs.extend(behind);
    pairs
}

/// Formats a colour for SVG.
pub fn hex(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// Font families. PNG uses the bundled fonts, SVG the viewer's.
const PROPORTIONAL: &str = "sans-serif";
const MONOSPACED: &str = "monospace";

/// Registers the bundled fonts.
///
/// # Errors
/// Returns an error if a font cannot be read.
pub fn register() -> Result<(), CliError> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let fonts = [
        (PROPORTIONAL, epaint_default_fonts::UBUNTU_LIGHT),
        (MONOSPACED, epaint_default_fonts::HACK_REGULAR),
    ];
    let register = |(family, font)| register_font(family, FontStyle::Normal, font).is_ok();
    match REGISTERED.get_or_init(|| fonts.into_iter().all(register)) {
        true => Ok(()),
        false => Err(CliError::new("a bundled font cannot be read")),
    }
}

/// The side of the text that is anchored at its position.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    Left,
    Middle,
    Right,
}

/// Style of one line of text, centred vertically at its position.
#[derive(Clone, Copy, Debug)]
pub struct Lettering {
    /// Font size in pixels of the picture.
    pub size: i32,
    colour: RGBColor,
    side: Side,
    family: &'static str,
    /// True if the text is rotated by 90° to read from bottom to top.
    pub is_upwards: bool,
}

impl Lettering {
    /// Horizontal text in the proportional font.
    pub fn new(size: i32, colour: RGBColor, side: Side) -> Self {
        Self {
            size,
            colour,
            side,
            family: PROPORTIONAL,
            is_upwards: false,
        }
    }

    /// Uses the monospaced font.
    pub fn monospaced(self) -> Self {
        Self {
            family: MONOSPACED,
            ..self
        }
    }

    /// Rotates the text to read from bottom to top.
    pub fn upwards(self) -> Self {
        Self {
            is_upwards: true,
            ..self
        }
    }

    /// Converts to the drawing library's style. `size` is in the backend's pixels.
    pub fn style(self, size: i32) -> TextStyle<'static> {
        let side = match self.side {
            Side::Left => HPos::Left,
            Side::Middle => HPos::Center,
            Side::Right => HPos::Right,
        };
        let style = TextStyle {
            font: (self.family, size).into_font(),
            color: self.colour.to_backend_color(),
            pos: Pos::new(side, VPos::Center),
        };
        match self.is_upwards {
            true => style.transform(FontTransform::Rotate270),
            false => style,
        }
    }
}

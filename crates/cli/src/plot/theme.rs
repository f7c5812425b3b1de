//! Colours and type.

use std::sync::OnceLock;

use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontStyle, FontTransform, IntoFont, RGBColor, TextStyle, register_font,
};

use crate::error::CliError;

/// Behind everything.
pub const PAPER: RGBColor = RGBColor(255, 255, 255);
/// Text.
pub const INK: RGBColor = RGBColor(38, 38, 46);
/// Secondary text.
pub const FAINT: RGBColor = RGBColor(96, 96, 108);
/// Lines of the mesh.
pub const GRID: RGBColor = RGBColor(226, 226, 232);
/// The axes.
pub const FRAME: RGBColor = RGBColor(160, 160, 170);

/// Colours that colour-blind readers can distinguish (Okabe and Ito 2008), without yellow, which is faint on white, and
/// black, which is used for text.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];

/// A marker's outline, for when there are more curves than colours.
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
    /// Of the curve of a number, from 0: colours first, then shapes.
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

/// The colour of what lies behind a curve: transparent, on white.
pub fn lighter(colour: RGBColor) -> RGBColor {
    mixed(colour, PAPER)
}

/// Three parts of a colour in ten.
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
        // The darkest of the curves' colours.
        (COLOURS[0], RGBColor(61, 154, 214)),
    ];
    let behind = COLOURS.map(|colour| (lighter(colour), mixed(colour, DARK_PAPER)));
    pairs.extend(behind);
    pairs
}

/// A colour as SVG has it.
pub fn hex(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// The families of text: bundled fonts in pictures of pixels, the reader's own in SVG.
const PROPORTIONAL: &str = "sans-serif";
const MONOSPACED: &str = "monospace";

/// Registers the bundled fonts.
///
/// # Errors
/// A font cannot be read.
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

/// Which side of a text stands at its place.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    Left,
    Middle,
    Right,
}

/// The size, colour and position of a line of text, which is centred in height at its place.
#[derive(Clone, Copy, Debug)]
pub struct Lettering {
    /// In pixels of the picture.
    pub size: i32,
    colour: RGBColor,
    side: Side,
    family: &'static str,
    /// Turned by a quarter, so that it is read from below.
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

    /// The same in a font whose characters have one width.
    pub fn monospaced(self) -> Self {
        Self {
            family: MONOSPACED,
            ..self
        }
    }

    /// The same, turned so that it is read from below.
    pub fn upwards(self) -> Self {
        Self {
            is_upwards: true,
            ..self
        }
    }

    /// The style of the drawing library; `size` is in the backend's pixels.
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

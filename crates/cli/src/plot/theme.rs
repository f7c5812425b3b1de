//! Colours and type.

use std::sync::OnceLock;

use plotters::style::{Color, FontStyle, RGBColor, TextStyle, register_font};
use plotters::style::{IntoFont, text_anchor::HPos, text_anchor::Pos, text_anchor::VPos};

use crate::error::CliError;

/// Behind everything.
pub const PAPER: RGBColor = RGBColor(255, 255, 255);
/// Text.
pub const INK: RGBColor = RGBColor(38, 38, 46);
/// Text that is not the point.
pub const FAINT: RGBColor = RGBColor(96, 96, 108);
/// Lines of the mesh.
pub const GRID: RGBColor = RGBColor(226, 226, 232);
/// The axes.
pub const FRAME: RGBColor = RGBColor(160, 160, 170);

/// Colours that the colour-blind tell apart: Okabe and Ito 2008, without the yellow that is lost on white and the black
/// that is text's.
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

/// What a curve looks like.
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

/// The colour as it is when seen through, on white: of what lies behind a curve.
pub fn lighter(colour: RGBColor) -> RGBColor {
    mixed(colour, PAPER)
}

/// Three parts of a colour in ten.
fn mixed(RGBColor(r, g, b): RGBColor, RGBColor(r0, g0, b0): RGBColor) -> RGBColor {
    let mix = |a: u8, b: u8| ((3 * u16::from(a) + 7 * u16::from(b)) / 10) as u8;
    RGBColor(mix(r, r0), mix(g, g0), mix(b, b0))
}

/// What stands for colours on a dark page.
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

/// The family that all text is in: the bundled font in pictures of pixels, the reader's own in SVG.
const FAMILY: &str = "sans-serif";

/// Makes the bundled font known.
///
/// # Errors
/// It is no font.
pub fn register() -> Result<(), CliError> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let registered = REGISTERED.get_or_init(|| {
        register_font(
            FAMILY,
            FontStyle::Normal,
            epaint_default_fonts::UBUNTU_LIGHT,
        )
        .is_ok()
    });
    match registered {
        true => Ok(()),
        false => Err(CliError::new("the bundled font cannot be read")),
    }
}

/// Which side of a text stands at its place.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    Left,
    Middle,
    Right,
}

/// Text of a size in pixels, centred in height.
pub fn text(size: i32, colour: RGBColor, side: Side) -> TextStyle<'static> {
    let side = match side {
        Side::Left => HPos::Left,
        Side::Middle => HPos::Center,
        Side::Right => HPos::Right,
    };
    TextStyle {
        font: (FAMILY, size).into_font(),
        color: colour.to_backend_color(),
        pos: Pos::new(side, VPos::Center),
    }
}

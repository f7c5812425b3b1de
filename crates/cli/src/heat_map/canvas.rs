//! Pixels, text on them, and the PNG file of them.

use std::convert::Infallible;

use embedded_graphics::mono_font::{MonoFont, MonoTextStyle};
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::*;
use embedded_graphics::text::{Alignment, Baseline, Text, TextStyleBuilder};

use super::Colour;

/// An RGB picture. What is drawn beyond its edges is left out.
pub struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

/// Which side of a text stands at its place.
#[derive(Clone, Copy)]
pub enum Side {
    /// It goes on from there.
    Left,
    /// It is centred there.
    Middle,
    /// It ends there.
    Right,
}

impl Canvas {
    /// One colour all over.
    pub fn new(width: usize, height: usize, colour: Colour) -> Self {
        Self {
            width,
            height,
            pixels: colour.repeat(width * height),
        }
    }

    /// Colours one pixel.
    pub fn set(&mut self, x: i32, y: i32, colour: Colour) {
        let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) else {
            return;
        };
        if x < self.width && y < self.height {
            let at = 3 * (y * self.width + x);
            self.pixels[at..at + 3].copy_from_slice(&colour);
        }
    }

    /// The outline of a rectangle, one pixel wide.
    pub fn frame(&mut self, (left, top): (i32, i32), width: usize, height: usize, colour: Colour) {
        let (right, bottom) = (left + width as i32 - 1, top + height as i32 - 1);
        for x in left..=right {
            self.set(x, top, colour);
            self.set(x, bottom, colour);
        }
        for y in top..=bottom {
            self.set(left, y, colour);
            self.set(right, y, colour);
        }
    }

    /// A line of text, centred in height at its place.
    pub fn text(
        &mut self,
        text: &str,
        place: (i32, i32),
        side: Side,
        font: &MonoFont,
        colour: Colour,
    ) {
        let mut level = Turned {
            canvas: self,
            place,
            upwards: false,
        };
        write(&mut level, text, side, font, colour);
    }

    /// A line of text that goes up, centred in width at its place.
    pub fn text_upwards(
        &mut self,
        text: &str,
        place: (i32, i32),
        side: Side,
        font: &MonoFont,
        colour: Colour,
    ) {
        let mut upwards = Turned {
            canvas: self,
            place,
            upwards: true,
        };
        write(&mut upwards, text, side, font, colour);
    }

    /// The picture as a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, png::EncodingError> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_compression(png::Compression::High);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        writer.finish()?;
        Ok(file)
    }
}

/// A canvas with its origin at a place, perhaps turned by a quarter.
struct Turned<'a> {
    canvas: &'a mut Canvas,
    place: (i32, i32),
    upwards: bool,
}

impl Dimensions for Turned<'_> {
    fn bounding_box(&self) -> embedded_graphics::primitives::Rectangle {
        embedded_graphics::primitives::Rectangle::new(
            Point::new(i32::MIN / 2, i32::MIN / 2),
            Size::new(u32::MAX / 2, u32::MAX / 2),
        )
    }
}

impl DrawTarget for Turned<'_> {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I>(&mut self, pixels: I) -> Result<(), Infallible>
    where
        I: IntoIterator<Item = Pixel<Rgb888>>,
    {
        let (left, top) = self.place;
        for Pixel(at, colour) in pixels {
            let colour = [colour.r(), colour.g(), colour.b()];
            let (x, y) = match self.upwards {
                false => (left + at.x, top + at.y),
                true => (left + at.y, top - at.x),
            };
            self.canvas.set(x, y, colour);
        }
        Ok(())
    }
}

fn write(on: &mut Turned<'_>, text: &str, side: Side, font: &MonoFont, [r, g, b]: Colour) {
    let style = TextStyleBuilder::new()
        .baseline(Baseline::Middle)
        .alignment(match side {
            Side::Left => Alignment::Left,
            Side::Middle => Alignment::Center,
            Side::Right => Alignment::Right,
        })
        .build();
    let characters = MonoTextStyle::new(font, Rgb888::new(r, g, b));
    let text = Text::with_text_style(text, Point::zero(), characters, style);
    let Ok(_) = text.draw(on);
}

#[cfg(test)]
mod tests {
    use embedded_graphics::mono_font::iso_8859_1::FONT_6X10;

    use super::*;

    const BLACK: Colour = [0; 3];
    const WHITE: Colour = [255; 3];

    fn dark(canvas: &Canvas) -> Vec<(usize, usize)> {
        let pixels = canvas.pixels.chunks(3).enumerate();
        let dark = pixels.filter(|(_, pixel)| *pixel == BLACK);
        dark.map(|(at, _)| (at % canvas.width, at / canvas.width))
            .collect()
    }

    #[test]
    fn upwards_is_a_quarter_turn_of_level() {
        let [mut level, mut upwards] = [0, 1].map(|_| Canvas::new(41, 41, WHITE));
        level.text("Fig", (20, 20), Side::Left, &FONT_6X10, BLACK);
        upwards.text_upwards("Fig", (20, 20), Side::Left, &FONT_6X10, BLACK);
        let turned = dark(&level).into_iter().map(|(x, y)| (y, 40 - x));
        let mut turned: Vec<_> = turned.collect();
        turned.sort_by_key(|&(x, y)| (y, x));
        assert!(turned.len() > 20, "{turned:?}");
        assert_eq!(dark(&upwards), turned);
    }

    #[test]
    fn what_is_beyond_the_edges_is_left_out() {
        let mut canvas = Canvas::new(3, 2, WHITE);
        for (x, y) in [(-1, 0), (0, -1), (3, 0), (0, 2), (2, 1)] {
            canvas.set(x, y, BLACK);
        }
        assert_eq!(dark(&canvas), [(2, 1)]);
    }
}

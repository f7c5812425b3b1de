//! Renders a picture as an SVG or PNG file.

use std::fmt::Display;

use emberlm_system::text::neutralized;
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::Text;
use plotters::style::TextStyle;

use super::theme::{self, Lettering};
use crate::error::CliError;

/// A picture that can be drawn on any drawing backend.
pub trait Picture {
    /// The width and height in pixels.
    fn size(&self) -> (u32, u32);

    /// Draws the picture on an area enlarged by `pen.scale`.
    fn draw<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        pen: Pen,
    ) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>>;
}

/// Scales lengths to a drawing backend, and draws text.
#[derive(Clone, Copy, Debug)]
pub struct Pen {
    scale: i32,
    /// True if the backend draws pixels. Its wide polylines have gaps where they cross themselves, so they
    /// are drawn segment by segment.
    pub is_bitmap: bool,
}

impl Pen {
    /// Scales a length.
    pub fn px(self, length: i32) -> i32 {
        length * self.scale
    }

    /// The downward shift that centres text of `size` vertically. The bitmap backend centres the line box
    /// instead.
    pub fn drop(self, size: i32) -> i32 {
        if self.is_bitmap { self.px(size) / 8 } else { 0 }
    }

    /// The drawing library's style for text.
    pub fn style(self, lettering: Lettering) -> TextStyle<'static> {
        lettering.style(self.px(lettering.size))
    }

    /// Draws one line of text.
    pub fn write<DB: DrawingBackend>(
        self,
        area: &DrawingArea<DB, Shift>,
        text: &str,
        (x, y): (i32, i32),
        lettering: Lettering,
    ) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
        let (x, y, drop) = (self.px(x), self.px(y), self.drop(lettering.size));
        let place = match lettering.is_upwards {
            true => (x + drop, y),
            false => (x, y + drop),
        };
        area.draw(&Text::new(text.to_owned(), place, self.style(lettering)))
    }

    /// Scales a line width given in tenths of a pixel.
    pub fn width(self, tenths: u32) -> u32 {
        (tenths * self.scale.unsigned_abs()).div_ceil(10)
    }
}

/// SVG coordinates are integers, so this factor gives them subpixel precision.
const FINER: i32 = 4;
/// Supersampling factor per side for smooth edges.
const SAMPLES: u32 = 3;
/// Pixel count above which a picture is not supersampled, to limit the samples to about 110 MB.
const MOST_SAMPLED: u32 = 4_000_000;

/// Renders the picture as SVG.
///
/// # Errors
/// Returns an error if the drawing library fails.
pub fn svg(picture: &impl Picture) -> Result<String, CliError> {
    theme::register()?;
    let (width, height) = picture.size();
    let pen = Pen {
        scale: FINER,
        is_bitmap: false,
    };
    let mut text = String::new();
    let fine = (width * FINER as u32, height * FINER as u32);
    draw(picture, SVGBackend::with_string(&mut text, fine), pen)?;
    // The view box keeps the fine coordinates. The size is that of the picture.
    let head = format!("width=\"{}\" height=\"{}\"", fine.0, fine.1);
    let text = text.replacen(&head, &format!("width=\"{width}\" height=\"{height}\""), 1);
    // XML has no notation for most control characters, which names of runs may contain.
    Ok(neutralized(&text).into_owned())
}

/// Renders the picture as a PNG file.
///
/// # Errors
/// Returns an error if the drawing library or the encoder fails.
pub fn png(picture: &impl Picture) -> Result<Vec<u8>, CliError> {
    theme::register()?;
    let (width, height) = picture.size();
    let samples = if width * height <= MOST_SAMPLED {
        SAMPLES
    } else {
        1
    };
    let pen = Pen {
        scale: samples as i32,
        is_bitmap: true,
    };
    let large = (width * samples, height * samples);
    let mut pixels = vec![255; 3 * large.0 as usize * large.1 as usize];
    draw(picture, BitMapBackend::with_buffer(&mut pixels, large), pen)?;
    let pixels = reduced(&pixels, width as usize, height as usize, samples as usize);
    encoded(&pixels, width, height)
        .map_err(|error| CliError::new(format!("cannot make a PNG file: {error}")))
}

fn draw<DB: DrawingBackend>(picture: &impl Picture, backend: DB, pen: Pen) -> Result<(), CliError> {
    fn failed(error: impl Display) -> CliError {
        CliError::new(format!("cannot draw: {error}"))
    }
    let area = backend.into_drawing_area();
    area.fill(&theme::PAPER).map_err(failed)?;
    picture.draw(&area, pen).map_err(failed)?;
    area.present().map_err(failed)
}

/// Downsamples by averaging `side * side` samples per pixel.
fn reduced(samples: &[u8], width: usize, height: usize, side: usize) -> Vec<u8> {
    let mut pixels = Vec::with_capacity(3 * width * height);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let row = |dy: usize| 3 * ((y * side + dy) * width * side + x * side) + channel;
                let of_row = |dy| (0..side).map(move |dx| row(dy) + 3 * dx);
                let sum: usize = (0..side)
                    .flat_map(of_row)
                    .map(|at| usize::from(samples[at]))
                    .sum();
                pixels.push(((sum + side * side / 2) / (side * side)) as u8);
            }
        }
    }
    pixels
}

fn encoded(pixels: &[u8], width: u32, height: u32) -> Result<Vec<u8>, png::EncodingError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::High);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(file)
}

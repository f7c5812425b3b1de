//! A picture as a file: SVG, or the pixels of a PNG.

use std::fmt::Display;

use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::Text;
use plotters::style::TextStyle;

use super::theme::{self, Lettering};
use crate::error::CliError;

/// Something that can be drawn.
pub trait Picture {
    /// Its width and height in pixels.
    fn size(&self) -> (u32, u32);

    /// Draws it on an area `pen.scale` times as large.
    fn draw<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        pen: Pen,
    ) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>>;
}

/// Converts lengths to the backend's, and writes text.
#[derive(Clone, Copy, Debug)]
pub struct Pen {
    scale: i32,
    /// The backend draws pixels. A wide line of pixels has gaps where it crosses itself, so it is drawn segment by segment.
    pub is_bitmap: bool,
}

impl Pen {
    /// A length.
    pub fn px(self, length: i32) -> i32 {
        length * self.scale
    }

    /// The downward shift that centres text of a size, since the bitmap backend centres the box of a line.
    pub fn drop(self, size: i32) -> i32 {
        if self.is_bitmap { self.px(size) / 8 } else { 0 }
    }

    /// The style of a text.
    pub fn style(self, lettering: Lettering) -> TextStyle<'static> {
        lettering.style(self.px(lettering.size))
    }

    /// Writes a line of text at a place.
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

    /// A line's width, in tenths of pixels.
    pub fn width(self, tenths: u32) -> u32 {
        (tenths * self.scale.unsigned_abs()).div_ceil(10)
    }
}

/// Places are whole numbers: finer ones than pixels.
const FINER: i32 = 4;
/// Pixels of a side that become one: edges are smooth.
const SAMPLES: u32 = 3;
/// A larger picture is drawn as it is, since its samples would take more than 110 MB.
const MOST_SAMPLED: u32 = 4_000_000;

/// The picture as SVG.
///
/// # Errors
/// The drawing library fails.
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
    // The view box keeps the fine places; the size is the picture's.
    let head = format!("width=\"{}\" height=\"{}\"", fine.0, fine.1);
    Ok(text.replacen(&head, &format!("width=\"{width}\" height=\"{height}\""), 1))
}

/// The picture as a PNG file.
///
/// # Errors
/// The drawing library or the encoder fails.
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

/// Each pixel the mean of its `side * side` samples.
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

//! Files of pictures, whose format follows from the end of their name.

use std::path::PathBuf;

use emberlm_system::write::write_whole;

use super::page::Page;
use super::paint::{Picture, png, svg};
use crate::error::CliError;

/// The format of a picture's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A page with the picture as SVG and a table.
    Html,
    Svg,
    Png,
}

/// A file to write a picture to.
#[derive(Clone, Debug)]
pub struct PictureFile {
    pub path: PathBuf,
    pub format: Format,
}

impl PictureFile {
    /// The value's name in `--help`.
    pub const VALUE_NAME: &str = "FILE.html|.svg|.png";

    /// Parses a file's name.
    ///
    /// # Errors
    /// The name has another ending.
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        let formats = [
            ("html", Format::Html),
            ("svg", Format::Svg),
            ("png", Format::Png),
        ];
        let extension = path.extension().unwrap_or_default();
        let known = formats
            .into_iter()
            .find(|(ending, _)| extension.eq_ignore_ascii_case(ending));
        match known {
            Some((_, format)) => Ok(Self { path, format }),
            None => Err("it must end in .html, .svg or .png".to_owned()),
        }
    }

    /// Draws the picture and writes the file; `page` is what HTML shows with it.
    ///
    /// # Errors
    /// The picture cannot be drawn, or the file cannot be written.
    pub fn write(&self, picture: &impl Picture, page: &Page) -> Result<(), CliError> {
        let file = match self.format {
            Format::Png => png(picture)?,
            Format::Svg => svg(picture)?.into_bytes(),
            Format::Html => page.html(&svg(picture)?).into_bytes(),
        };
        write_whole(&self.path, &file).map_err(CliError::io("write", &self.path))
    }
}

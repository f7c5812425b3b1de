//! Picture files, whose format follows from the file extension.

use std::path::PathBuf;

use emberlm_system::write::write_whole;

use super::page::Page;
use super::paint::{Picture, png, svg};
use crate::error::CliError;

/// A picture file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An HTML page with the picture as SVG and a table.
    Html,
    Svg,
    Png,
}

/// A picture file to write.
#[derive(Clone, Debug)]
pub struct PictureFile {
    pub path: PathBuf,
    pub format: Format,
}

impl PictureFile {
    /// The value name in `--help`.
    pub const VALUE_NAME: &str = "FILE.html|.svg|.png";

    /// Parses a file name.
    ///
    /// # Errors
    /// Returns an error if the extension is not supported.
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
            None => Err("must end in .html, .svg or .png".to_owned()),
        }
    }

    /// Draws the picture and writes the file. `page` supplies the title and table of HTML output.
    ///
    /// # Errors
    /// Returns an error if the picture cannot be drawn or the file cannot be written.
    pub fn write(&self, picture: &impl Picture, page: &Page) -> Result<(), CliError> {
        let file = match self.format {
            Format::Png => png(picture)?,
            Format::Svg => svg(picture)?.into_bytes(),
            Format::Html => page.html(&svg(picture)?).into_bytes(),
        };
        write_whole(&self.path, &file).map_err(CliError::io("write", &self.path))
    }
}

//! Tables as comma-separated values (RFC 4180).

use std::path::Path;

use emberlm_system::write::write_whole;

use crate::error::CliError;

/// A table of comma-separated values. Lines end in CRLF.
#[derive(Debug)]
pub struct Csv(String);

impl Csv {
    /// Creates a table with column headings.
    pub fn new<S: AsRef<str>>(headings: impl IntoIterator<Item = S>) -> Self {
        let mut this = Self(String::new());
        this.row(headings);
        this
    }

    /// Adds a row.
    pub fn row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) {
        for (number, cell) in cells.into_iter().enumerate() {
            if number > 0 {
                self.0.push(',');
            }
            self.push(cell.as_ref());
        }
        self.0.push_str("\r\n");
    }

    fn push(&mut self, cell: &str) {
        match cell.contains([',', '"', '\r', '\n']) {
            true => {
                self.0.push('"');
                self.0 += &cell.replace('"', "\"\"");
                self.0.push('"');
            }
            false => self.0 += cell,
        }
    }

    /// The table as text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Writes the table to a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), CliError> {
        write_whole(path, self.0.as_bytes()).map_err(CliError::io("write", path))
    }
}

/// A number as a cell, with as many digits as distinguish it. A missing one is an empty cell.
pub fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_separators_are_quoted() {
        let mut csv = Csv::new(["a", "b, c"]);
        csv.row(["say \"no\"", "two\nlines"]);
        csv.row(["", "plain text"]);
        let expected = "a,\"b, c\"\r\n\"say \"\"no\"\"\",\"two\nlines\"\r\n,plain text\r\n";
        assert_eq!(csv.text(), expected);
    }

    #[test]
    fn numbers_keep_their_digits() {
        let cells = [Some(0.1 + 0.2), Some(3.0), Some(f64::NAN), None].map(number);
        assert_eq!(cells, ["0.30000000000000004", "3", "NaN", ""]);
    }
}

//! Prints results, and formats them as text: tables, sizes, operation counts.

use bytesize::ByteSize;
use emberlm_system::text::escaped;
use serde::Serialize;

use crate::console;
use crate::error::CliError;

/// Writes `text` to stdout and flushes it, even in the middle of a line.
///
/// # Errors
/// Returns an error if stdout cannot be written.
pub fn print(text: &str) -> Result<(), CliError> {
    console::print(text).map_err(CliError::stdout)
}

/// Writes `text` to stdout like [`print`], dimmed. Only for a stdout that is styled.
///
/// # Errors
/// Returns an error if stdout cannot be written.
pub fn print_dimmed(text: &str) -> Result<(), CliError> {
    console::print_dimmed(text).map_err(CliError::stdout)
}

/// Writes `value` to stdout as one line of JSON.
///
/// # Errors
/// Returns an error if `value` cannot be serialized or stdout cannot be written.
pub fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string(value)
        .map_err(|error| CliError::new(format!("cannot write the result as JSON: {error}")))?;
    console::print_json(text).map_err(CliError::stdout)
}

/// A table with columns as wide as their widest cell.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

/// Horizontal alignment of a column.
#[derive(Clone, Copy, Debug)]
pub enum Align {
    /// For text.
    Left,
    /// For numbers.
    Right,
}

impl Table {
    /// Creates an empty table.
    pub fn new(columns: impl Into<Vec<Align>>) -> Self {
        Self {
            columns: columns.into(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Cells beyond the last column are dropped. Control characters are escaped, so a cell stays
    /// on one line.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cells = cells.into_iter().map(|cell| escaped(&cell.into()).into());
        self.rows.push(cells.collect());
    }

    /// Returns the table's lines, indented by two spaces.
    pub fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.columns.len()).map(|at| self.width(at)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, align), width) in row.iter().zip(&self.columns).zip(&widths) {
                line += "  ";
                line += &match align {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

/// Formats an operation count with a decimal unit, such as `254.6 MFLOP`.
pub fn operations(count: u64) -> String {
    let mut value = count as f64;
    let mut units = ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"]
        .into_iter()
        .peekable();
    let mut unit = units.next().unwrap_or_default();
    while value >= 1000.0 && units.peek().is_some() {
        value /= 1000.0;
        unit = units.next().unwrap_or_default();
    }
    match unit {
        "FLOP" => format!("{value} {unit}"),
        _ => format!("{value:.1} {unit}"),
    }
}

/// Formats a size in bytes, such as `1.5 MiB`.
pub fn size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_without_trailing_spaces() {
        let mut table = Table::new([Align::Left, Align::Right, Align::Left]);
        table.row(["a", "1", ""]);
        table.row(["bcd", "234", "x"]);
        assert_eq!(table.render(), "  a      1\n  bcd  234  x\n");
    }

    #[test]
    fn operations_have_a_unit() {
        let units = [7, 999, 1_000, 254_561_280, 1_234_000_000_000_000].map(operations);
        assert_eq!(
            units,
            [
                "7 FLOP",
                "999 FLOP",
                "1.0 kFLOP",
                "254.6 MFLOP",
                "1234.0 TFLOP"
            ]
        );
    }
}

//! The output format of all benchmarks: text, or one line of JSON.

use serde_json::Value;

/// A benchmark's result.
pub trait Report {
    /// All figures.
    fn to_json(&self) -> Value;

    /// Tables with explanations.
    fn to_text(&self) -> String;

    /// Prints one line of JSON if `json` is true, otherwise text.
    fn print(&self, json: bool) {
        match json {
            true => println!("{}", self.to_json()),
            false => print!("{}", self.to_text()),
        }
    }
}

/// The header of a column. Text is left-aligned, numbers are right-aligned.
#[derive(Debug, Clone, Copy)]
pub enum Column {
    /// A column of text.
    Text(&'static str),
    /// A column of numbers.
    Number(&'static str),
}

use Column::{Number, Text};

impl Column {
    fn name(self) -> &'static str {
        let (Text(name) | Number(name)) = self;
        name
    }
}

/// A table. A row may have fewer cells than there are columns.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows.
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self {
            columns: columns.into(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(S::into).collect());
    }

    /// The table with aligned columns.
    pub fn to_text(&self) -> String {
        let header: Vec<String> = self.columns.iter().map(|it| it.name().to_owned()).collect();
        let lines = || std::iter::once(&header).chain(&self.rows);
        let width = |at: usize| {
            let cells = lines().filter_map(|row| row.get(at));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let mut text = String::new();
        for row in lines() {
            let cells = row.iter().zip(&self.columns).enumerate();
            let cells = cells.map(|(at, (cell, column))| {
                let width = width(at);
                match column {
                    Text(_) => format!("{cell:<width$}"),
                    Number(_) => format!("{cell:>width$}"),
                }
            });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        text
    }

    /// The table in Markdown.
    pub fn to_markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let header: Vec<String> = self.columns.iter().map(|it| it.name().to_owned()).collect();
        let mut text = line(&header) + &"|---".repeat(header.len()) + "|\n";
        self.rows.iter().for_each(|row| text += &line(row));
        text
    }
}

/// The item with the median key, or the lower of the two middle ones. Returns `None` if there are no items.
/// Keys are not averaged, because an item's other values belong to its key.
pub fn median_by<T>(mut items: Vec<T>, key: impl Fn(&T) -> f64) -> Option<T> {
    items.sort_by(|a, b| key(a).total_cmp(&key(b)));
    let middle = items.len().checked_sub(1)? / 2;
    Some(items.swap_remove(middle))
}

/// The median value, as in [`median_by`]. NaN if there are no values.
pub fn median(figures: Vec<f64>) -> f64 {
    median_by(figures, |figure| *figure).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([Text("program"), Number("s"), Number("MiB")]);
        table.row(["a", "10.5", "7"]);
        table.row(["longer than its header", "1"]);
        table
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let expected = "program                    s  MiB\n\
                        a                       10.5    7\n\
                        longer than its header     1\n";
        assert_eq!(table().to_text(), expected);
    }

    #[test]
    fn markdown_has_a_header_and_rows() {
        let expected = "| program | s | MiB |\n|---|---|---|\n| a | 10.5 | 7 |\n| longer than its header | 1 |\n";
        assert_eq!(table().to_markdown(), expected);
    }

    #[test]
    fn the_median_is_one_of_the_figures() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 1.0);
        assert!(median(Vec::new()).is_nan());
    }
}

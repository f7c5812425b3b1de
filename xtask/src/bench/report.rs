//! The format of all benchmarks' results: text to read, or one line of JSON.

use serde_json::Value;

/// A benchmark's result.
pub trait Report {
    /// All figures.
    fn to_json(&self) -> Value;

    /// Tables, and sentences about them.
    fn to_text(&self) -> String;

    /// Prints one line of JSON, or text.
    fn print(&self, json: bool) {
        match json {
            true => println!("{}", self.to_json()),
            false => print!("{}", self.to_text()),
        }
    }
}

/// A column's name. Text is aligned on the left, numbers on the right.
#[derive(Debug, Clone, Copy)]
pub enum Column {
    /// Of text.
    Text(&'static str),
    /// Of numbers.
    Number(&'static str),
}

use Column::{Number, Text};

impl Column {
    fn name(self) -> &'static str {
        let (Text(name) | Number(name)) = self;
        name
    }
}

/// Rows of cells under a header. A row may have fewer cells than there are columns.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
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

    /// Each column as wide as its widest cell.
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

/// The item with the median key; of an even number, the one with the smaller middle key. `None` of none. An item's other
/// figures belong to its key, so that they are not averaged.
pub fn median_by<T>(mut items: Vec<T>, key: impl Fn(&T) -> f64) -> Option<T> {
    items.sort_by(|a, b| key(a).total_cmp(&key(b)));
    let middle = items.len().checked_sub(1)? / 2;
    Some(items.swap_remove(middle))
}

/// The median of figures: [`median_by`], or NaN of none.
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

//! Tables in Markdown.

/// The header of a column, of text or of numbers.
#[derive(Clone, Copy, Debug)]
pub enum Column<S = &'static str> {
    /// A column of text.
    Text(S),
    /// A column of numbers.
    Number(S),
}

/// A table. A row may have fewer cells than there are columns.
#[derive(Debug)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows.
    pub fn new<S: Into<String>>(columns: impl IntoIterator<Item = Column<S>>) -> Self {
        let name = |column: Column<S>| -> String {
            let (Column::Text(name) | Column::Number(name)) = column;
            name.into()
        };
        Self {
            header: columns.into_iter().map(name).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(S::into).collect());
    }

    /// The table in Markdown.
    pub fn to_markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = line(&self.header) + &"|---".repeat(self.header.len()) + "|\n";
        self.rows.iter().for_each(|row| text += &line(row));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_has_a_header_and_rows() {
        let mut table = Table::new([Column::Text("program"), Column::Number("s")]);
        table.row(["a", "10.5"]);
        table.row(["b"]);
        let expected = "| program | s |\n|---|---|\n| a | 10.5 |\n| b |\n";
        assert_eq!(table.to_markdown(), expected);
    }
}

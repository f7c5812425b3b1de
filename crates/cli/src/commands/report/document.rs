//! A document of blocks, as HTML or Markdown.

use emberlm_system::text::neutralized;

use crate::plot::page;

/// A document.
#[derive(Debug)]
pub struct Document {
    pub title: String,
    pub blocks: Vec<Block>,
}

/// A part of a document.
#[derive(Debug)]
pub enum Block {
    Heading(String),
    /// Names with values.
    Facts(Vec<(String, String)>),
    /// Names followed by numbers.
    Table {
        headings: Vec<String>,
        rows: Vec<Vec<String>>,
    },
    /// A picture as SVG.
    Picture(String),
    /// Text with its line breaks.
    Text(String),
}

impl Document {
    /// Renders one self-contained page.
    pub fn html(&self) -> String {
        let mut body = format!("<h1>{}</h1>\n", page::escaped(&self.title));
        for block in &self.blocks {
            body += &match block {
                Block::Heading(text) => format!("<h2>{}</h2>\n", page::escaped(text)),
                Block::Facts(facts) => page::facts(facts),
                Block::Table { headings, rows } => page::table(headings, rows),
                Block::Picture(svg) => format!("{svg}\n"),
                Block::Text(text) => format!("<pre>{}</pre>\n", page::escaped(text)),
            };
        }
        page::document(&self.title, "", &body)
    }

    /// Renders Markdown, without pictures.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n", cell(&self.title));
        for (number, block) in self.blocks.iter().enumerate() {
            text += &match block {
                Block::Heading(_) if self.has_only_pictures(number + 1) => String::new(),
                Block::Heading(heading) => format!("\n## {}\n", cell(heading)),
                Block::Facts(facts) => {
                    let rows = facts
                        .iter()
                        .map(|(name, value)| vec![name.clone(), value.clone()]);
                    table(&[String::new(), String::new()], &rows.collect::<Vec<_>>())
                }
                Block::Table { headings, rows } => table(headings, rows),
                Block::Picture(_) => String::new(),
                Block::Text(code) => fenced(code),
            };
        }
        text
    }

    /// True if there are only pictures from a block up to the next heading.
    fn has_only_pictures(&self, from: usize) -> bool {
        let blocks = self.blocks.iter().skip(from);
        let mut section = blocks.take_while(|block| !matches!(block, Block::Heading(_)));
        section.all(|block| matches!(block, Block::Picture(_)))
    }
}

fn table(headings: &[String], rows: &[Vec<String>]) -> String {
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = vec!["---".to_owned(); headings.len()];
    let mut text = format!("\n{}{}", row(headings), row(&rule));
    text.extend(rows.iter().map(|cells| row(cells)));
    text
}

/// Text in a line of Markdown, in which it has no other meaning.
fn cell(text: &str) -> String {
    let mut safe = String::new();
    for character in neutralized(text).chars() {
        match character {
            '\n' | '\r' => safe.push(' '),
            '\\' | '|' | '*' | '_' | '`' | '<' | '>' | '[' | ']' | '#' | '~' => {
                safe.extend(['\\', character]);
            }
            other => safe.push(other),
        }
    }
    safe
}

/// A block of code, with a fence that is longer than those in it.
fn fenced(code: &str) -> String {
    let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("\n{fence}text\n{}\n{fence}\n", neutralized(code).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_of_any_text_keeps_its_form() {
        let document = Document {
            title: "a|b".into(),
            blocks: vec![
                Block::Heading("a picture".into()),
                Block::Picture("<svg/>".into()),
                Block::Heading("runs".into()),
                Block::Table {
                    headings: vec!["run".into()],
                    rows: vec![vec!["<img>\n| x".into()]],
                },
                Block::Text("````\n# no heading".into()),
            ],
        };
        let expected = "# a\\|b\n\n## runs\n\n| run |\n| --- |\n";
        let text = document.markdown();
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("\n| \\<img\\> \\| x |\n"), "{text}");
        assert!(
            text.ends_with("\n`````text\n````\n# no heading\n`````\n"),
            "{text}"
        );
    }
}

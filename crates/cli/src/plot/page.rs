//! Self-contained HTML pages with pictures and tables.

use std::fmt::Write;

use emberlm_system::text::neutralized;

use super::theme;

/// An HTML page with a picture and a table.
pub struct Page<'a> {
    pub title: &'a str,
    /// The table's column headings.
    pub headings: &'a [&'a str],
    /// The table's rows: a name followed by numbers.
    pub rows: &'a [Vec<String>],
}

impl Page<'_> {
    /// Renders the page as HTML with an inline SVG picture.
    pub fn html(&self, svg: &str) -> String {
        let body = format!("{svg}\n{}", table(self.headings, self.rows));
        document(self.title, "", &body)
    }
}

/// Renders a self-contained page. Pictures in SVG follow the reader's colour scheme. Further rules of style in `css` can use the colours
/// `--ink`, `--paper`, `--faint`, `--line` and `--warm`.
pub fn document(title: &str, css: &str, body: &str) -> String {
    let title = escaped(title);
    let mut dark = String::new();
    for (colour, other) in theme::dark() {
        let (colour, other) = (theme::hex(colour), theme::hex(other));
        // CSS rules take precedence over SVG presentation attributes.
        let _ = write!(
            dark,
            "svg [fill=\"{colour}\"]{{fill:{other}}}svg [stroke=\"{colour}\"]{{stroke:{other}}}\n  "
        );
    }
    format!(
        "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<title>{title}</title>
<style>
:root {{ --ink: #26262e; --paper: #fff; --faint: #63636e; --line: #e2e2e8; --warm: #d9480f }}
body {{ margin: 0 auto; padding: 1.5rem; max-width: 1600px; font: 16px/1.5 system-ui, sans-serif; background: var(--paper); color: var(--ink) }}
svg {{ width: 100%; height: auto }}
.table {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; margin-top: 1rem }}
th, td {{ padding: .3rem 1rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }}
th {{ font-weight: 600 }}
th:first-child, td:first-child, .facts td {{ text-align: left; padding-left: 0 }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e8e8ee; --paper: #15171c; --faint: #a3a3ae; --line: #2b2e36; --warm: #ff922b }}
  {dark}}}
{css}</style>
</head>
<body>
{body}</body>
</html>
"
    )
}

/// Renders a table of names and numbers.
pub fn table<S: AsRef<str>>(headings: &[S], rows: &[Vec<String>]) -> String {
    let mut table = row("th", headings.iter().map(AsRef::as_ref));
    for cells in rows {
        table += &row("td", cells.iter().map(String::as_str));
    }
    format!("<div class=\"table\"><table>\n{table}</table></div>\n")
}

/// Renders a table of names and texts.
pub fn facts(facts: &[(String, String)]) -> String {
    let rows = facts
        .iter()
        .map(|(name, value)| row("td", [name.as_str(), value].into_iter()));
    let rows: String = rows.collect();
    format!("<div class=\"table\"><table class=\"facts\">\n{rows}</table></div>\n")
}

fn row<'a>(tag: &str, cells: impl Iterator<Item = &'a str>) -> String {
    let cells: String = cells
        .map(|text| format!("<{tag}>{}</{tag}>", escaped(text)))
        .collect();
    format!("<tr>{cells}</tr>\n")
}

/// Escapes text for HTML, which has no notation for control characters.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in neutralized(text).chars() {
        match character {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_html() {
        let page = Page {
            title: "<script>a & b</script>",
            headings: &["run"],
            rows: &[vec![
                "<img src=x onerror='alert(\"1\")'>\u{1b}\u{ffff}".into(),
            ]],
        };
        let html = page.html("<svg/>");
        assert!(!html.contains(['\u{1b}', '\u{ffff}']), "{html}");
        assert!(
            !html.contains("<script") && !html.contains("<img"),
            "{html}"
        );
        assert!(html.contains("&lt;script&gt;a &amp; b"), "{html}");
        assert!(
            html.contains("onerror=&#39;alert(&quot;1&quot;)&#39;"),
            "{html}"
        );
    }
}

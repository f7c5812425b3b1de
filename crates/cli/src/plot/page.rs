//! A self-contained HTML page with a picture and a table.

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
        let mut dark = String::new();
        for (colour, other) in theme::dark() {
            let (colour, other) = (theme::hex(colour), theme::hex(other));
            // CSS rules take precedence over SVG presentation attributes.
            let _ = write!(
                dark,
                "svg [fill=\"{colour}\"]{{fill:{other}}}svg [stroke=\"{colour}\"]{{stroke:{other}}}\n  "
            );
        }
        let cells = |tag: &str, cells: &mut dyn Iterator<Item = &str>| {
            let cell = |text: &str| format!("<{tag}>{}</{tag}>", escaped(text));
            let cells: String = cells.map(cell).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let mut table = cells("th", &mut self.headings.iter().copied());
        for row in self.rows {
            table += &cells("td", &mut row.iter().map(String::as_str));
        }
        let css = format!(
            "svg {{ width: 100%; height: auto }}
.table {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; margin-top: 1rem }}
th, td {{ padding: .3rem 1rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }}
th {{ font-weight: 600 }}
th:first-child, td:first-child {{ text-align: left; padding-left: 0 }}
@media (prefers-color-scheme: dark) {{
  {dark}}}
"
        );
        let body = format!("{svg}\n<div class=\"table\"><table>\n{table}</table></div>\n");
        document(self.title, &css, &body)
    }
}

/// A self-contained page in light and dark colours, with further rules of style. `css` can use the colours `--ink`, `--paper`, `--faint`,
/// `--line` and `--warm`.
pub fn document(title: &str, css: &str, body: &str) -> String {
    let title = escaped(title);
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
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e8e8ee; --paper: #15171c; --faint: #a3a3ae; --line: #2b2e36; --warm: #ff922b }}
}}
body {{ margin: 0 auto; padding: 1.5rem; max-width: 1600px; font: 16px/1.5 system-ui, sans-serif; background: var(--paper); color: var(--ink) }}
{css}</style>
</head>
<body>
{body}</body>
</html>
"
    )
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

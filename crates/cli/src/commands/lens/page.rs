//! A self-contained page with the predictions after each block, as a table of blocks and tokens.

use std::fmt::Write;

use emberlm_tokenizer::Tokenizer;

use super::Report;
use crate::plot::id_label;
use crate::plot::page::{document, escaped};

const CSS: &str = "p { color: var(--faint) }
.table { overflow-x: auto }
table { border-collapse: collapse; font: 14px/1.5 ui-monospace, monospace }
th, td { padding: .2rem .5rem; text-align: center; white-space: nowrap; border: 1px solid var(--line) }
th { font-weight: 600 }
th:first-child { padding-left: .5rem }
td { background: color-mix(in srgb, var(--warm) calc(var(--share) * 55%), transparent) }
";

/// The page: a column per token of the text, and a row per block, the last one first.
pub fn html(report: &Report, title: &str, tokenizer: Option<&Tokenizer>) -> String {
    let mut table = "<tr><th>after</th>".to_owned();
    for predictions in &report.positions {
        let read = report.tokens.get(predictions.position).copied();
        let read = id_label(read.unwrap_or_default(), tokenizer);
        let _ = write!(table, "<th>{}</th>", escaped(&read));
    }
    table += "</tr>\n";
    let layers = report.positions.first().map_or(0, |of| of.layers.len());
    for layer in (0..layers).rev() {
        let name = match layer.checked_sub(1) {
            Some(block) => format!("block {block}"),
            None => "embedding".to_owned(),
        };
        let _ = write!(table, "<tr><th>{name}</th>");
        for predictions in &report.positions {
            let cell = predictions.layers.get(layer);
            let top = cell.map_or(&[][..], |cell| &cell.top);
            let Some(best) = top.first() else {
                table += "<td></td>";
                continue;
            };
            let about = top.iter().map(|one| {
                let token = escaped(&id_label(one.id, tokenizer));
                format!("{:.4}  {token}", one.probability)
            });
            let about = about.collect::<Vec<_>>().join("&#10;");
            let (share, best) = (best.probability, escaped(&id_label(best.id, tokenizer)));
            let _ = write!(
                table,
                "<td style=\"--share:{share:.4}\" title=\"{about}\">{best}</td>"
            );
        }
        table += "</tr>\n";
    }
    let heading = escaped(title);
    let body = format!(
        "<h1>{heading}</h1>
<p>The most probable token after each token of the text, if the head read the residual stream after each block; the stronger the
colour, the more probable. Point at a cell for more tokens.</p>
<div class=\"table\"><table>
{table}</table></div>
"
    );
    document(title, CSS, &body)
}

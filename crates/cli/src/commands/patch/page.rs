//! A self-contained page with the effects of experiments, as tables of blocks and places.

use std::fmt::Write;

use emberlm_tokenizer::Tokenizer;

use super::report::{Experiment, Report};
use crate::plot::page::{document, escaped};

const CSS: &str = ":root { --cold: #1971c2 }
@media (prefers-color-scheme: dark) { :root { --cold: #4dabf7 } }
p { color: var(--faint) }
.table { overflow-x: auto }
table { border-collapse: collapse; font: 14px/1.5 ui-monospace, monospace; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .5rem; text-align: right; white-space: nowrap; border: 1px solid var(--line) }
th { font-weight: 600 }
th:first-child { padding-left: .5rem }
td { background: color-mix(in srgb, var(--side) calc(var(--share) * 60%), transparent) }
.more { --side: var(--warm) }
.less { --side: var(--cold) }
";

/// The page: a table per experiment, with a row per block, the last one first.
pub fn html(report: &Report, title: &str, tokenizer: Option<&Tokenizer>) -> String {
    let mut body = format!("<h1>{}</h1>\n", escaped(title));
    for line in report.scores() {
        let _ = writeln!(body, "<p>{}</p>", escaped(&line));
    }
    body += "<p>Positive effects are warm, negative ones cold.</p>\n";
    for experiment in &report.experiments {
        let _ = writeln!(body, "<h2>{}</h2>", escaped(&experiment.heading()));
        body += "<div class=\"table\"><table>\n<tr><th>block</th>";
        for name in report.places(experiment, tokenizer) {
            let _ = write!(body, "<th>{}</th>", escaped(&name));
        }
        body += "</tr>\n";
        rows(&mut body, experiment);
        body += "</table></div>\n";
    }
    document(title, CSS, &body)
}

/// Appends the rows of an experiment. The strongest effect has the full colour.
fn rows(page: &mut String, experiment: &Experiment) {
    let all = experiment.effects.iter().flatten().flatten();
    let most = all.fold(0.0_f64, |most, effect| most.max(effect.abs()));
    for (block, effects) in experiment.effects.iter().enumerate().rev() {
        let _ = write!(page, "<tr><th>{block}</th>");
        for effect in effects {
            let Some(effect) = effect else {
                page.push_str("<td>-</td>");
                continue;
            };
            let share = if most > 0.0 { effect.abs() / most } else { 0.0 };
            let side = if *effect < 0.0 { "less" } else { "more" };
            let text = Experiment::shown(*effect);
            let _ = write!(
                page,
                "<td class=\"{side}\" style=\"--share:{share:.3}\">{text}</td>"
            );
        }
        page.push_str("</tr>\n");
    }
}

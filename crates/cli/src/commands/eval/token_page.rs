//! A self-contained page with a text whose tokens are shaded by their probability, as in the playground.

use std::fmt::Write;
use std::path::Path;

use emberlm_system::write::write_whole;

use super::scored_text::{Report, ScoredToken};
use crate::error::CliError;
use crate::plot::page::{document, escaped};
use crate::plot::token_label;

const CSS: &str = "h1, p, #text { max-width: 60rem }
p { color: var(--faint); font-variant-numeric: tabular-nums }
#text { font: 15px/1.9 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere }
#text span { background: color-mix(in srgb, var(--warm) calc((1 - var(--share)) * 55%), transparent) }
#bar { display: inline-block; width: 8rem; height: .8em; vertical-align: middle; border: 1px solid var(--faint);
  background: linear-gradient(to right, transparent, color-mix(in srgb, var(--warm) 55%, transparent)) }
";

/// Writes the page.
///
/// # Errors
/// The file cannot be written.
pub fn write(report: &Report, title: &str, file: &Path) -> Result<(), CliError> {
    write_whole(file, html(report, title).as_bytes()).map_err(CliError::io("write", file))
}

fn html(report: &Report, title: &str) -> String {
    let mut text = String::new();
    let mut place = 0;
    while place < report.scores.len() {
        let count = together(&report.scores[place..]);
        span(&mut text, place, &report.scores[place..place + count]);
        place += count;
    }
    let (loss, perplexity, bits) = (report.loss, report.perplexity, report.bits_per_byte);
    let (heading, tokens) = (escaped(title), report.tokens);
    let body = format!(
        "<h1>{heading}</h1>
<p>{tokens} predicted tokens: loss {loss:.4} nats per token, perplexity {perplexity:.2}, {bits:.4} bits per byte</p>
<p>probable <span id=\"bar\"></span> improbable; point at a token for its probability and alternatives</p>
<div id=\"text\">{text}</div>
"
    );
    document(title, CSS, &body)
}

/// The number of tokens at the beginning that are shown together, since their bytes are those of one text only together.
fn together(scores: &[ScoredToken]) -> usize {
    let mut bytes = Vec::new();
    for (number, score) in scores.iter().enumerate() {
        bytes.extend_from_slice(&score.bytes);
        match std::str::from_utf8(&bytes) {
            Ok(_) => return number + 1,
            // More bytes can complete the last character.
            Err(error) if error.error_len().is_none() => {}
            Err(_) => break,
        }
    }
    1
}

/// Appends tokens, shaded by the product of their probabilities. A line break is shown by a sign, so that it has a place to be shaded.
fn span(page: &mut String, place: usize, scores: &[ScoredToken]) {
    let bytes: Vec<u8> = scores
        .iter()
        .flat_map(|score| score.bytes.clone())
        .collect();
    let visible = escaped(&String::from_utf8_lossy(&bytes)).replace('\n', "↵\n");
    let losses = scores.iter().filter_map(|score| score.loss);
    let share = (-losses.sum::<f64>()).exp();
    let about = scores.iter().enumerate().filter_map(|(at, score)| {
        let (loss, rank) = (score.loss?, score.rank?);
        let p = (-loss).exp();
        let number = place + at;
        let mut about = format!("token {number}: p {p:.4}, loss {loss:.3}, rank {rank}");
        for other in &score.top {
            let label = escaped(&token_label(other.token.as_bytes()));
            let _ = write!(about, "&#10;{:.4}  {label}", other.probability);
        }
        Some(about)
    });
    let about = about.collect::<Vec<_>>().join("&#10;");
    let _ = write!(
        page,
        "<span style=\"--share:{share:.4}\" title=\"{about}\">{visible}</span>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_one_character_are_shown_together() {
        let count = |bytes: &[&[u8]]| {
            let score = |bytes: &&[u8]| ScoredToken {
                id: 0,
                bytes: bytes.to_vec(),
                token: String::new(),
                loss: None,
                rank: None,
                top: Vec::new(),
            };
            together(&bytes.iter().map(score).collect::<Vec<_>>())
        };
        assert_eq!(count(&[b"a", b"b"]), 1);
        assert_eq!(count(&[b"caf\xc3", b"\xa9", b"s"]), 2);
        assert_eq!(count(&[b"\xf0", b"\x9f", b"\x90", b"\xa2", b"s"]), 4);
        // Neither a character nor the beginning of one.
        assert_eq!(count(&[b"\xff", b"a"]), 1);
        assert_eq!(count(&[b"\xf0", b"a"]), 1);
        assert_eq!(count(&[b"\xf0"]), 1);
    }
}

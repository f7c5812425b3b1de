//! A text with the loss of each token.

use emberlm_tokenizer::Tokenizer;
use serde::Serialize;

use crate::output::{Align, Table};
use crate::plot::token_label;

/// Number of tokens in the table of the least probable ones.
const LISTED: usize = 10;

/// A token of the text.
#[derive(Clone, Debug, Serialize)]
pub struct ScoredToken {
    pub id: u32,
    /// The bytes of its text. Those of a character may be divided among several tokens.
    #[serde(skip)]
    pub bytes: Vec<u8>,
    /// Its text. Bytes that are no characters become replacement characters.
    pub token: String,
    /// `-ln p` in nats; `None` for the first token, which is not predicted.
    pub loss: Option<f64>,
    /// The number of tokens that are at least as probable, itself included.
    pub rank: Option<usize>,
    /// The most probable tokens in its place.
    pub top: Vec<Alternative>,
}

impl ScoredToken {
    /// A token without a score.
    pub fn unpredicted(id: u32, tokenizer: &Tokenizer) -> Self {
        let bytes = tokenizer.decode_bytes(&[id]).unwrap_or_default();
        Self {
            id,
            token: String::from_utf8_lossy(&bytes).into_owned(),
            bytes,
            loss: None,
            rank: None,
            top: Vec::new(),
        }
    }
}

/// A token that could be in the place of another.
#[derive(Clone, Debug, Serialize)]
pub struct Alternative {
    pub id: u32,
    pub token: String,
    pub probability: f64,
}

impl Alternative {
    /// The token `id`.
    pub fn new(id: u32, probability: f64, tokenizer: &Tokenizer) -> Self {
        let bytes = tokenizer.decode_bytes(&[id]).unwrap_or_default();
        Self {
            id,
            token: String::from_utf8_lossy(&bytes).into_owned(),
            probability,
        }
    }
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Mean loss of the predicted tokens in nats.
    pub loss: f64,
    pub perplexity: f64,
    /// The summed loss in bits per byte of the predicted tokens.
    pub bits_per_byte: f64,
    /// Number of predicted tokens.
    pub tokens: usize,
    pub scores: Vec<ScoredToken>,
}

impl Report {
    /// Sums up the scores of a text.
    pub fn new(scores: Vec<ScoredToken>, tokenizer: &Tokenizer) -> Self {
        let losses = scores.iter().filter_map(|score| score.loss);
        let (tokens, sum) = (losses.clone().count(), losses.sum::<f64>());
        let predicted: Vec<u32> = scores.iter().skip(1).map(|score| score.id).collect();
        let bytes = tokenizer.decode_bytes(&predicted).unwrap_or_default().len();
        let loss = sum / tokens.max(1) as f64;
        Self {
            loss,
            perplexity: loss.exp(),
            bits_per_byte: sum / std::f64::consts::LN_2 / bytes.max(1) as f64,
            tokens,
            scores,
        }
    }

    /// The figures of the text, and its least probable tokens.
    pub fn text(&self) -> String {
        let mut summary = Table::new([Align::Left, Align::Right]);
        summary.row(["loss".to_owned(), format!("{:.4}", self.loss)]);
        summary.row(["perplexity".to_owned(), format!("{:.2}", self.perplexity)]);
        summary.row([
            "bits per byte".to_owned(),
            format!("{:.4}", self.bits_per_byte),
        ]);
        summary.row(["predicted tokens".to_owned(), self.tokens.to_string()]);
        let mut places: Vec<usize> = (1..self.scores.len()).collect();
        let loss = |place: usize| self.scores[place].loss.unwrap_or(0.0);
        places.sort_by(|&a, &b| loss(b).total_cmp(&loss(a)));
        let mut least = Table::new([
            Align::Right,
            Align::Left,
            Align::Right,
            Align::Right,
            Align::Left,
        ]);
        least.row(["position", "token", "loss", "rank", "most probable"]);
        for place in places.into_iter().take(LISTED) {
            let score = &self.scores[place];
            let best = score.top.first().map_or("", |best| &best.token);
            least.row([
                place.to_string(),
                token_label(&score.bytes),
                format!("{:.3}", loss(place)),
                score.rank.unwrap_or_default().to_string(),
                token_label(best.as_bytes()),
            ]);
        }
        format!(
            "{}\nThe least probable tokens:\n{}",
            summary.render(),
            least.render()
        )
    }
}

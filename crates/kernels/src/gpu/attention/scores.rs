//! The scores of a tile: scale, soft cap, bias and dropout, and the keys that a query sees.

use cubecl::prelude::*;

use super::tile::{COLUMNS, LANES, SCORE_COLUMNS, Tile};

/// The prime of the dropout's draws, see [`crate::reference::DropoutDraws`].
const PRIME: u32 = crate::reference::attention_dropout::PRIME as u32;

/// Stands for the score of a hidden key, and for the log-sum of a query without visible keys, as in the reference
/// implementation.
pub const HIDDEN: f32 = -1e30;

/// [`crate::Reach`] without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReachKind {
    /// [`crate::Reach::Causal`].
    Causal,
    /// [`crate::Reach::Window`] without global tokens.
    Window,
    /// [`crate::Reach::Window`] with global tokens.
    GlobalWindow,
    /// [`crate::Reach::Local`].
    Local,
    /// [`crate::Reach::Full`].
    Full,
}

/// The parts of a kernel that are known when it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    pub tile: Tile,
    pub reach: ReachKind,
    pub soft_cap: bool,
    pub bias: bool,
    pub documents: bool,
    pub padding: bool,
    pub dropout: bool,
}

/// The numbers of an attention.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Numbers {
    pub q_len: usize,
    pub k_len: usize,
    /// The keys before the first query's own.
    pub past: usize,
    pub heads: usize,
    /// The query heads of a key-value head.
    pub group: usize,
    /// The size of a window, or the distance of a local reach, at most `k_len`.
    pub window: usize,
    /// At most `k_len`.
    pub global_tokens: usize,
    /// The places of documents, padding and draws in the words; see `Words`.
    pub documents: usize,
    pub padding: usize,
    pub query_draws: usize,
    pub key_draws: usize,
    /// The smallest number of the dropout that drops a weight.
    pub bound: u32,
    /// The factor of the weights that are not dropped.
    pub kept: f32,
    pub scale: f32,
    pub cap: f32,
}

/// The head of a tile's queries. `sequence` counts the sequences of the batch.
#[derive(CubeType, Clone, Copy)]
pub struct Place {
    pub sequence: usize,
    pub head: usize,
}

/// Returns true if the key is visible to the query. Both may be beyond the end.
#[cube]
pub fn is_visible<W: Numeric>(
    words: &Array<W>,
    sequence: usize,
    query: usize,
    key: usize,
    numbers: &Numbers,
    #[comptime] variant: Variant,
) -> bool {
    let position = numbers.past + query;
    let mut seen = query < numbers.q_len && key < numbers.k_len;
    let mut document = 0usize;
    if comptime!(variant.documents) && seen {
        let at = numbers.documents + sequence * numbers.q_len + query;
        document = u32::cast_from(words[at]) as usize;
        seen = key >= document;
    }
    if comptime!(matches!(
        variant.reach,
        ReachKind::Causal | ReachKind::Window | ReachKind::GlobalWindow
    )) {
        seen = seen && key <= position;
    }
    if comptime!(variant.reach == ReachKind::Window) {
        seen = seen && key + numbers.window > position;
    }
    if comptime!(variant.reach == ReachKind::GlobalWindow) {
        let near = key + numbers.window > position;
        seen = seen && (near || key < document + numbers.global_tokens);
    }
    if comptime!(variant.reach == ReachKind::Local) {
        let near = key + numbers.window >= position;
        seen = seen && near && key <= position + numbers.window;
    }
    if comptime!(variant.padding) && seen {
        let at = numbers.padding + sequence * numbers.k_len + key;
        seen = u32::cast_from(words[at]) != 0;
    }
    seen
}

/// The smallest first key of the documents of a tile's queries; 0 without documents.
#[cube]
pub fn first_document<W: Numeric>(
    words: &Array<W>,
    sequence: usize,
    queries: (usize, usize),
    numbers: &Numbers,
    #[comptime] variant: Variant,
) -> usize {
    let mut first = 0usize;
    if comptime!(variant.documents) {
        let at = numbers.documents + sequence * numbers.q_len;
        first = numbers.k_len;
        let mut query = queries.0;
        while query < queries.1 {
            first = min(first, u32::cast_from(words[at + query]) as usize);
            query += 1;
        }
    }
    first
}

/// Returns `tanh(scale · product / cap)`, or 0 without a soft cap.
#[cube]
fn bounded(product: f32, numbers: &Numbers, #[comptime] variant: Variant) -> f32 {
    let mut bounded = 0.0f32;
    if comptime!(variant.soft_cap) {
        bounded = (product * numbers.scale / numbers.cap).tanh();
    }
    bounded
}

/// The score of a visible key from the product of query and key and from [`bounded`].
#[cube]
fn score<T: Numeric>(
    product: f32,
    bounded: f32,
    bias: &Array<T>,
    place: (usize, usize, usize),
    numbers: &Numbers,
    #[comptime] variant: Variant,
) -> f32 {
    let (head, query, key) = place;
    let mut score = product * numbers.scale;
    if comptime!(variant.soft_cap) {
        score = bounded * numbers.cap;
    }
    if comptime!(variant.bias) {
        score += f32::cast_from(bias[(head * numbers.q_len + query) * numbers.k_len + key]);
    }
    score
}

/// The factor of a weight: 0 if it is dropped.
#[cube]
pub fn kept_factor<W: Numeric>(
    words: &Array<W>,
    sequence: usize,
    place: (usize, usize, usize),
    numbers: &Numbers,
) -> f32 {
    let (head, query, key) = place;
    let row = (sequence * numbers.heads + head) * numbers.q_len + query;
    let of_query = numbers.query_draws + row * 3;
    let of_key = numbers.key_draws + key;
    let a = u32::cast_from(words[of_query]);
    let b = u32::cast_from(words[of_query + 1]);
    let e = u32::cast_from(words[of_query + 2]);
    let x = u32::cast_from(words[of_key]);
    let d = u32::cast_from(words[of_key + numbers.k_len]);
    let u = (a * x + b) % PRIME;
    let cube = u * u % PRIME * u % PRIME;
    let v = (cube * d + e) % PRIME;
    select(v < numbers.bound, numbers.kept, 0.0)
}

/// Replaces the products of queries, in rows, with keys by scores, and by [`HIDDEN`] where the key is hidden.
#[cube]
pub fn masked_scores<T: Numeric, W: Numeric>(
    scores: &mut Array<f32>,
    bias: &Array<T>,
    words: &Array<W>,
    place: &Place,
    start: (usize, usize),
    numbers: &Numbers,
    #[comptime] variant: Variant,
) {
    #[unroll]
    for row in 0..comptime!(variant.tile.unit_rows()) {
        let line = start.0 + UNIT_POS_Y as usize + comptime!(row * LANES);
        let (head, query) = row_place(line, place.head, numbers, variant);
        #[unroll]
        for column in 0..SCORE_COLUMNS {
            let key = start.1 + UNIT_POS_X as usize + comptime!(column * LANES);
            let at = comptime!(row * SCORE_COLUMNS + column);
            let product = scores[at];
            let mut value = f32::new(HIDDEN);
            if is_visible::<W>(words, place.sequence, query, key, numbers, variant) {
                let bounded = bounded(product, numbers, variant);
                value = score::<T>(product, bounded, bias, (head, query, key), numbers, variant);
            }
            scores[at] = value;
        }
    }
}

/// The head and the query of a row. Rows beyond the end have a query beyond the end.
#[cube]
pub fn row_place(
    line: usize,
    first_head: usize,
    numbers: &Numbers,
    #[comptime] variant: Variant,
) -> (usize, usize) {
    if comptime!(variant.tile.stacked) {
        let member = line / numbers.q_len;
        let beyond = select(member < numbers.group, 0usize, numbers.q_len);
        (first_head + member, line % numbers.q_len + beyond)
    } else {
        (first_head, line)
    }
}

/// Replaces `scores`, the products of queries and keys, by the weights that the values were summed with, and `grads`, the
/// products of output gradients and values, by the gradients of the first products. If `transposed`, the rows of the tile
/// are keys. `rows` has the log-sum of each query and the sum of its output times its gradient.
#[cube]
pub fn score_gradients<T: Numeric, W: Numeric>(
    scores: &mut Array<f32>,
    grads: &mut Array<f32>,
    rows: &Array<f32>,
    bias: &Array<T>,
    words: &Array<W>,
    place: &Place,
    start: (usize, usize),
    numbers: &Numbers,
    #[comptime] transposed: bool,
    #[comptime] variant: Variant,
) {
    #[unroll]
    for row in 0..comptime!(variant.tile.unit_rows()) {
        #[unroll]
        for column in 0..SCORE_COLUMNS {
            let at = comptime!(row * SCORE_COLUMNS + column);
            let line = start.0 + UNIT_POS_Y as usize + comptime!(row * LANES);
            let beside = start.1 + UNIT_POS_X as usize + comptime!(column * LANES);
            let (query, key) = if comptime!(transposed) {
                (beside, line)
            } else {
                (line, beside)
            };
            let mut applied = 0.0f32;
            let mut grad = 0.0f32;
            if is_visible::<W>(words, place.sequence, query, key, numbers, variant) {
                let product = scores[at];
                let bounded = bounded(product, numbers, variant);
                let of = (place.head, query, key);
                let score = score::<T>(product, bounded, bias, of, numbers, variant);
                let first =
                    ((place.sequence * numbers.heads + place.head) * numbers.q_len + query) * 2;
                let weight = (score - rows[first]).exp();
                applied = weight;
                let mut weight_grad = grads[at];
                if comptime!(variant.dropout) {
                    let factor = kept_factor::<W>(words, place.sequence, of, numbers);
                    applied *= factor;
                    weight_grad *= factor;
                }
                grad = weight * (weight_grad - rows[first + 1]) * numbers.scale;
                if comptime!(variant.soft_cap) {
                    grad *= 1.0 - bounded * bounded;
                }
            }
            scores[at] = applied;
            grads[at] = grad;
        }
    }
}

/// The keys `[first, end)` that the queries `[first, end)` may see, rounded to a tile at the start.
#[cube]
pub fn key_range<W: Numeric>(
    words: &Array<W>,
    sequence: usize,
    queries: (usize, usize),
    keys: (usize, usize),
    numbers: &Numbers,
    #[comptime] variant: Variant,
) -> (usize, usize) {
    let mut low = first_document::<W>(words, sequence, queries, numbers, variant);
    let mut end = keys.1;
    if comptime!(matches!(
        variant.reach,
        ReachKind::Causal | ReachKind::Window | ReachKind::GlobalWindow
    )) {
        end = min(end, numbers.past + queries.1);
    }
    if comptime!(variant.reach == ReachKind::Local) {
        end = min(end, numbers.past + queries.1 + numbers.window);
    }
    if comptime!(variant.reach == ReachKind::Window) {
        low = max(
            low,
            difference(numbers.past + queries.0 + 1, numbers.window),
        );
    }
    if comptime!(variant.reach == ReachKind::Local) {
        low = max(low, difference(numbers.past + queries.0, numbers.window));
    }
    (keys.0 + difference(low, keys.0) / COLUMNS * COLUMNS, end)
}

/// Returns false if none of the queries from `query` on sees a key of the tile from `key` on.
#[cube]
pub fn may_see_tile(
    query: usize,
    key: usize,
    numbers: &Numbers,
    #[comptime] variant: Variant,
) -> bool {
    if comptime!(variant.reach == ReachKind::GlobalWindow && !variant.documents) {
        let near = key + COLUMNS - 1 + numbers.window > numbers.past + query;
        near || key < numbers.global_tokens
    } else {
        true.runtime()
    }
}

/// The queries `[first, end)` that may see the keys `[first, end)`, rounded to a tile at the start.
#[cube]
pub fn query_range(
    keys: (usize, usize),
    numbers: &Numbers,
    #[comptime] variant: Variant,
) -> (usize, usize) {
    let mut low = 0usize;
    let mut end = numbers.q_len;
    if comptime!(matches!(
        variant.reach,
        ReachKind::Causal | ReachKind::Window | ReachKind::GlobalWindow
    )) {
        low = difference(keys.0, numbers.past);
    }
    if comptime!(variant.reach == ReachKind::Local) {
        low = difference(keys.0, numbers.past + numbers.window);
        end = min(end, difference(keys.1 + numbers.window, numbers.past));
    }
    if comptime!(variant.reach == ReachKind::Window) {
        end = min(end, difference(keys.1 + numbers.window, numbers.past + 1));
    }
    if comptime!(variant.reach == ReachKind::GlobalWindow && !variant.documents)
        && keys.0 >= numbers.global_tokens
    {
        end = min(end, difference(keys.1 + numbers.window, numbers.past + 1));
    }
    (low / COLUMNS * COLUMNS, end)
}

/// `a - b`, or 0 if `b` is larger.
#[cube]
fn difference(a: usize, b: usize) -> usize {
    max(a, b) - b
}

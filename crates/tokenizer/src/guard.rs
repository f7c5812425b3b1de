//! Checks of a `tokenizer.json` for contents at which the `tokenizers` crate would panic, when it reads the file or when
//! it encodes a text.

use std::collections::VecDeque;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Looks for all of it.
pub(crate) fn check(file: &Value) -> Result<(), String> {
    check_merges(&file["model"])?;
    check_parts(&file["normalizer"])?;
    check_parts(&file["pre_tokenizer"])
}

/// With a continuation prefix, the crate reads the beginning of a merge's second part as that prefix.
fn check_merges(model: &Value) -> Result<(), String> {
    let prefix = model["continuing_subword_prefix"].as_str();
    let (Some(prefix), Some(merges)) = (prefix, model["merges"].as_array()) else {
        return Ok(());
    };
    for merge in merges {
        let second = match merge.as_str() {
            Some(pair) => pair.split_once(' ').map(|(_, second)| second),
            None => merge.get(1).and_then(Value::as_str),
        };
        if !second.is_some_and(|second| second.starts_with(prefix)) {
            return Err(format!(
                "the second part of the merge {merge} does not begin with `{prefix}`"
            ));
        }
    }
    Ok(())
}

/// Checks a normalizer or a pre-tokenizer, and those that it consists of.
fn check_parts(part: &Value) -> Result<(), String> {
    match part["type"].as_str() {
        Some("FixedLength") if part["length"] == 0 => {
            return Err("`length` of the pre-tokenizer FixedLength must be at least 1".to_owned());
        }
        Some("Prepend") if part["prepend"] == "" => {
            return Err("`prepend` of the normalizer Prepend must not be empty".to_owned());
        }
        Some("Precompiled") => {
            charsmap_growth(part["precompiled_charsmap"].as_str().unwrap_or_default())?;
        }
        _ => {}
    }
    let parts = ["normalizers", "pretokenizers"].map(|name| part[name].as_array());
    parts
        .into_iter()
        .flatten()
        .flatten()
        .try_for_each(check_parts)
}

/// The most bytes of a table of characters. SentencePiece's own have 250,000.
const MOST_CHARSMAP: usize = 2 << 20;

/// The most that a table of characters, in base64, multiplies a text by.
pub(crate) fn charsmap_growth(map: &str) -> Result<f64, String> {
    if map.len() / 4 * 3 > MOST_CHARSMAP {
        return Err(format!(
            "`precompiled_charsmap` of a normalizer has {} bytes; the limit is {MOST_CHARSMAP}",
            map.len() / 4 * 3
        ));
    }
    let map = STANDARD.decode(map).ok();
    map.and_then(|map| follow_charsmap(&map))
        .ok_or_else(|| "`precompiled_charsmap` of a normalizer is damaged".to_owned())
}

/// Follows SentencePiece's table of characters and their replacements from every node that a text can lead
/// to: the size of a double-array trie in bytes, its units, and the texts that its leaves point to, each ended by a zero.
/// Gives the largest ratio of a text to what it replaces, at least 1; none where the table leads out of itself.
fn follow_charsmap(map: &[u8]) -> Option<f64> {
    let (size, rest) = map.split_first_chunk::<4>()?;
    let (trie, texts) = rest.split_at_checked(u32::from_le_bytes(*size) as usize / 4 * 4)?;
    let texts = std::str::from_utf8(texts).ok()?;
    let units = trie.as_chunks::<4>().0;
    let unit = |at: usize| units.get(at).map(|unit| u32::from_le_bytes(*unit));
    let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
    let mut growth: f64 = 1.0;
    let mut seen = vec![false; units.len()];
    // Nodes with the bytes that lead to them, the fewest first.
    let mut nodes = VecDeque::from([(offset(unit(0)?), 0)]);
    while let Some((node, depth)) = nodes.pop_front() {
        // Any byte may come next: all of the node's block must be there.
        if (node | 0xFF) >= units.len() {
            return None;
        }
        if std::mem::replace(&mut seen[node], true) {
            continue;
        }
        for byte in 1..=0xFF {
            let at = node ^ byte;
            let Some(found) = unit(at).filter(|unit| (unit & (1 << 31 | 0xFF)) as usize == byte)
            else {
                continue;
            };
            let next = at ^ offset(found);
            let has_leaf = (found >> 8) & 1 == 1;
            if has_leaf {
                let start = (unit(next)? & !(1 << 31)) as usize;
                let text = texts.get(start..)?;
                // Longer ones are refused whatever they replace.
                let window = &text.as_bytes()[..text.len().min(1 << 12)];
                let len = window.iter().position(|byte| *byte == 0);
                growth = growth.max(len.unwrap_or(window.len()) as f64 / (depth + 1) as f64);
            }
            nodes.push_back((next, depth + 1));
        }
    }
    Some(growth)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trie in which `a` becomes `xy`: the root's block is at 0, the leaf's at 256.
    fn charsmap() -> Vec<u8> {
        let mut units = vec![0u32; 512];
        let a = usize::from(b'a');
        // Label, leaf, and the way from here to unit 256.
        units[a] = u32::from(b'a') | 1 << 8 | ((256 ^ a) as u32) << 10;
        units[256] = 3 | 1 << 31;
        let bytes = units.iter().flat_map(|unit| unit.to_le_bytes());
        let size = (units.len() * 4) as u32;
        let texts = b"no\0xy\0";
        size.to_le_bytes()
            .into_iter()
            .chain(bytes)
            .chain(*texts)
            .collect()
    }

    fn normalized(map: &[u8]) -> Result<String, String> {
        let part = serde_json::json!({"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": STANDARD.encode(map)},
        ]});
        check(&serde_json::json!({"normalizer": part}))?;
        use tokenizers::Normalizer;
        let normalizer: tokenizers::NormalizerWrapper = serde_json::from_value(part).unwrap();
        let mut text = tokenizers::NormalizedString::from("banana é 漢");
        normalizer.normalize(&mut text).unwrap();
        Ok(text.get().to_owned())
    }

    #[test]
    fn a_whole_charsmap_is_let_through() {
        assert_eq!(normalized(&charsmap()).unwrap(), "bxynxynxy é 漢");
    }

    #[test]
    fn a_damaged_charsmap_is_refused_or_harmless() {
        let whole = charsmap();
        for len in [0, 3, 4, 100, 1028, 2051] {
            assert!(normalized(&whole[..len]).is_err(), "{len}");
        }
        // Whatever bit is wrong, nothing that is let through makes the crate panic.
        let mut refused = 0;
        for bit in 0..whole.len() * 8 {
            let mut map = whole.clone();
            map[bit / 8] ^= 1 << (bit % 8);
            refused += usize::from(normalized(&map).is_err());
        }
        assert!(refused > 20, "{refused}");
    }

    #[test]
    fn nothing_put_before_a_text_is_refused() {
        let file = serde_json::json!({"normalizer": {"type": "Prepend", "prepend": ""}});
        assert!(check(&file).unwrap_err().contains("Prepend"));
    }

    #[test]
    fn pieces_of_no_length_are_refused() {
        let pieces = serde_json::json!({"type": "FixedLength", "length": 0});
        let file = serde_json::json!({
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [pieces]},
        });
        assert!(check(&file).unwrap_err().contains("FixedLength"));
    }
}

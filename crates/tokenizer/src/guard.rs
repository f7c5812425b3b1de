//! Rejects a `tokenizer.json` on which the `tokenizers` crate would panic, when it reads the file or encodes a
//! text.

use std::collections::VecDeque;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Runs all checks.
pub(crate) fn check(file: &Value) -> Result<(), String> {
    check_merges(&file["model"])?;
    check_parts(&file["normalizer"])?;
    check_parts(&file["pre_tokenizer"])
}

/// Checks merges with a continuation prefix: the crate assumes that the second part begins with it.
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

/// Checks a normalizer or pre-tokenizer, and those nested in it.
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

/// The maximum size of a character map in bytes. SentencePiece's own have 250,000.
const MAX_CHARSMAP: usize = 2 << 20;

/// Returns the maximum factor by which a base64 character map multiplies the length of a text.
pub(crate) fn charsmap_growth(map: &str) -> Result<f64, String> {
    if map.len() / 4 * 3 > MAX_CHARSMAP {
        return Err(format!(
            "`precompiled_charsmap` of a normalizer has {} bytes; the limit is {MAX_CHARSMAP}",
            map.len() / 4 * 3
        ));
    }
    let map = STANDARD.decode(map).ok();
    map.and_then(|map| walk_charsmap(&map))
        .ok_or_else(|| "`precompiled_charsmap` of a normalizer is damaged".to_owned())
}

/// Walks SentencePiece's character map from every node that a text can reach. It consists of the size of a
/// double-array trie in bytes, its units, and the NUL-terminated replacements that its leaves point to. Returns
/// the largest ratio of a replacement's length to its match, at least 1. `None` if an index is out of range.
fn walk_charsmap(map: &[u8]) -> Option<f64> {
    let (size, rest) = map.split_first_chunk::<4>()?;
    let (trie, texts) = rest.split_at_checked(u32::from_le_bytes(*size) as usize / 4 * 4)?;
    let texts = std::str::from_utf8(texts).ok()?;
    let units = trie.as_chunks::<4>().0;
    let unit = |at: usize| units.get(at).map(|unit| u32::from_le_bytes(*unit));
    let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
    let mut growth: f64 = 1.0;
    let mut seen = vec![false; units.len()];
    // Nodes and their depths in bytes, breadth first.
    let mut nodes = VecDeque::from([(offset(unit(0)?), 0)]);
    while let Some((node, depth)) = nodes.pop_front() {
        // Any byte may follow, so all 256 units of the node's block must exist.
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
                // Longer replacements exceed the limit regardless of their match.
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

    /// A trie that maps `a` to `xy`. The root's block is at 0, the leaf's at 256.
    fn charsmap() -> Vec<u8> {
        let mut units = vec![0u32; 512];
        let a = usize::from(b'a');
        // Label, leaf flag, and offset to unit 256.
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
    fn a_valid_charsmap_is_accepted() {
        assert_eq!(normalized(&charsmap()).unwrap(), "bxynxynxy é 漢");
    }

    #[test]
    fn damaged_charsmaps_are_rejected_or_harmless() {
        let whole = charsmap();
        for len in [0, 3, 4, 100, 1028, 2051] {
            assert!(normalized(&whole[..len]).is_err(), "{len}");
        }
        // No single-bit error that is accepted makes the crate panic.
        let mut refused = 0;
        for bit in 0..whole.len() * 8 {
            let mut map = whole.clone();
            map[bit / 8] ^= 1 << (bit % 8);
            refused += usize::from(normalized(&map).is_err());
        }
        assert!(refused > 20, "{refused}");
    }

    #[test]
    fn an_empty_prepend_is_rejected() {
        let file = serde_json::json!({"normalizer": {"type": "Prepend", "prepend": ""}});
        assert!(check(&file).unwrap_err().contains("Prepend"));
    }

    #[test]
    fn zero_length_pieces_are_rejected() {
        let pieces = serde_json::json!({"type": "FixedLength", "length": 0});
        let file = serde_json::json!({
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [pieces]},
        });
        assert!(check(&file).unwrap_err().contains("FixedLength"));
    }
}

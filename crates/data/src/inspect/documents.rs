//! Separation of a token stream into documents.

use rayon::prelude::*;

/// A document of a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Document {
    /// The position of its first token in the split.
    pub(super) start: u64,
    /// The number of tokens, without the end-of-text token.
    pub(super) tokens: u64,
    /// 128 bits of the BLAKE3 of its tokens.
    pub(super) hash: u128,
}

/// Cuts a stream of tokens into documents. A cut is either an end-of-text token, which belongs to no document, or
/// another first token, which belongs to the document it begins. End-of-text tokens may precede each document, as in
/// files of this program and llm.c, or follow it, as in files of nanoGPT. An empty range before the first cut or
/// after the last is not a document. An empty range between two cuts is an empty document.
pub(super) struct DocumentSplitter {
    /// The token that separates documents and belongs to none of them.
    end_of_text: Option<u32>,
    /// The number of tokens processed so far.
    position: u64,
    /// The document that the next token belongs to.
    open: OpenDocument,
    /// True after the first cut.
    cut: bool,
}

struct OpenDocument {
    start: u64,
    hasher: blake3::Hasher,
}

impl DocumentSplitter {
    /// A splitter at the start of a stream. Without cuts, the whole stream is one document.
    pub(super) fn new(end_of_text: Option<u32>) -> Self {
        Self {
            end_of_text,
            position: 0,
            open: OpenDocument::at(0),
            cut: false,
        }
    }

    /// The number of tokens processed so far.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Processes the next tokens. `cuts` marks those at which a document begins ([`crate::TokenSplit::beginnings`]).
    /// Returns the documents that end here, in order.
    pub(super) fn add(&mut self, ids: &[u32], cuts: &[bool]) -> Vec<Document> {
        let cuts = cuts.iter().enumerate().filter(|(_, cuts)| **cuts);
        let cuts: Vec<usize> = cuts.map(|(at, _)| at).collect();
        let position = self.position;
        self.position += ids.len() as u64;
        let (Some(&first), Some(&last)) = (cuts.first(), cuts.last()) else {
            update(&mut self.open.hasher, ids);
            return Vec::new();
        };
        let end_of_text = self.end_of_text;
        let after = |cut: usize| cut + usize::from(Some(ids[cut]) == end_of_text);
        update(&mut self.open.hasher, &ids[..first]);
        let next = OpenDocument::at(position + after(last) as u64);
        let ended = std::mem::replace(&mut self.open, next).end(position + first as u64);
        update(&mut self.open.hasher, &ids[after(last)..]);
        let whole = cuts.par_windows(2).map(|pair| {
            let begin = after(pair[0]);
            let mut open = OpenDocument::at(position + begin as u64);
            update(&mut open.hasher, &ids[begin..pair[1]]);
            open.end(position + pair[1] as u64)
        });
        // Most documents are within one block: hash them on all threads.
        let mut documents: Vec<Document> = whole.collect();
        if ended.tokens > 0 || self.cut {
            documents.insert(0, ended);
        }
        self.cut = true;
        documents
    }

    /// Returns the last document, unless it is empty.
    pub(super) fn finish(self) -> Option<Document> {
        let last = self.open.end(self.position);
        (last.tokens > 0).then_some(last)
    }
}

impl OpenDocument {
    fn at(start: u64) -> Self {
        let hasher = blake3::Hasher::new();
        Self { start, hasher }
    }

    fn end(self, end: u64) -> Document {
        let mut hash = [0; 16];
        self.hasher.finalize_xof().fill(&mut hash);
        Document {
            start: self.start,
            tokens: end - self.start,
            hash: u128::from_le_bytes(hash),
        }
    }
}

/// Hashes ids as four bytes each, so that the hash does not depend on the token width of the file.
fn update(hasher: &mut blake3::Hasher, ids: &[u32]) {
    const IDS: usize = 1024;
    let mut bytes = [0; IDS * 4];
    for ids in ids.chunks(IDS) {
        for (slot, id) in bytes.chunks_exact_mut(4).zip(ids) {
            slot.copy_from_slice(&id.to_le_bytes());
        }
        hasher.update(&bytes[..ids.len() * 4]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The documents in `blocks` of tokens. Id 0 is the end-of-text token.
    fn cut(blocks: &[&[u32]]) -> Vec<Document> {
        let mut splitter = DocumentSplitter::new(Some(0));
        let mut add = |ids: &&[u32]| {
            let cuts: Vec<bool> = ids.iter().map(|&id| id == 0).collect();
            splitter.add(ids, &cuts)
        };
        let mut documents: Vec<_> = blocks.iter().flat_map(&mut add).collect();
        documents.extend(splitter.finish());
        documents
    }

    fn spans(ids: &[u32]) -> Vec<(u64, u64)> {
        let documents = cut(&[ids]);
        documents.iter().map(|d| (d.start, d.tokens)).collect()
    }

    #[test]
    fn end_of_text_may_precede_or_follow_documents() {
        assert_eq!(spans(&[0, 5, 6, 0, 7]), [(1, 2), (4, 1)]);
        assert_eq!(spans(&[5, 6, 0, 7, 0]), [(0, 2), (3, 1)]);
        assert_eq!(spans(&[5, 6]), [(0, 2)]);
        assert_eq!(spans(&[0, 0, 5]), [(1, 0), (2, 1)]);
        assert_eq!(spans(&[]), []);
        assert_eq!(spans(&[0]), []);
    }

    #[test]
    fn first_token_other_than_end_of_text_belongs_to_its_document() {
        let mut splitter = DocumentSplitter::new(Some(0));
        let mut documents = splitter.add(&[7, 5, 0, 7], &[true, false, false, true]);
        documents.extend(splitter.add(&[0, 7, 5, 0], &[false, true, false, false]));
        documents.extend(splitter.finish());
        let spans: Vec<_> = documents.iter().map(|d| (d.start, d.tokens)).collect();
        assert_eq!(spans, [(0, 3), (3, 2), (5, 3)]);
        assert_eq!(documents[0].hash, documents[2].hash);
        assert_ne!(documents[0].hash, documents[1].hash);
    }

    proptest! {
        #[test]
        fn documents_do_not_depend_on_blocks(
            ids in prop::collection::vec(0u32..4, 0..60), sizes in prop::collection::vec(1usize..9, 60),
        ) {
            let (mut rest, mut blocks) = (ids.as_slice(), Vec::new());
            for size in sizes {
                let (head, tail) = rest.split_at(size.min(rest.len()));
                blocks.push(head);
                rest = tail;
            }
            let whole = cut(&[&ids]);
            prop_assert_eq!(&cut(&blocks), &whole);
            // Hashes are equal exactly if the documents are.
            for a in &whole {
                for b in &whole {
                    let of = |d: &Document| &ids[d.start as usize..(d.start + d.tokens) as usize];
                    prop_assert_eq!(a.hash == b.hash, of(a) == of(b));
                }
            }
        }
    }
}

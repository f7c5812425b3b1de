//! The tokens of a wave as bytes, to send them to another process.
//!
//! All numbers are little-endian and of 64 bits, except token ids, of 32. A text is its length and its bytes.

use super::encoding::Encoded;
use super::tokenize::{EncodedSpan, EncodedWave};
use crate::Split;

const IS_VAL: u8 = 1;
const BEGINS: u8 = 2;
const CUT_INEXACTLY: u8 = 4;
const MASKED: u8 = 8;

impl EncodedWave {
    /// The wave after a byte `kind`.
    pub(super) fn to_bytes(&self, kind: u8) -> Vec<u8> {
        let mut bytes = vec![kind];
        let number = |bytes: &mut Vec<u8>, number: u64| bytes.extend(number.to_le_bytes());
        // Counts and texts always serialize.
        let refused = serde_json::to_vec(&self.refused).unwrap_or_default();
        number(&mut bytes, refused.len() as u64);
        bytes.extend(refused);
        let spans = self.spans.len() as u64;
        for count in [self.chunks, self.bytes, self.nuls, self.read, spans] {
            number(&mut bytes, count);
        }
        for span in &self.spans {
            let Encoded {
                ids,
                learnt,
                bytes: text,
            } = &span.encoded;
            let flag = |holds: bool, flag: u8| if holds { flag } else { 0 };
            bytes.push(
                flag(span.split == Split::Val, IS_VAL)
                    | flag(span.begins, BEGINS)
                    | flag(span.cut_inexactly, CUT_INEXACTLY)
                    | flag(learnt.is_some(), MASKED),
            );
            for count in [span.unknown, *text, ids.len() as u64] {
                number(&mut bytes, count);
            }
            bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
            bytes.extend(learnt.iter().flatten().map(|&learnt| u8::from(learnt)));
        }
        bytes
    }

    /// The wave in all of `bytes`, after their first; `None` if they are damaged.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        let refused = rest.length()?;
        let refused = serde_json::from_slice(rest.take(refused)?).ok()?;
        let [chunks, bytes] = [rest.number()?, rest.number()?];
        let [nuls, read] = [rest.number()?, rest.number()?];
        let count = rest.number()?;
        let spans = (0..count).map(|_| rest.span()).collect::<Option<_>>()?;
        rest.0.is_empty().then_some(Self {
            spans,
            chunks,
            bytes,
            nuls,
            read,
            refused,
        })
    }
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn length(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    fn span(&mut self) -> Option<EncodedSpan> {
        let &flags = self.take(1)?.first()?;
        let [unknown, text] = [self.number()?, self.number()?];
        let count = self.length()?;
        let (ids, _) = self.take(count.checked_mul(4)?)?.as_chunks::<4>();
        let learnt = match flags & MASKED {
            0 => None,
            _ => Some(
                self.take(count)?
                    .iter()
                    .map(|&learnt| learnt != 0)
                    .collect(),
            ),
        };
        Some(EncodedSpan {
            split: match flags & IS_VAL {
                0 => Split::Train,
                _ => Split::Val,
            },
            begins: flags & BEGINS != 0,
            unknown,
            cut_inexactly: flags & CUT_INEXACTLY != 0,
            encoded: Encoded {
                ids: ids.iter().map(|&id| u32::from_le_bytes(id)).collect(),
                learnt,
                bytes: text,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{DataError, LeftOut, OnError};

    fn spans() -> impl Strategy<Value = Vec<EncodedSpan>> {
        let ids = prop::collection::vec((any::<u32>(), any::<bool>()), 0..20);
        let flags = any::<[bool; 4]>();
        let span = (ids, flags, any::<u64>(), any::<u64>());
        let span = span.prop_map(
            |(ids, [val, begins, cut_inexactly, masked], unknown, bytes)| EncodedSpan {
                split: if val { Split::Val } else { Split::Train },
                begins,
                unknown,
                cut_inexactly,
                encoded: Encoded {
                    ids: ids.iter().map(|&(id, _)| id).collect(),
                    learnt: masked.then(|| ids.iter().map(|&(_, learnt)| learnt).collect()),
                    bytes,
                },
            },
        );
        prop::collection::vec(span, 0..5)
    }

    proptest! {
        #[test]
        fn waves_are_read_as_they_were_written(spans in spans(), counts in any::<[u64; 4]>(), broken: bool) {
            let mut refused = LeftOut::default();
            if broken {
                let error = DataError::Exchange { reason: "«naïve»".to_owned() };
                refused.broken_record(error, OnError::Skip).unwrap();
            }
            let [chunks, bytes, nuls, read] = counts;
            let wave = EncodedWave { spans, chunks, bytes, nuls, read, refused };
            let message = wave.to_bytes(7);
            prop_assert_eq!(message[0], 7);
            prop_assert_eq!(EncodedWave::from_bytes(&message[1..]), Some(wave));
            // Every cut is noticed.
            for end in 1..message.len() {
                prop_assert_eq!(EncodedWave::from_bytes(&message[1..end]), None);
            }
        }
    }
}

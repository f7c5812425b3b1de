//! The exchange of a divided preparation: messages of any length in pieces of bounded length.

use emberlm_data::PrepareRanks;
use emberlm_trainer::Transport;

/// The length of all ranks' pieces together. A piece is received by all ranks, though only rank 0 needs it.
const TOGETHER: usize = 64 << 20;

/// Exchanges messages over a transport, whose own messages are limited to 2 GiB over all ranks.
pub struct InPieces<T>(pub T);

impl<T: Transport> PrepareRanks for InPieces<T> {
    fn index(&self) -> usize {
        self.0.rank().index()
    }

    fn count(&self) -> usize {
        self.0.rank().world_size()
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let piece = (TOGETHER / self.count()).max(1);
        let lengths = self
            .0
            .all_gather_bytes(&(own.len() as u64).to_le_bytes())?
            .into_iter()
            .map(|bytes| bytes.try_into().map(u64::from_le_bytes))
            .collect::<Result<Vec<u64>, _>>()
            .map_err(|bytes| format!("a length of {} bytes", bytes.len()))?;
        let longest = lengths.into_iter().max().unwrap_or(0);
        let mut all = vec![Vec::new(); self.count()];
        let mut rest = own;
        for _ in 0..longest.div_ceil(piece as u64) {
            let now;
            (now, rest) = rest.split_at(piece.min(rest.len()));
            let received = self.0.all_gather_bytes(now)?;
            for (message, piece) in all.iter_mut().zip(received) {
                message.extend(piece);
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use emberlm_trainer::Rank;

    use super::*;

    /// Rank 0 of two, whose peer sends the same bytes backwards. Remembers the lengths of what it sent.
    struct Mirror(Mutex<Vec<usize>>);

    impl Transport for Mirror {
        fn rank(&self) -> Rank {
            Rank::new(0, 2).unwrap()
        }

        fn all_to_all(&self, _: &[f32], _: &mut [f32]) -> Result<(), String> {
            Err("not used".to_owned())
        }

        fn all_gather(&self, _: &[f32], _: &mut [f32]) -> Result<(), String> {
            Err("not used".to_owned())
        }

        fn all_gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
            self.0.lock().unwrap().push(own.len());
            let length = own.len() == 8;
            let other = own.iter().map(|&byte| if length { byte } else { !byte });
            Ok(vec![own.to_vec(), other.collect()])
        }
    }

    #[test]
    fn long_messages_are_sent_in_pieces() {
        let mirror = InPieces(Mirror(Mutex::default()));
        let own: Vec<u8> = (0..(70 << 20)).map(|i: u32| (i % 251) as u8).collect();
        let all = mirror.gather(&own).unwrap();
        assert!(all[0] == own);
        assert!(all[1].iter().zip(&own).all(|(other, own)| *other == !own));
        let sent = mirror.0.0.lock().unwrap();
        assert_eq!(sent[..], [8, 32 << 20, 32 << 20, 6 << 20]);
    }
}

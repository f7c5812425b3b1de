//! Files made of other files, the same for the same number.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The replacement of a number.
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "3",
    "1.5",
    "1e308",
    "1e-308",
    "1e999",
    "255",
    "65536",
    "16777216",
    "16777217",
    "1152921504606846976",
    "18446744073709551615",
    "null",
    "\"7\"",
];

/// Makes mutations from a seed.
#[derive(Debug)]
pub struct Mutator(ChaCha8Rng);

impl Mutator {
    /// The mutations of a seed.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// One of the files after one to three changes. There is at least one file.
    pub fn mutate(&mut self, files: &[&[u8]]) -> Vec<u8> {
        let mut bytes = self.pick(files).to_vec();
        for _ in 0..[1, 1, 1, 2, 3][self.0.random_range(0..5)] {
            match self.0.random_range(0..9) {
                0 | 8 => self.flip(&mut bytes),
                1 => {
                    let end = self.place(&bytes);
                    bytes.truncate(end);
                }
                2 => {
                    let other = self.pick(files);
                    let (end, start) = (self.place(&bytes), self.place(other));
                    bytes.truncate(end);
                    bytes.extend_from_slice(&other[start..]);
                }
                3 => {
                    let (from, to) = self.range(&bytes);
                    bytes.drain(from..to);
                }
                4 => {
                    let (from, to) = self.range(&bytes);
                    let again = bytes[from..to].to_vec();
                    let place = self.place(&bytes);
                    bytes.splice(place..place, again);
                }
                _ => self.number(&mut bytes),
            }
        }
        bytes
    }

    fn pick<'a>(&mut self, files: &[&'a [u8]]) -> &'a [u8] {
        files[self.0.random_range(0..files.len())]
    }

    fn place(&mut self, bytes: &[u8]) -> usize {
        self.0.random_range(0..=bytes.len())
    }

    /// A short range.
    fn range(&mut self, bytes: &[u8]) -> (usize, usize) {
        let from = self.place(bytes);
        let to = bytes.len().min(from + self.0.random_range(0..40));
        (from, to)
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        if !bytes.is_empty() {
            let place = self.0.random_range(0..bytes.len());
            bytes[place] ^= 1 << (self.0.next_u32() % 8);
        }
    }

    /// Puts another number in the place of one that is written in digits.
    fn number(&mut self, bytes: &mut Vec<u8>) {
        let starts: Vec<usize> = (0..bytes.len())
            .filter(|&i| bytes[i].is_ascii_digit() && (i == 0 || !bytes[i - 1].is_ascii_digit()))
            .collect();
        if starts.is_empty() {
            return;
        }
        let from = starts[self.0.random_range(0..starts.len())];
        let digits = bytes[from..].iter().take_while(|b| b.is_ascii_digit());
        let to = from + digits.count();
        let number = NUMBERS[self.0.random_range(0..NUMBERS.len())];
        bytes.splice(from..to, number.bytes());
    }
}

//! The random numbers of Python's `random.Random`, which choose the few-shot examples of lm-evaluation-harness and nanochat.
//!
//! The generator is MT19937 (Matsumoto and Nishimura 1998, "Mersenne Twister"), seeded with `init_by_array`. `sample` and
//! `shuffle` follow the documented behaviour of CPython 3.11 and later.

/// Words of the generator's state.
const WORDS: usize = 624;
/// Offset of the word that each new word is mixed with.
const OFFSET: usize = 397;

/// `random.Random(seed)`.
#[derive(Clone)]
pub(super) struct PythonRandom {
    state: Vec<u32>,
    next: usize,
}

impl PythonRandom {
    /// The generator of an integer seed.
    pub(super) fn new(seed: u64) -> Self {
        let mut key = vec![seed as u32];
        if seed > u64::from(u32::MAX) {
            key.push((seed >> 32) as u32);
        }
        let mut state = vec![19_650_218u32; WORDS];
        for at in 1..WORDS {
            state[at] = mixed(state[at - 1], 1_812_433_253).wrapping_add(at as u32);
        }
        let mut at = 1;
        for step in 0..WORDS {
            let (word, index) = (key[step % key.len()], (step % key.len()) as u32);
            state[at] = (state[at] ^ mixed(state[at - 1], 1_664_525))
                .wrapping_add(word)
                .wrapping_add(index);
            at = following(&mut state, at);
        }
        for _ in 1..WORDS {
            state[at] = (state[at] ^ mixed(state[at - 1], 1_566_083_941)).wrapping_sub(at as u32);
            at = following(&mut state, at);
        }
        state[0] = 1 << 31;
        Self { state, next: WORDS }
    }

    /// 32 random bits.
    fn word(&mut self) -> u32 {
        if self.next == WORDS {
            for at in 0..WORDS {
                let joined =
                    (self.state[at] & (1 << 31)) | (self.state[(at + 1) % WORDS] & !(1 << 31));
                let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[at] = self.state[(at + OFFSET) % WORDS] ^ (joined >> 1) ^ odd;
            }
            self.next = 0;
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// A number below `limit`, which is at least 1 and at most 2^32 - 1.
    fn below(&mut self, limit: usize) -> usize {
        let bits = usize::BITS - limit.leading_zeros();
        loop {
            let drawn = (self.word() >> (32 - bits.clamp(1, 32))) as usize;
            if drawn < limit {
                return drawn;
            }
        }
    }

    /// A number below `count`, as `random.choices` draws it.
    pub(super) fn choice(&mut self, count: usize) -> usize {
        let (high, low) = (self.word() >> 5, self.word() >> 6);
        let unit = (f64::from(high) * (1u64 << 26) as f64 + f64::from(low)) / (1u64 << 53) as f64;
        (unit * count as f64) as usize
    }

    /// `random.sample(range(population), count)`: distinct numbers. `count` is at most `population`.
    pub(super) fn sample(&mut self, population: usize, count: usize) -> Vec<usize> {
        let mut pool_limit = 21;
        if count > 5 {
            // The least power of 4 that is at least 3 · count.
            let mut power = 1;
            while power < 3 * count {
                power *= 4;
            }
            pool_limit += power;
        }
        if population > pool_limit {
            let mut chosen = Vec::with_capacity(count);
            while chosen.len() < count {
                let drawn = self.below(population);
                if !chosen.contains(&drawn) {
                    chosen.push(drawn);
                }
            }
            return chosen;
        }
        let mut pool: Vec<usize> = (0..population).collect();
        let draw = |left: usize| {
            let at = self.below(left);
            let chosen = pool[at];
            pool[at] = pool[left - 1];
            chosen
        };
        (0..count)
            .map(|drawn| population - drawn)
            .map(draw)
            .collect()
    }

    /// `random.shuffle(items)`.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            let other = self.below(at + 1);
            items.swap(at, other);
        }
    }
}

/// The mixture of a word that `init_by_array` multiplies.
fn mixed(word: u32, factor: u32) -> u32 {
    (word ^ (word >> 30)).wrapping_mul(factor)
}

/// The place after `at`; after the last one it is 1, and the first word becomes the last.
fn following(state: &mut [u32], at: usize) -> usize {
    if at + 1 < WORDS {
        return at + 1;
    }
    state[0] = state[WORDS - 1];
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that CPython 3.11 prints.
    #[test]
    fn draws_are_those_of_python() {
        let mut random = PythonRandom::new(1234);
        assert_eq!([random.word(), random.word()], [4150886329, 3342196574]);
        let mut random = PythonRandom::new(0);
        let choices: Vec<usize> = (0..8).map(|_| random.choice(10)).collect();
        assert_eq!(choices, [8, 7, 4, 2, 5, 4, 7, 3]);
        let sample = |seed, population, count| PythonRandom::new(seed).sample(population, count);
        // From a pool, by rejection, and with more than 5.
        assert_eq!(sample(1234, 20, 5), [14, 3, 0, 2, 1]);
        assert_eq!(sample(1235, 1000, 5), [930, 705, 434, 548, 862]);
        assert_eq!(sample(7, 80, 10), [41, 19, 50, 6, 9, 68, 12, 46, 7, 64]);
        assert_eq!(sample(7, 100, 10), [41, 19, 50, 83, 6, 9, 68, 12, 46, 74]);
        assert_eq!(sample(1 << 40, 3, 3), [0, 1, 2]);
        let mut items: Vec<usize> = (0..12).collect();
        PythonRandom::new(1337).shuffle(&mut items);
        assert_eq!(items, [6, 0, 1, 4, 10, 7, 3, 11, 2, 5, 8, 9]);
    }
}

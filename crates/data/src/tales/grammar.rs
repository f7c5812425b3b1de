//! The elements of the grammar, its exact entropy and its expected length.

/// The drawn values of a tale, which later sentences can repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// The weather in the first sentence.
    Weather,
    /// The time of day or day of the week.
    Time,
    /// The hero's name, which also determines the pronouns.
    Hero,
    /// The hero's trade.
    Job,
    /// The place where the tale begins.
    Place,
    /// The object under which the thing is found.
    Hiding,
    /// The attribute of the thing.
    Look,
    /// The thing that the hero finds.
    Thing,
    /// The attribute of the helper.
    Mood,
    /// The animal that helps the hero.
    Helper,
    /// The helper's name.
    HelperName,
    /// The owner of the thing.
    Owner,
    /// The obstacle, which also determines the remedy.
    Problem,
    /// The event when the owner has the thing back.
    Joy,
    /// The reward.
    Food,
    /// The duration, which is only drawn in one of the endings.
    Span,
}

impl Slot {
    /// The number of slots.
    pub(super) const COUNT: usize = Self::Span as usize + 1;
}

/// A slot with one text for each of its values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    pub(super) slot: Slot,
    pub(super) texts: &'static [&'static str],
}

/// An element of a phrasing.
#[derive(Clone, Copy, Debug)]
pub(super) enum PhrasePart {
    /// A fixed text.
    Text(&'static str),
    /// Draws the slot's value uniformly and inserts its text.
    Draw(Word),
    /// Inserts the text for the slot's value, which was drawn before.
    Repeat(Word),
}

/// One of the phrasings of a sentence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phrasing {
    /// The weight of this phrasing relative to the others of the sentence.
    pub(super) weight: u32,
    pub(super) parts: &'static [PhrasePart],
}

/// A sentence with its alternative phrasings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sentence {
    pub(super) phrasings: &'static [Phrasing],
}

/// The values drawn so far, by slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drawn {
    values: [usize; Slot::COUNT],
}

impl Drawn {
    pub(super) fn set(&mut self, slot: Slot, value: usize) {
        self.values[slot as usize] = value;
    }

    /// The text of `word` for the drawn value of its slot.
    pub(super) fn text(&self, word: &Word) -> &'static str {
        // Each word of a slot has one text per value (verified by a test).
        word.texts
            .get(self.values[word.slot as usize])
            .copied()
            .unwrap_or_default()
    }
}

impl Sentence {
    /// The sum of the phrasings' weights.
    pub(super) fn total_weight(&self) -> u32 {
        self.phrasings.iter().map(|phrasing| phrasing.weight).sum()
    }

    /// The probability of `phrasing` in this sentence.
    pub(super) fn probability(&self, phrasing: &Phrasing) -> f64 {
        f64::from(phrasing.weight) / f64::from(self.total_weight())
    }

    /// The entropy of the draws in this sentence given all earlier draws, in nats.
    pub(super) fn entropy_nats(&self) -> f64 {
        self.expectation(|phrasing| -self.probability(phrasing).ln() + phrasing.draws_nats())
    }

    /// The expected length in characters.
    pub(super) fn expected_chars(&self) -> f64 {
        self.expectation(Phrasing::expected_chars)
    }

    fn expectation(&self, value: impl Fn(&Phrasing) -> f64) -> f64 {
        self.phrasings
            .iter()
            .map(|phrasing| self.probability(phrasing) * value(phrasing))
            .sum()
    }

    /// All texts that can occur in the sentence.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'static str> {
        self.phrasings
            .iter()
            .flat_map(|phrasing| phrasing.parts)
            .flat_map(PhrasePart::texts)
            .copied()
    }
}

impl Phrasing {
    /// The entropy of the draws in nats. It equals their negative log-probability, since they are uniform.
    pub(super) fn draws_nats(&self) -> f64 {
        let nats = |part: &PhrasePart| match part {
            PhrasePart::Draw(word) => (word.texts.len() as f64).ln(),
            PhrasePart::Text(_) | PhrasePart::Repeat(_) => 0.0,
        };
        self.parts.iter().map(nats).sum()
    }

    /// The expected length in characters. Each value is drawn uniformly and independently, so the expected length of
    /// a word is the mean over its texts.
    fn expected_chars(&self) -> f64 {
        let mean = |part: &PhrasePart| {
            let texts = part.texts();
            let chars: usize = texts.iter().map(|text| text.len()).sum();
            chars as f64 / texts.len() as f64
        };
        self.parts.iter().map(mean).sum()
    }
}

impl PhrasePart {
    /// The texts that can occur here.
    pub(super) fn texts(&self) -> &[&'static str] {
        match self {
            Self::Text(text) => std::slice::from_ref(text),
            Self::Draw(word) | Self::Repeat(word) => word.texts,
        }
    }
}

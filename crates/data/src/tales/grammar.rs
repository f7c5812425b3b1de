//! The grammar's parts, its exact entropy and its expected length.

/// The values that a tale remembers: the drawn number of each is known to all later sentences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// The weather at the beginning.
    Weather,
    /// The time of day or of the week.
    Time,
    /// The hero's name, and with it the pronouns.
    Hero,
    /// The hero's trade.
    Job,
    /// The place where it begins.
    Place,
    /// The object that the found thing lay under.
    Hiding,
    /// The found thing's property.
    Look,
    /// The found thing.
    Thing,
    /// The helper's property.
    Mood,
    /// The animal that helps.
    Helper,
    /// The helper's name.
    HelperName,
    /// Whose the thing is.
    Owner,
    /// The obstacle, and with it the remedy.
    Problem,
    /// The event when the thing is back.
    Joy,
    /// The reward.
    Food,
    /// The duration; known only in the ending that draws it.
    Span,
}

impl Slot {
    /// The number of slots.
    pub(super) const COUNT: usize = Self::Span as usize + 1;
}

/// A slot and the texts that stand for its values: one text per value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    pub(super) slot: Slot,
    pub(super) texts: &'static [&'static str],
}

/// A piece of a phrasing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// The same text always.
    Text(&'static str),
    /// The slot's value is drawn here, each with the same probability.
    Draw(Word),
    /// The slot's value, drawn before, is repeated.
    Again(Word),
}

/// One way to say a sentence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phrasing {
    /// Its odds among the sentence's phrasings.
    pub(super) weight: u32,
    pub(super) parts: &'static [Part],
}

/// A sentence: one of its phrasings.
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

    /// The text of `word` for its slot's value.
    pub(super) fn text(&self, word: &Word) -> &'static str {
        // All words of a slot have as many texts as the slot has values (a test sees to it).
        word.texts
            .get(self.values[word.slot as usize])
            .copied()
            .unwrap_or_default()
    }
}

impl Sentence {
    /// The sum of the phrasings' odds.
    pub(super) fn total_weight(&self) -> u32 {
        self.phrasings.iter().map(|phrasing| phrasing.weight).sum()
    }

    /// The probability of `phrasing` in this sentence.
    pub(super) fn probability(&self, phrasing: &Phrasing) -> f64 {
        f64::from(phrasing.weight) / f64::from(self.total_weight())
    }

    /// The entropy of this sentence's draws given all before, in nats.
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

    /// Every text in it.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'static str> {
        self.phrasings
            .iter()
            .flat_map(|phrasing| phrasing.parts)
            .flat_map(Part::texts)
            .copied()
    }
}

impl Phrasing {
    /// The entropy, and the negative log-probability too, of its draws: they are uniform.
    pub(super) fn draws_nats(&self) -> f64 {
        let nats = |part: &Part| match part {
            Part::Draw(word) => (word.texts.len() as f64).ln(),
            Part::Text(_) | Part::Again(_) => 0.0,
        };
        self.parts.iter().map(nats).sum()
    }

    /// A value is drawn independently of all else and uniformly, so wherever it occurs, its expected length is the
    /// mean.
    fn expected_chars(&self) -> f64 {
        let mean = |part: &Part| {
            let texts = part.texts();
            let chars: usize = texts.iter().map(|text| text.len()).sum();
            chars as f64 / texts.len() as f64
        };
        self.parts.iter().map(mean).sum()
    }
}

impl Part {
    /// The texts that can stand here.
    pub(super) fn texts(&self) -> &[&'static str] {
        match self {
            Self::Text(text) => std::slice::from_ref(text),
            Self::Draw(word) | Self::Again(word) => word.texts,
        }
    }
}

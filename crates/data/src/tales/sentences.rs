//! The sentences of a tale, in order.
//!
//! A word in round brackets is drawn at its position. A word in square brackets was drawn before and is repeated. The
//! number before a phrasing is its weight.
//!
//! The phrasings of a sentence begin with different texts, after at most some words that are already known, so that a
//! reader can distinguish them. A sentence draws the same words in all of its phrasings, so that later sentences can
//! repeat them; the exception is [`SPAN`], which only one ending draws. Tests in `parse` verify both rules.

use super::grammar::{PhrasePart, Phrasing, Sentence};
use super::words::*;

macro_rules! part {
    ($text:literal) => {
        PhrasePart::Text($text)
    };
    (($word:ident)) => {
        PhrasePart::Draw($word)
    };
    ([$word:ident]) => {
        PhrasePart::Repeat($word)
    };
}

macro_rules! tale {
    ($({ $($weight:literal $phrasing:tt)+ })+) => {
        &[$(Sentence { phrasings: &[$(phrasing!($weight $phrasing)),+] }),+]
    };
}

macro_rules! phrasing {
    ($weight:literal { $($part:tt)+ }) => {
        Phrasing { weight: $weight, parts: &[$(part!($part)),+] }
    };
}

/// The sentences of a tale, in order.
pub(super) const SENTENCES: &[Sentence] = tale! {
    {
        3 { "One " (WEATHER) " " (TIME) ", " (HERO) " the " (JOB) " walked to " (PLACE) ". " }
        2 { "On a " (WEATHER) " " (TIME) ", a " (JOB) " called " (HERO) " came to " (PLACE) ". " }
        1 { "At " (PLACE) ", on a " (WEATHER) " " (TIME) ", sat " (HERO) " the " (JOB) ". " }
    }
    {
        3 { "Under a " (HIDING) " " [HE] " found a " (LOOK) " " (THING) ". " }
        1 { "There lay a " (LOOK) " " (THING) " under a " (HIDING) ", and " [HE] " took it. " }
    }
    {
        2 { "\"The " (OWNER) " lost that " [THING] ",\" said a " (MOOD) " " (HELPER) " named " (HELPER_NAME) ". " }
        1 { "Then a " (MOOD) " " (HELPER) " named " (HELPER_NAME) " said, \"It is the " (OWNER) "'s " [THING] ".\" " }
    }
    {
        2 { "But " (PROBLEM) ". " }
        1 { [HERO] " set out, but " (PROBLEM) ". " }
        1 { [HERO] " wanted to bring the " [THING] " back, but " (PROBLEM) ". " }
    }
    {
        2 { "So " [HELPER_NAME] " " [REMEDY] ". " }
        1 { "\"Leave it to me,\" said the " [HELPER] ", and " [HELPER_NAME] " " [REMEDY] ". " }
        1 { "Luckily, the " [HELPER] " " [REMEDY] ". " }
    }
    {
        2 { "When the " [OWNER] " saw the " [LOOK] " " [THING] ", " (JOY) ". " }
        1 { "Soon the " [OWNER] " had it back, and " (JOY) ". " }
    }
    {
        1 { [HERO] " and " [HELPER_NAME] " got " (FOOD) ". " }
        1 { "The " [OWNER] " gave them " (FOOD) ". " }
    }
    {
        2 { "Since that " [TIME] ", " [HERO] " and " [HELPER_NAME] " often meet at " [PLACE] ".\n\n" }
        1 { "The " [JOB] " and the " [HELPER] " stayed friends " (SPAN) ".\n\n" }
    }
};

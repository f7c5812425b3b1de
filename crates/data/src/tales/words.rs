//! The words of the tales.
//!
//! In a list that is drawn from, no text is a prefix of another, so that a reader can distinguish them. The lists of
//! the same slot correspond entry by entry.

use super::grammar::{Slot, Word};

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident: $slot:ident = $texts:expr;)+) => {
        $($(#[$doc])* pub(super) const $name: Word = Word { slot: Slot::$slot, texts: &$texts };)+
    };
}

words! {
    WEATHER: Weather = [
        "misty", "windy", "rainy", "frosty", "golden", "quiet", "bright", "cold", "stormy", "mild", "foggy", "snowy",
    ];
    TIME: Time = [
        "morning", "evening", "afternoon", "Monday", "Tuesday", "Thursday", "Friday", "Sunday", "night", "market day",
        "summer day", "winter day",
    ];
    HERO: Hero = [
        "Anna", "Bela", "Clara", "Dora", "Edda", "Frida", "Greta", "Hilda", "Rosa", "Wanda", "Ivo", "Jonas", "Kaspar",
        "Linus", "Milo", "Nils", "Otto", "Piet", "Tobias", "Viktor",
    ];
    HE: Hero = [
        "she", "she", "she", "she", "she", "she", "she", "she", "she", "she", "he", "he", "he", "he", "he", "he", "he",
        "he", "he", "he",
    ];
    JOB: Job = [
        "baker", "tailor", "weaver", "shepherd", "gardener", "sailor", "cobbler", "potter", "drummer", "painter",
        "carpenter", "fisher", "piper", "juggler", "cook", "smith",
    ];
    PLACE: Place = [
        "the mill", "the old bridge", "the lighthouse", "the orchard", "the harbour", "the quarry", "the pine wood",
        "the frozen lake", "the windy hill", "the pond", "the stone circle", "the castle", "the market", "the well",
        "the meadow", "the ferry",
    ];
    HIDING: Hiding = [
        "stone", "fern", "bench", "barrel", "log", "basket", "blanket", "wheelbarrow", "hat", "thorn bush", "ladder",
        "leaf", "root", "cabbage",
    ];
    LOOK: Look = [
        "brass", "silver", "wooden", "golden", "rusty", "painted", "cracked", "tiny", "heavy", "blue", "green",
        "crooked", "red", "velvet", "glass", "broken",
    ];
    THING: Thing = [
        "key", "lantern", "bell", "spoon", "compass", "ring", "whistle", "mirror", "kite", "map", "teapot", "fiddle",
        "button", "crown", "clock", "shoe",
    ];
    OWNER: Owner = [
        "mayor", "queen", "ferryman", "teacher", "widow", "clockmaker", "beekeeper", "watchman", "wizard", "miller",
        "doctor", "judge", "postman", "giant", "bishop", "librarian",
    ];
    MOOD: Mood = [
        "shy", "sleepy", "merry", "hungry", "clever", "muddy", "polite", "grumpy", "brave", "fat", "young", "lame",
        "nervous", "proud", "talkative", "wet",
    ];
    HELPER: Helper = [
        "fox", "owl", "badger", "hare", "otter", "hedgehog", "raven", "toad", "goose", "mole", "wren", "squirrel",
        "beaver", "lizard", "donkey", "mouse",
    ];
    HELPER_NAME: HelperName = [
        "Bramble", "Thimble", "Pepper", "Moss", "Tumble", "Nettle", "Pebble", "Clover", "Juniper", "Acorn", "Whisker",
        "Dumpling", "Biscuit", "Fidget", "Sorrel", "Marble",
    ];
    PROBLEM: Problem = [
        "the bridge had fallen", "the road was deep in snow", "a thick fog came up", "the gate was locked",
        "the river had risen", "a big dog slept on the path", "night was falling", "the hill was too steep",
        "nobody knew the way", "a tree lay across the road", "the wind was too strong", "it began to pour",
    ];
    REMEDY: Problem = [
        "laid a plank over the stream", "dug a path through the snow", "led the way through the fog",
        "knew a hole beside the gate", "rowed across the river", "tickled the dog until it ran off",
        "filled a jar with glowworms", "let a rope down the hill", "asked the swallows for the way",
        "gnawed through the trunk", "told the wind a long story", "held up a rhubarb leaf",
    ];
    JOY: Joy = [
        "there was dancing until dark", "even the cat smiled", "all the bells rang", "nobody was sad any more",
        "the children cheered", "the whole street came to look", "everyone sang", "the moon seemed to laugh",
        "the geese clapped", "the soup tasted twice as good", "two old enemies shook hands", "flags were hung out",
    ];
    FOOD: Food = [
        "a pear", "a bun", "some honey", "a plum cake", "warm soup", "a round cheese", "seven nuts", "sweet tea",
        "an apple pie", "fresh bread", "a melon", "pancakes", "plum jam", "a sausage", "cold porridge", "gingerbread",
    ];
    SPAN: Span = [
        "for a hundred years", "all their lives", "through every winter", "to this very day",
    ];
}

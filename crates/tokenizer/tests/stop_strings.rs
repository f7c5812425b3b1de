//! Compares stop strings across token boundaries with the standard library's search of the whole text.

use emberlm_tokenizer::StopStrings;
use proptest::prelude::*;

/// Returns the output for each chunk, and the index of the stop string that ended the text.
fn passed(stops: &[&str], pieces: &[&[u8]]) -> (Vec<String>, Option<usize>) {
    let mut stops = StopStrings::new(stops).unwrap();
    let mut shown = Vec::new();
    let mut stopped = None;
    for piece in pieces {
        let passed = stops.push(piece);
        shown.push(String::from_utf8(passed.bytes).unwrap());
        stopped = passed.stopped;
    }
    shown.push(String::from_utf8(stops.finish()).unwrap());
    (shown, stopped)
}

#[test]
fn stop_strings_are_found_across_boundaries_and_not_shown() {
    let (shown, stopped) = passed(
        &["\n\nUser:"],
        &[b"Yes.\n", b"\nUs", b"er", b": no", b"more"],
    );
    assert_eq!(shown, ["Yes.", "", "", "", "", ""]);
    assert_eq!(stopped, Some(0));
}

#[test]
fn false_starts_are_released_immediately() {
    let (shown, stopped) = passed(&["END", "EE"], &[b"an E", b"N", b"T E", b""]);
    assert_eq!(shown, ["an ", "", "ENT ", "", "E"]);
    assert_eq!(stopped, None);
}

#[test]
fn the_first_to_end_wins_then_the_longest() {
    assert_eq!(passed(&["abcd", "bc"], &[b"xabcd"]).0.concat(), "xa");
    assert_eq!(
        passed(&["bc", "abc"], &[b"xabcd"]),
        (vec!["x".into(), String::new()], Some(1))
    );
}

#[test]
fn stop_strings_may_end_within_a_token() {
    let text = "caf\u{e9}\u{1f525}!".as_bytes();
    let bytes: Vec<&[u8]> = text.chunks(1).collect();
    let mut stops = StopStrings::new(&["\u{1f525}"]).unwrap();
    let mut shown = Vec::new();
    for byte in bytes {
        shown.extend(stops.push(byte).bytes);
    }
    assert_eq!(shown, "caf\u{e9}".as_bytes());
    assert!(stops.finish().is_empty());
}

#[test]
fn without_stop_strings_everything_passes() {
    let mut stops = StopStrings::default();
    assert_eq!(stops.push(&[0xFF, 0, b'a']).bytes, [0xFF, 0, b'a']);
}

#[test]
fn invalid_stop_strings_are_rejected() {
    let error = |stop: &str| StopStrings::new(&["a", stop]).unwrap_err().to_string();
    assert_eq!(error(""), "stop = \"\": must not be empty");
    assert_eq!(
        error(&"a".repeat(4097)),
        "stop = 4097 bytes: must have at most 4096 bytes"
    );
    assert!(StopStrings::new(&["a".repeat(4096)]).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_result_does_not_depend_on_boundaries(
        text in "[abé]{0,40}",
        stops in prop::collection::vec("[abé]{1,5}", 0..4),
        cuts in prop::collection::vec(0usize..60, 0..12),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < text.len()).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();

        let ends = stops.iter().filter_map(|stop| Some((text.find(stop)? + stop.len(), stop.len())));
        let first = ends.min_by_key(|(end, len)| (*end, usize::MAX - len));
        let expected = first.map_or(&text[..], |(end, len)| &text[..end - len]);

        let mut looked = StopStrings::new(&stops).unwrap();
        let mut shown = Vec::new();
        let mut stopped = None;
        for cut in cuts.windows(2) {
            let passed = looked.push(&text.as_bytes()[cut[0]..cut[1]]);
            shown.extend(passed.bytes);
            stopped = passed.stopped;
            let so_far = &text.as_bytes()[..cut[1]];
            prop_assert!(so_far.starts_with(&shown));
            // Only bytes that may begin a stop string are held back.
            let held = &so_far[shown.len()..];
            let begins = |stop: &String| stop.as_bytes().starts_with(held) && stop.len() > held.len();
            prop_assert!(stopped.is_some() || held.is_empty() || stops.iter().any(begins));
        }
        prop_assert_eq!(stopped.map(|n| stops[n].len()), first.map(|(_, len)| len));
        shown.extend(looked.finish());
        prop_assert_eq!(String::from_utf8(shown).unwrap(), expected);
    }
}

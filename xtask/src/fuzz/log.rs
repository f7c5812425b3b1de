//! libFuzzer's output in fork mode.

use std::collections::BTreeSet;

/// The coverage of a run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    pub executions: u64,
    pub edges: u64,
    pub features: u64,
}

/// The coverage of the initial corpus: `#57 INITED cov: 512 ft: 1001 corp: 40/99Kb …`.
pub fn of_corpus(log: &str) -> Option<Coverage> {
    log.lines().find_map(|line| {
        let (executions, rest) = line.strip_prefix('#')?.split_once("INITED cov: ")?;
        coverage(executions.trim(), rest)
    })
}

/// The first figures in the log, which are those of the initial inputs except `executions`, and the last ones.
pub fn first_and_last(log: &str) -> Option<[Coverage; 2]> {
    let first = figures(log).next()?;
    Some([first, figures(log).last()?])
}

/// Parses lines such as `#2017: cov: 512 ft: 1001 corp: 40 exec/s 211 oom/timeout/crash: 0/0/0 time: 9s job: 3
/// dft_time: 0`.
fn figures(log: &str) -> impl Iterator<Item = Coverage> {
    log.lines().filter_map(|line| {
        let (executions, rest) = line.strip_prefix('#')?.split_once(": cov: ")?;
        coverage(executions, rest)
    })
}

/// Parses `512 ft: 1001 corp: …`.
fn coverage(executions: &str, rest: &str) -> Option<Coverage> {
    let mut words = rest.split_whitespace();
    let edges = words.next()?.parse().ok()?;
    let features = words.nth(1)?.parse().ok()?;
    Some(Coverage {
        executions: executions.parse().ok()?,
        edges,
        features,
    })
}

/// The distinct findings: locations of panics, and libFuzzer's own errors.
pub fn places(log: &str) -> Vec<String> {
    let mut places: BTreeSet<&str> = log.lines().filter_map(place).collect();
    // libFuzzer reports a panic as a signal too.
    if places.iter().any(|place| place.contains(".rs:")) {
        places.remove("deadly signal");
    }
    places.into_iter().map(str::to_owned).collect()
}

fn place(line: &str) -> Option<&str> {
    if let Some((_, place)) = line.split_once(" panicked at ") {
        return Some(place.trim_end_matches(':'));
    }
    let (_, error) = line.split_once("ERROR: libFuzzer: ")?;
    // The numbers that follow differ between findings.
    let end = error.find(['(', ';']).unwrap_or(error.len());
    let end = error.find(" after ").map_or(end, |after| end.min(after));
    Some(error[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "INFO: Loaded 1 modules\n\
        #95922: cov: 1680 ft: 2904 corp: 235 exec/s: 20134 oom/timeout/crash: 0/0/0 time: 5s job: 2 dft_time: 0\n\
        thread '<unnamed>' (7) panicked at crates/data/src/a.rs:10:9:\n\
        ==7== ERROR: libFuzzer: deadly signal\n\
        ==8== ERROR: libFuzzer: timeout after 10 seconds\n\
        ==9== ERROR: libFuzzer: out-of-memory (used: 1501Mb; limit: 1500Mb)\n\
        ==9== ERROR: libFuzzer: out-of-memory (malloc(4294967296))\n\
        #169164: cov: 1831 ft: 3211 corp: 399 exec/s: 18310 oom/timeout/crash: 1/1/1 time: 9s job: 3 dft_time: 0\n";

    #[test]
    fn the_first_and_the_last_figures_count() {
        let found = first_and_last(LOG).unwrap();
        assert_eq!(
            found.map(|found| (found.executions, found.edges, found.features)),
            [(95_922, 1680, 2904), (169_164, 1831, 3211)]
        );
        assert_eq!(first_and_last("nothing"), None);
    }

    #[test]
    fn the_coverage_of_a_corpus_is_that_of_the_first_pass() {
        let log = "#2\tINITED cov: 1112 ft: 1209 corp: 2/1905b exec/s: 0 rss: 44Mb\n#2\tDONE   cov: 1112 ft: 1209";
        let found = of_corpus(log).unwrap();
        assert_eq!(
            (found.executions, found.edges, found.features),
            (2, 1112, 1209)
        );
        assert_eq!(of_corpus(LOG), None);
    }

    #[test]
    fn each_place_is_listed_once() {
        assert_eq!(
            places(LOG),
            ["crates/data/src/a.rs:10:9", "out-of-memory", "timeout"]
        );
        let signal = "==7== ERROR: libFuzzer: deadly signal\n";
        assert_eq!(places(signal), ["deadly signal"]);
    }
}

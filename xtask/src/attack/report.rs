//! The table of attacks and the verdict.

use std::time::Duration;

use super::{footprint::Growth, hostile::End};
use crate::served::percentile::percentile;

/// The maximum number of printed failures per attack.
const PRINTED: usize = 5;
/// The number of failures after which an attack ends.
const HOPELESS: usize = 200;
/// The time within which `/health` must answer. It is generous, because other programs may use the machine.
const HEALTHY: Duration = Duration::from_secs(1);
const MIB: f64 = (1 << 20) as f64;

/// The counts of one attack.
#[derive(Clone, Debug, Default)]
pub struct Round {
    name: String,
    answered: usize,
    refused: usize,
    closed: usize,
    unread: usize,
    /// Correct answers to well-behaved clients.
    polite: usize,
    worst: Duration,
    /// The times of `/health` in milliseconds.
    health: Vec<f64>,
    /// Memory of the server and its child processes before the attack and at its peak, in MiB.
    memory: Option<(f64, f64)>,
    /// The request at the peak.
    at: String,
    /// The growth of the server's memory, and its open files before and after the attack, of a storm.
    growth: Option<Growth>,
    open_files: Option<(usize, usize)>,
    failures: Vec<String>,
    failed: usize,
    gone: bool,
}

impl Round {
    /// Creates a round without results.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Counts an attacker's request.
    pub fn ended(&mut self, end: &End) {
        *match end {
            End::Answered => &mut self.answered,
            End::Refused => &mut self.refused,
            End::Closed => &mut self.closed,
            End::Unread => &mut self.unread,
        } += 1;
    }

    /// Counts a well-behaved client's answer.
    pub fn answered(&mut self, took: Duration) {
        self.polite += 1;
        self.worst = self.worst.max(took);
    }

    /// Records the time of an answer of `/health`.
    pub fn health(&mut self, took: Duration) {
        self.health.push(1e3 * took.as_secs_f64());
        if took > HEALTHY {
            self.failed(format!("/health took {:.1} s", took.as_secs_f64()));
        }
    }

    /// Records a failure.
    pub fn failed(&mut self, failure: String) {
        self.failed += 1;
        self.gone |= failure.starts_with("the server is gone");
        if self.failures.len() < PRINTED {
            self.failures.push(failure);
        }
    }

    /// Compares the peak memory in bytes, during the request `at`, with the limit, if the operating system
    /// reports it.
    pub fn memory(&mut self, before: Option<u64>, most: Option<u64>, at: &str, limit: u64) {
        let (Some(before), Some(most)) = (before, most) else {
            return;
        };
        self.memory = Some((before as f64 / MIB, most as f64 / MIB));
        at.clone_into(&mut self.at);
        if most > limit {
            self.failed(format!(
                "the server took {:.0} MiB; the limit is {:.0} MiB {at}",
                most as f64 / MIB,
                limit as f64 / MIB
            ));
        }
    }

    /// Records the growth of the memory. Too much is a failure.
    pub fn growth(&mut self, growth: Option<Growth>) {
        self.growth = growth;
        if let Some(growth) = growth.filter(Growth::is_leak) {
            self.failed(format!("the server has a memory leak: {growth}"));
        }
    }

    /// Compares the number of open files, including connections, before and after.
    pub fn files(&mut self, before: Option<usize>, after: Option<usize>) {
        self.open_files = before.zip(after);
        // The request that reads the number is itself a connection, and another may be about to close.
        if let Some((before, after)) = self
            .open_files
            .filter(|(before, after)| *after > before + 4)
        {
            self.failed(format!(
                "the server holds {after} files open, and held {before}"
            ));
        }
    }

    /// Returns true if the server no longer answers.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Returns true if the attack need not continue.
    pub fn is_hopeless(&self) -> bool {
        self.failed >= HOPELESS
    }

    /// The request at the peak of the memory. Empty if it cannot be determined.
    pub fn at(&self) -> &str {
        &self.at
    }

    /// Returns true if neither the server nor a well-behaved client was harmed.
    pub fn is_good(&self) -> bool {
        self.failed == 0 && self.polite > 0 && self.requests() > 0
    }

    /// The number of the attackers' requests.
    fn requests(&self) -> usize {
        self.answered + self.refused + self.closed + self.unread
    }

    /// The row of the table.
    pub fn row(&self) -> String {
        let memory = match self.memory {
            Some((before, most)) => format!("{before:.0} → {most:.0} MiB"),
            None => "unknown".to_owned(),
        };
        format!(
            "| {} | {} | {} / {} / {} / {} | {} | {:.2} s | {:.0} / {:.0} ms | {memory} | {} |",
            self.name,
            self.requests(),
            self.answered,
            self.refused,
            self.closed,
            self.unread,
            self.polite,
            self.worst.as_secs_f64(),
            percentile(&self.health, 0.99),
            percentile(&self.health, 1.0),
            self.failed
        )
    }
}

/// The table, followed by the failures.
pub fn table(rounds: &[Round]) -> String {
    let mut text = "| attack | requests | answered / refused / closed / unread | well-behaved answers | slowest of them | \
        `/health`, 99 % / slowest | memory, before → peak | failures |\n|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for round in rounds {
        text.push_str(&round.row());
        text.push('\n');
    }
    for round in rounds {
        let name = &round.name;
        if let Some(growth) = &round.growth {
            text += &format!("{name}: resident memory {growth}\n");
        }
        if let Some((before, after)) = round.open_files {
            text += &format!("{name}: open files {before} → {after}\n");
        }
        if round.polite == 0 {
            text += &format!("FAILED  {name}: no well-behaved client was answered\n");
        }
        if round.requests() == 0 {
            text += &format!("FAILED  {name}: no attacker sent a request\n");
        }
        for failure in &round.failures {
            text += &format!("FAILED  {name}: {failure}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Round {
        let mut round = Round::new("a");
        round.ended(&End::Refused);
        round.answered(Duration::from_millis(1500));
        round.health(Duration::from_millis(3));
        round.memory(Some(100 << 20), Some(150 << 20), "", 200 << 20);
        round
    }

    #[test]
    fn an_attack_beside_which_nobody_was_answered_is_a_failure() {
        assert!(good().is_good());
        assert!(!Round::new("a").is_good());
        assert!(table(&[Round::new("a")]).contains("no well-behaved client was answered"));
        assert_eq!(
            good().row(),
            "| a | 1 | 0 / 1 / 0 / 0 | 1 | 1.50 s | 3 / 3 ms | 100 → 150 MiB | 0 |"
        );
    }

    #[test]
    fn memory_above_the_limit_is_a_failure() {
        let mut round = good();
        round.memory(Some(100 << 20), Some(201 << 20), "(/a)", 200 << 20);
        assert!(!round.is_good());
        assert!(
            table(&[round])
                .contains("FAILED  a: the server took 201 MiB; the limit is 200 MiB (/a)")
        );
    }

    #[test]
    fn growing_memory_and_leaked_connections_are_failures() {
        let mut round = good();
        let growth = Growth {
            early: 100.0,
            late: 170.0,
            peak: 180.0,
            allowed: 13.0,
        };
        round.growth(Some(growth));
        round.files(Some(20), Some(52));
        let text = table(&[round]);
        let memory = "100.0 → 170.0 MiB (+70.0, allowed 13.0; peak 180.0)";
        for line in [
            format!("a: resident memory {memory}\n"),
            format!("FAILED  a: the server has a memory leak: {memory}\n"),
            "FAILED  a: the server holds 52 files open, and held 20\n".to_owned(),
        ] {
            assert!(text.contains(&line), "{line}: {text}");
        }
        let mut round = good();
        round.files(Some(20), Some(21));
        assert!(round.is_good());
    }

    #[test]
    fn a_server_that_does_not_react_is_a_failure() {
        let mut round = good();
        round.health(Duration::from_millis(1001));
        assert!(!round.is_good());
        assert!(table(&[round]).contains("FAILED  a: /health took 1.0 s"));
    }

    #[test]
    fn a_server_that_is_gone_ends_the_attacks() {
        let mut round = good();
        round.failed("wrong".to_owned());
        assert!(!round.is_gone());
        round.failed("the server is gone: refused".to_owned());
        assert!(round.is_gone() && !round.is_good());
    }
}

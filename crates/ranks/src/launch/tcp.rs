//! The variables that `torchrun` and the operators of Kubernetes set, and those of a step of Slurm.

use std::fmt;
use std::str::FromStr;

use super::{LaunchError, SLURM_RANK, SLURM_STEP_SIZE};

/// The host of rank 0.
const ADDRESS: &str = "MASTER_ADDR";
/// The port at which rank 0 listens.
const PORT: &str = "MASTER_PORT";
/// The port if the variable is missing, as of `torchrun`.
const DEFAULT_PORT: u16 = 29_500;
/// The name of the job.
const ID: &str = "TORCHELASTIC_RUN_ID";
/// The most ranks of a job, each of which has a connection with every other.
const MOST_RANKS: usize = 10_000;
/// True if the launcher itself listens at the port.
const TAKEN: &str = "TORCHELASTIC_USE_AGENT_STORE";

/// The names of rank and number of ranks of one kind of launcher, and those of both on the same host.
struct Names {
    rank: &'static str,
    size: &'static str,
    local: Option<[&'static str; 2]>,
}

const TORCHRUN: Names = Names {
    rank: "RANK",
    size: "WORLD_SIZE",
    local: Some(["LOCAL_RANK", "LOCAL_WORLD_SIZE"]),
};

/// Of a step: a batch script has a rank and the tasks of the allocation, too, and runs once.
const SLURM: Names = Names {
    rank: SLURM_RANK,
    size: SLURM_STEP_SIZE,
    local: None,
};

/// A job whose ranks connect to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpLaunch {
    /// The index of this process.
    pub rank: usize,
    /// The number of processes.
    pub world_size: usize,
    /// The name or the IP address of rank 0's host.
    pub address: String,
    /// Rank 0 listens at this port, or at one of the next if it is taken.
    pub port: u16,
    /// The index of this process and the number of processes on the same host, if the launcher says so.
    pub local: Option<[usize; 2]>,
    /// The launcher's name of the job.
    pub id: Option<String>,
}

impl TcpLaunch {
    /// The job that the variables describe; `None` without an address of rank 0, or for one process.
    pub(crate) fn from_variables(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, LaunchError> {
        let text = |name: &str| variable(name).map(|value| value.trim().to_owned());
        let number = |name: &'static str| parsed::<usize>(name, text(name), "a whole number");
        let address = text(ADDRESS).filter(|address| !address.is_empty());
        let names = match (number(TORCHRUN.rank), number(TORCHRUN.size)) {
            (Ok(None), Ok(None)) => &SLURM,
            _ => &TORCHRUN,
        };
        let Some(address) = address else {
            // Other programs may use these names for something else, but hardly both.
            return match (text(TORCHRUN.rank), text(TORCHRUN.size)) {
                (Some(_), Some(size)) if size != "1" => Err(LaunchError::Missing {
                    name: ADDRESS,
                    other: TORCHRUN.size,
                }),
                _ => Ok(None),
            };
        };
        let (rank, world_size) = match (number(names.rank)?, number(names.size)?) {
            (Some(rank), Some(size)) => (rank, size),
            (Some(_), None) if names.rank == TORCHRUN.rank => {
                return missing(names.size, names.rank);
            }
            (None, Some(_)) => return missing(names.rank, names.size),
            (_, None) => return Ok(None),
        };
        if world_size > MOST_RANKS {
            return invalid(names.size, world_size, format!("at most {MOST_RANKS}"));
        }
        below(names.rank, rank, names.size, world_size)?;
        if world_size == 1 {
            return Ok(None);
        }
        let rule = "a port, 1 to 65535";
        let port = match parsed(PORT, text(PORT), rule)? {
            Some(0) => return invalid(PORT, 0, rule.to_owned()),
            port => port.unwrap_or(DEFAULT_PORT),
        };
        let taken = text(TAKEN).is_some_and(|taken| taken.eq_ignore_ascii_case("true"));
        let local = match names.local {
            Some([rank, size]) => match number(rank)?.zip(number(size)?) {
                Some((own, all)) => {
                    below(rank, own, size, all)?;
                    Some([own, all])
                }
                None => None,
            },
            None => None,
        };
        Ok(Some(Self {
            rank,
            world_size,
            address,
            port: port.saturating_add(taken.into()),
            local,
            id: text(ID),
        }))
    }

    /// The name of the job, which all its ranks have in common.
    pub(crate) fn job(&self) -> String {
        let id = self.id.as_deref().unwrap_or_default();
        format!("{} {id}", self.port)
    }
}

/// The rank, their number, and the place of rank 0.
impl fmt::Display for TcpLaunch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rank,
            world_size,
            address,
            port,
            ..
        } = self;
        write!(f, "rank {rank} of {world_size}, at {address}:{port}")
    }
}

fn missing<T>(name: &'static str, other: &'static str) -> Result<Option<T>, LaunchError> {
    Err(LaunchError::Missing { name, other })
}

fn invalid<T>(name: &'static str, value: usize, rule: String) -> Result<T, LaunchError> {
    let value = value.to_string();
    Err(LaunchError::Invalid { name, value, rule })
}

/// An error unless `value` is less than the value of the other variable.
fn below(
    name: &'static str,
    value: usize,
    other: &'static str,
    limit: usize,
) -> Result<(), LaunchError> {
    match value < limit {
        true => Ok(()),
        false => invalid(name, value, format!("less than {other}, which is {limit}")),
    }
}

fn parsed<T: FromStr>(
    name: &'static str,
    value: Option<String>,
    rule: &str,
) -> Result<Option<T>, LaunchError> {
    let Some(value) = value else {
        return Ok(None);
    };
    match value.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(LaunchError::Invalid {
            name,
            value,
            rule: rule.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> String {
        let variable = |name: &str| {
            let set = variables.iter().find(|(known, _)| *known == name);
            set.map(|(_, value)| (*value).to_owned())
        };
        match TcpLaunch::from_variables(variable) {
            Ok(Some(launch)) => format!("{launch}, local {:?}", launch.local),
            Ok(None) => "none".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn variables_of_launchers() {
        let address = ("MASTER_ADDR", "node7");
        for (variables, expected) in [
            (
                &[
                    ("RANK", "3"),
                    ("WORLD_SIZE", "4"),
                    ("LOCAL_RANK", "1"),
                    ("LOCAL_WORLD_SIZE", "2"),
                    address,
                    ("MASTER_PORT", "1234"),
                ][..],
                "rank 3 of 4, at node7:1234, local Some([1, 2])",
            ),
            // The launcher's store listens at the port.
            (
                &[
                    ("RANK", "0"),
                    ("WORLD_SIZE", "2"),
                    address,
                    ("TORCHELASTIC_USE_AGENT_STORE", "True"),
                ],
                "rank 0 of 2, at node7:29501, local None",
            ),
            (
                &[
                    ("SLURM_PROCID", "1"),
                    ("SLURM_NTASKS", "8"),
                    ("SLURM_STEP_NUM_TASKS", "4"),
                    address,
                ],
                "rank 1 of 4, at node7:29500, local None",
            ),
            // Within an allocation of Slurm.
            (
                &[
                    ("RANK", "0"),
                    ("WORLD_SIZE", "2"),
                    ("SLURM_PROCID", "1"),
                    ("SLURM_NTASKS", "8"),
                    address,
                ],
                "rank 0 of 2, at node7:29500, local None",
            ),
            (&[("RANK", "0"), ("WORLD_SIZE", "1"), address], "none"),
            (&[("RANK", "0"), ("WORLD_SIZE", "1")], "none"),
            (&[("RANK", "5")], "none"),
            // A batch script.
            (
                &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8"), address],
                "none",
            ),
            (&[address], "none"),
        ] {
            assert_eq!(found(variables), expected, "{variables:?}");
        }
    }

    #[test]
    fn variables_that_are_missing_or_not_allowed() {
        let address = ("MASTER_ADDR", "node7");
        let (rank, size) = (("RANK", "1"), ("WORLD_SIZE", "2"));
        for (variables, expected) in [
            (
                &[rank, size][..],
                "MASTER_ADDR is not set, but WORLD_SIZE is",
            ),
            (&[rank, address], "WORLD_SIZE is not set, but RANK is"),
            (&[size, address], "RANK is not set, but WORLD_SIZE is"),
            (
                &[("RANK", "2"), size, address],
                "RANK = 2: must be less than WORLD_SIZE, which is 2",
            ),
            (
                &[("RANK", "-1"), size, address],
                "RANK = -1: must be a whole number",
            ),
            (
                &[rank, ("WORLD_SIZE", "two"), address],
                "WORLD_SIZE = two: must be a whole number",
            ),
            (
                &[rank, size, address, ("MASTER_PORT", "70000")],
                "MASTER_PORT = 70000: must be a port, 1 to 65535",
            ),
            (
                &[rank, size, address, ("MASTER_PORT", "0")],
                "MASTER_PORT = 0: must be a port, 1 to 65535",
            ),
            (
                &[rank, ("WORLD_SIZE", "1000000000000"), address],
                "WORLD_SIZE = 1000000000000: must be at most 10000",
            ),
            (
                &[
                    rank,
                    size,
                    address,
                    ("LOCAL_RANK", "2"),
                    ("LOCAL_WORLD_SIZE", "2"),
                ],
                "LOCAL_RANK = 2: must be less than LOCAL_WORLD_SIZE, which is 2",
            ),
            (
                &[rank, size, address, ("LOCAL_RANK", "x")],
                "LOCAL_RANK = x: must be a whole number",
            ),
        ] {
            assert_eq!(found(variables), expected, "{variables:?}");
        }
    }
}

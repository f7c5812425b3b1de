//! Detection of a launcher from the variables that it sets.

mod tcp;

use std::fmt;

pub use tcp::TcpLaunch;

/// Variables with the number of tasks: of Open MPI; of MPICH, Intel MPI and `srun --mpi=pmi2`; and of a step of
/// Slurm. Slurm's variables count only in a process that `srun` started: see [`SLURM_RANK`].
const SIZES: [&str; 4] = [
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    SLURM_STEP_SIZE,
    SLURM_SIZE,
];
/// The number of tasks of the step, which `srun` sets.
const SLURM_STEP_SIZE: &str = "SLURM_STEP_NUM_TASKS";
/// The number of tasks of the whole allocation. A batch script has it too, and runs once.
const SLURM_SIZE: &str = "SLURM_NTASKS";
/// The index of the task. It is 0 in a batch script.
const SLURM_RANK: &str = "SLURM_PROCID";
/// The index of the task, by a launcher that may not say how many there are.
const PMIX_RANK: &str = "PMIX_RANK";

/// The variables of a launch cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// A variable is missing.
    #[error("{name} is not set, but {other} is")]
    Missing {
        /// The missing variable.
        name: &'static str,
        /// A variable that requires it.
        other: &'static str,
    },
    /// A variable has a value that is not allowed.
    #[error("{name} = {value}: must be {rule}")]
    Invalid {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The rule.
        rule: String,
    },
}

/// A job of several processes, of which a launcher started this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// The processes have the address of rank 0.
    Tcp(TcpLaunch),
    /// The processes find each other by MPI.
    Mpi(MpiLaunch),
}

impl Launch {
    /// The job of this process; `None` for a process that was started in another way, or by a launcher of one task.
    ///
    /// # Errors
    /// A variable of the job is missing or not allowed.
    pub fn detect() -> Result<Option<Self>, LaunchError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// [`Launch::detect`] with given variables.
    ///
    /// # Errors
    /// As [`Launch::detect`].
    pub fn from_variables(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, LaunchError> {
        // Of these, `MASTER_ADDR` is set by nothing else, also within an allocation of Slurm.
        if let Some(launch) = TcpLaunch::from_variables(&variable)? {
            return Ok(Some(Self::Tcp(launch)));
        }
        Ok(MpiLaunch::from_variables(variable).map(Self::Mpi))
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(launch) => launch.fmt(f),
            Self::Mpi(launch) => launch.fmt(f),
        }
    }
}

/// A job that a launcher of MPI or Slurm started this process for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpiLaunch {
    /// The variable that reveals the job.
    variable: &'static str,
    value: usize,
}

impl MpiLaunch {
    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
        let slurm_rank = number(SLURM_RANK);
        let of_rank = || Some((PMIX_RANK, number(PMIX_RANK)?)).filter(|&(_, rank)| rank > 0);
        let mut of_size = SIZES.into_iter().filter_map(|name| {
            let counts = match name {
                SLURM_STEP_SIZE => slurm_rank.is_some(),
                SLURM_SIZE => slurm_rank.is_some_and(|rank| rank > 0),
                _ => true,
            };
            Some((name, number(name).filter(|_| counts)?))
        });
        let (variable, value) = of_size.find(|&(_, tasks)| tasks > 1).or_else(of_rank)?;
        Some(Self { variable, value })
    }

    /// The number of processes, if the launcher states it.
    pub fn tasks(&self) -> Option<usize> {
        (self.variable != PMIX_RANK).then_some(self.value)
    }
}

/// The variable and its value.
impl fmt::Display for MpiLaunch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.variable, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(variables: &[(&str, &str)]) -> Option<String> {
        let found = |name: &str| {
            let set = variables.iter().find(|(known, _)| *known == name);
            set.map(|(_, value)| (*value).to_owned())
        };
        let found = Launch::from_variables(found);
        found
            .unwrap_or_else(|error| panic!("{error}"))
            .map(|launch| launch.to_string())
    }

    #[test]
    fn launchers_of_several_tasks_are_detected() {
        for (variables, expected) in [
            (
                &[("OMPI_COMM_WORLD_SIZE", "4")][..],
                "OMPI_COMM_WORLD_SIZE = 4",
            ),
            (&[("PMI_SIZE", "2"), ("PMI_RANK", "0")], "PMI_SIZE = 2"),
            (&[("PMIX_RANK", "3")], "PMIX_RANK = 3"),
            (
                &[("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_PROCID", "0")],
                "SLURM_STEP_NUM_TASKS = 8",
            ),
            (
                &[("SLURM_NTASKS", "8"), ("SLURM_PROCID", "5")],
                "SLURM_NTASKS = 8",
            ),
        ] {
            assert_eq!(detected(variables).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_batch_script_and_a_launcher_of_one_task_are_not() {
        assert_eq!(detected(&[]), None);
        assert_eq!(
            detected(&[("OMPI_COMM_WORLD_SIZE", "1"), ("PMIX_RANK", "0")]),
            None
        );
        // The allocation has 8 tasks, but the script runs once.
        assert_eq!(
            detected(&[("SLURM_NTASKS", "8"), ("SLURM_PROCID", "0")]),
            None
        );
        // A step of one task in such an allocation.
        let step = [("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")];
        assert_eq!(detected(&step), None);
    }
}

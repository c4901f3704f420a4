//! What a process finds in its environment that a launcher (srun, mpirun, a Kubernetes Job, a loop) has started: its rank, the
//! number of ranks, and how it finds the first one. A pure function of the environment.
//!
//! Sources: srun(1), "Output environment variables"; Open MPI's `mpirun(1)`; MPICH's Hydra and its PMI-1 wire protocol;
//! Kubernetes "Indexed Job"; `torchrun`. What was seen of each is in `docs/decisions`.

use std::fmt;

/// An environment: the value of a variable.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The variable of the explicit contract with the pairing line of the root.
pub const ROOT: &str = "LINERATE_ROOT";
/// The variable with a file that the root writes its pairing line to, and that the others read it from.
pub const ROOT_FILE: &str = "LINERATE_ROOT_FILE";
/// The variable with the number of hosts.
pub const SIZE: &str = "LINERATE_SIZE";
/// The variable with the rank.
pub const RANK: &str = "LINERATE_RANK";

/// The launcher that gave the rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// `LINERATE_RANK` and `LINERATE_SIZE`.
    Explicit,
    /// Open MPI's mpirun.
    OpenMpi,
    /// PMI-1: MPICH's Hydra, Intel MPI, `srun --mpi=pmi2`.
    Pmi,
    /// srun without an MPI plugin.
    Slurm,
    /// torchrun and its kind.
    Torch,
    /// A Kubernetes Indexed Job.
    Job,
    /// `LINERATE_SIZE` alone: hosts of a fleet, which the root numbers by name.
    Fleet,
}

impl Launcher {
    /// Those with a rank, the innermost first: mpirun within `sbatch` leaves the variables of the batch step in place.
    const RANKED: [Self; 6] = [
        Self::Explicit,
        Self::OpenMpi,
        Self::Pmi,
        Self::Slurm,
        Self::Torch,
        Self::Job,
    ];

    /// The variables with the rank and with the size. Both are used, or neither.
    const fn variables(self) -> (&'static str, &'static str) {
        match self {
            Self::Explicit | Self::Fleet => (RANK, SIZE),
            Self::OpenMpi => ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            Self::Pmi => ("PMI_RANK", "PMI_SIZE"),
            // SLURM_NTASKS is that of the job in a batch shell.
            Self::Slurm => ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
            Self::Torch => ("RANK", "WORLD_SIZE"),
            Self::Job => ("JOB_COMPLETION_INDEX", SIZE),
        }
    }

    /// How to start a mesh with it, when it does not say where the root is.
    const fn hint(self) -> &'static str {
        match self {
            Self::OpenMpi => {
                "start it as `linerate mesh -- mpirun ... linerate mesh`, which hands the pairing line over, or set \
                 LINERATE_ROOT_FILE to a file that all hosts share (`mpirun -x LINERATE_ROOT_FILE`)"
            }
            Self::Slurm => {
                "use `srun --mpi=pmi2`, which passes the pairing line on, or start it as `linerate mesh -- srun ... linerate mesh`"
            }
            _ => {
                "set LINERATE_ROOT to a pairing line of the root, or LINERATE_ROOT_FILE to a file that all hosts share"
            }
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, size) = self.variables();
        match self {
            Self::Fleet => write!(f, "{size}"),
            _ => write!(f, "{rank} and {size}"),
        }
    }
}

/// Where the pairing line of the root comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rendezvous {
    /// It is the value of `LINERATE_ROOT`: all ranks join the process that has printed it.
    Line(String),
    /// Rank 0 writes it to this file.
    File(String),
    /// Rank 0 puts it into the key-value space of PMI-1.
    Pmi(PmiChannel),
}

/// How the PMI server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PmiChannel {
    /// An inherited file descriptor (`PMI_FD`).
    Descriptor(i32),
    /// `host:port`, and the identifier to begin with (`PMI_PORT`, `PMI_ID`).
    Port {
        /// Where the server listens.
        at: String,
        /// What this process is to it.
        id: String,
    },
}

/// A process that a launcher has started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launched {
    /// By which variables that is known.
    pub launcher: Launcher,
    /// Its rank; none in a fleet.
    pub rank: Option<u32>,
    /// How many processes there are.
    pub size: u32,
    /// How it finds the root.
    pub rendezvous: Rendezvous,
}

/// Why the environment is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// A variable is not what it should be.
    #[error("{name} is `{value}`: expected {expected}")]
    Value {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: String,
    },
    /// A job of several nodes, but not in a step: only the first node would run it.
    #[error(
        "this is a Slurm job of {nodes} nodes, but not a step of it: only this node would take part"
    )]
    NoStep {
        /// The nodes of the job.
        nodes: u32,
    },
    /// Nothing says where the root is.
    #[error("rank {rank} of {size} (by {launcher}) cannot find the root")]
    NoRoot {
        /// The rank.
        rank: u32,
        /// How many there are.
        size: u32,
        /// By which variables.
        launcher: Launcher,
    },
    /// There is nothing to measure with.
    #[error("the launcher has started 1 process ({launcher}): a mesh needs at least 2")]
    Alone {
        /// By which variables that is known.
        launcher: Launcher,
    },
}

impl LaunchError {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Value { .. } => {
                "start all ranks by one launcher, or set the variables of LINERATE_ yourself"
            }
            Self::NoStep { .. } => {
                "start it with `srun --mpi=pmi2 -N NODES --ntasks-per-node=1 linerate mesh`"
            }
            Self::NoRoot { launcher, .. } => launcher.hint(),
            Self::Alone { .. } => {
                "start one process on each host: `--ntasks-per-node=1`, `-ppn 1`, `--map-by ppr:1:node`"
            }
        }
    }
}

/// What the launcher of this process says; none if there is none.
pub fn launched(environment: Environment<'_>) -> Result<Option<Launched>, LaunchError> {
    let Some((launcher, rank, size)) = rank_and_size(environment)? else {
        return match number(environment, "SLURM_JOB_NUM_NODES") {
            Ok(Some(nodes)) if nodes > 1 => Err(LaunchError::NoStep { nodes }),
            _ => Ok(None),
        };
    };
    if size < 2 {
        return Err(LaunchError::Alone { launcher });
    }
    let rendezvous = rendezvous(environment, launcher).ok_or(LaunchError::NoRoot {
        rank: rank.unwrap_or(0),
        size,
        launcher,
    })?;
    Ok(Some(Launched {
        launcher,
        rank,
        size,
        rendezvous,
    }))
}

fn rank_and_size(
    environment: Environment<'_>,
) -> Result<Option<(Launcher, Option<u32>, u32)>, LaunchError> {
    for launcher in Launcher::RANKED {
        let (rank_name, size_name) = launcher.variables();
        if let (Some(rank), Some(size)) = (environment(rank_name), environment(size_name)) {
            let (rank, size) = (parsed(rank_name, &rank)?, parsed(size_name, &size)?);
            if rank >= size {
                return Err(LaunchError::Value {
                    name: rank_name,
                    value: rank.to_string(),
                    expected: format!("less than {size_name}, which is {size}"),
                });
            }
            return Ok(Some((launcher, Some(rank), size)));
        }
    }
    let size = number(environment, SIZE)?;
    // Without a rank nobody can become the root.
    let joins = environment(ROOT).is_some();
    Ok(size
        .filter(|_| joins)
        .map(|size| (Launcher::Fleet, None, size)))
}

fn rendezvous(environment: Environment<'_>, launcher: Launcher) -> Option<Rendezvous> {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    if let Some(line) = set(ROOT) {
        return Some(Rendezvous::Line(line));
    }
    if let Some(file) = set(ROOT_FILE) {
        return Some(Rendezvous::File(file));
    }
    if launcher != Launcher::Pmi {
        return None;
    }
    if let Some(descriptor) = set("PMI_FD").and_then(|text| text.parse().ok()) {
        return Some(Rendezvous::Pmi(PmiChannel::Descriptor(descriptor)));
    }
    let (at, id) = (set("PMI_PORT")?, set("PMI_ID")?);
    Some(Rendezvous::Pmi(PmiChannel::Port { at, id }))
}

fn number(environment: Environment<'_>, name: &'static str) -> Result<Option<u32>, LaunchError> {
    environment(name)
        .map(|text| parsed(name, &text))
        .transpose()
}

fn parsed(name: &'static str, text: &str) -> Result<u32, LaunchError> {
    text.trim().parse().map_err(|_| LaunchError::Value {
        name,
        value: text.to_owned(),
        expected: "a number".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What an environment of `NAME=VALUE` words says.
    fn of(words: &str) -> Result<Option<Launched>, LaunchError> {
        let value = |name: &str| {
            let mut pairs = words.split(' ').filter_map(|word| word.split_once('='));
            pairs
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.to_owned())
        };
        launched(&value)
    }

    #[track_caller]
    fn rank_of(words: &str) -> (Launcher, Option<u32>, u32) {
        let launched = of(words).expect("it is accepted").expect("it is launched");
        (launched.launcher, launched.rank, launched.size)
    }

    #[test]
    fn each_launcher_is_known_by_both_of_its_variables() {
        let root = "LINERATE_ROOT_FILE=/shared/root";
        for (words, launcher) in [
            ("LINERATE_RANK=2 LINERATE_SIZE=4", Launcher::Explicit),
            (
                "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=2",
                Launcher::OpenMpi,
            ),
            ("PMI_RANK=2 PMI_SIZE=4 PMI_FD=7", Launcher::Pmi),
            (
                "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=9",
                Launcher::Slurm,
            ),
            ("RANK=2 WORLD_SIZE=4", Launcher::Torch),
            ("JOB_COMPLETION_INDEX=2 LINERATE_SIZE=4", Launcher::Job),
        ] {
            assert_eq!(rank_of(&format!("{words} {root}")), (launcher, Some(2), 4));
        }
        assert_eq!(of("HOME=/root"), Ok(None));
    }

    #[test]
    fn the_innermost_launcher_counts_and_families_are_never_mixed() {
        // mpirun within sbatch: the variables of the batch step are wrong for its ranks.
        let both = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 LINERATE_ROOT_FILE=/f";
        assert_eq!(rank_of(both), (Launcher::OpenMpi, Some(3), 4));
        // `srun --mpi=pmix` sets a rank without a size.
        let half =
            "PMIX_RANK=1 PMI_RANK=1 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 LINERATE_ROOT_FILE=/f";
        assert_eq!(rank_of(half), (Launcher::Slurm, Some(2), 4));
    }

    #[test]
    fn a_batch_shell_of_several_nodes_is_refused_and_one_of_one_node_is_not() {
        let batch = "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_NUM_NODES=4";
        assert_eq!(of(batch), Err(LaunchError::NoStep { nodes: 4 }));
        assert_eq!(
            of("SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1"),
            Ok(None)
        );
        let step = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_JOB_NUM_NODES=4";
        assert!(matches!(of(step), Err(LaunchError::Alone { .. })));
    }

    #[test]
    fn the_root_is_never_guessed() {
        let error = of("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2").expect_err("no root");
        assert_eq!(
            error.to_string(),
            "rank 1 of 2 (by OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE) cannot find the root"
        );
        assert!(
            error.hint().contains("linerate mesh -- mpirun"),
            "{}",
            error.hint()
        );
        // A node list names a host, and nothing that it could be authenticated by.
        let slurm = "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=h[1-2] SLURM_STEP_RESV_PORTS=12000";
        let error = of(slurm).expect_err("no root");
        assert!(error.hint().contains("--mpi=pmi2"), "{}", error.hint());
    }

    #[test]
    fn the_pairing_line_comes_from_the_variable_then_the_file_then_pmi() {
        let via = |words: &str| of(words).expect("accepted").expect("launched").rendezvous;
        let pmi = "PMI_RANK=0 PMI_SIZE=2 PMI_FD=7";
        assert_eq!(via(pmi), Rendezvous::Pmi(PmiChannel::Descriptor(7)));
        assert_eq!(
            via(&format!("{pmi} LINERATE_ROOT_FILE=/f")),
            Rendezvous::File("/f".to_owned())
        );
        let line = format!("{pmi} LINERATE_ROOT_FILE=/f LINERATE_ROOT=tls://a#k.t.1");
        assert_eq!(via(&line), Rendezvous::Line("tls://a#k.t.1".to_owned()));
        let port = "PMI_RANK=0 PMI_SIZE=2 PMI_PORT=h1:5000 PMI_ID=3";
        let expected = PmiChannel::Port {
            at: "h1:5000".to_owned(),
            id: "3".to_owned(),
        };
        assert_eq!(via(port), Rendezvous::Pmi(expected));
    }

    #[test]
    fn hosts_of_a_fleet_need_no_rank_if_they_are_given_the_root() {
        let fleet = "LINERATE_SIZE=3 LINERATE_ROOT=tls://a#k.t.1";
        assert_eq!(rank_of(fleet), (Launcher::Fleet, None, 3));
        assert_eq!(of("LINERATE_SIZE=3"), Ok(None));
    }

    #[test]
    fn a_rank_that_is_none_is_refused_with_its_variable() {
        for (words, name) in [
            ("LINERATE_RANK=4 LINERATE_SIZE=4", RANK),
            ("LINERATE_RANK=x LINERATE_SIZE=4", RANK),
            ("LINERATE_RANK=0 LINERATE_SIZE=-1", SIZE),
        ] {
            let error = of(words).expect_err(words);
            assert!(error.to_string().starts_with(name), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_environment_panics(words in "([A-Z_]{3,24}=[a-z0-9:/-]{0,8} ){0,8}", rank in "[0-9a-z-]{0,12}", size in "[0-9]{0,12}") {
            let _ = of(&format!("{words} PMI_RANK={rank} PMI_SIZE={size} PMI_FD={rank}"));
        }
    }
}

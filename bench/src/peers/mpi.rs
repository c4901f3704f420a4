//! A plain MPI ping-pong over TCP, with a rank in each namespace.
//!
//! Both ranks are started by one `mpirun`, which takes them for two processes of one host; without `--mca btl
//! tcp,self` they would use shared memory. Rank 1 moves into the far namespace before it begins, and
//! from there reaches its launcher only by an address of the network: PMIx listens on the loopback alone
//! unless an interface is specified (`ptl_tcp_if_include`).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cases::Place;
use crate::contest::{FAR, NEAR_NIC};
use linerate_bench_shared::running::is_on_path;

/// The command that starts both ranks, up to the program's arguments. None, with a word, where it is not here.
pub(crate) fn prepare(place: &Place, loopback: bool) -> Option<Vec<String>> {
    let built = build(&place.state).and_then(|program| {
        let rank = place.state.join("rank");
        write_script(&rank, loopback).map_err(|error| error.to_string())?;
        Ok([rank, program])
    });
    match built {
        Ok(words) => {
            let words = words.map(|word| word.display().to_string());
            Some(launcher(place, loopback).into_iter().chain(words).collect())
        }
        Err(why) => {
            eprintln!("SKIP: pingpong: Open MPI ({why}: Debian: openmpi-bin, libopenmpi-dev)");
            None
        }
    }
}

/// Compiles the program into `folder`.
fn build(folder: &Path) -> Result<std::path::PathBuf, String> {
    if let Some(missing) = ["mpicc", "mpirun"].iter().find(|one| !is_on_path(one)) {
        return Err(format!("{missing} is not here"));
    }
    let source = folder.join("mpi_pingpong.c");
    let program = folder.join("mpi_pingpong");
    fs::write(&source, include_str!("mpi_pingpong.c")).map_err(|error| error.to_string())?;
    let compiled = Command::new("mpicc")
        .arg("-O2")
        .arg("-o")
        .args([&program, &source])
        .stdin(Stdio::null())
        .status();
    match compiled {
        Ok(status) if status.success() => Ok(program),
        Ok(status) => Err(format!("mpicc ended with {status}")),
        Err(error) => Err(format!("cannot run mpicc: {error}")),
    }
}

/// Each rank runs through it: rank 1 into the far namespace.
fn write_script(file: &Path, loopback: bool) -> std::io::Result<()> {
    let hop = if loopback {
        String::new()
    } else {
        format!("[ \"$OMPI_COMM_WORLD_RANK\" = 0 ] || exec ip netns exec {FAR} \"$@\"\n")
    };
    fs::write(file, format!("#!/bin/sh\n{hop}exec \"$@\"\n"))?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o755))
}

fn launcher(place: &Place, loopback: bool) -> Vec<String> {
    let interface = if loopback { "lo" } else { NEAR_NIC };
    let network = format!("{}/24", place.address);
    let command = format!(
        "env PMIX_MCA_ptl_tcp_if_include={interface} OMPI_ALLOW_RUN_AS_ROOT=1 \
         OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 --mca pml ob1 --mca btl tcp,self \
         --mca btl_tcp_if_include {network}"
    );
    command.split_whitespace().map(str::to_owned).collect()
}

//! Stored runs for tests.

use std::path::{Path, PathBuf};

use linerate_analysis::made_up;
use linerate_analysis::record::{Header, Record};

use crate::{Log as _, Run};

/// Stores a run.
pub fn store(folder: &Path, header: &Header, records: Vec<Record>) -> PathBuf {
    let mut run = Run::create(folder, header).expect("a new run");
    for record in records {
        run.add(record).expect("a record");
    }
    folder.to_owned()
}

/// A host that is a level, as `netns:NAME`.
pub fn other_host(name: &str) -> Record {
    let Record::Hosts { remote, .. } = made_up::hosts(name) else {
        panic!("they are hosts")
    };
    Record::Peer {
        at: format!("netns:{name}"),
        local_nic: "near1".parse().expect("a name"),
        remote_nic: "third0".parse().expect("a name"),
        address: None,
        host: remote,
    }
}

/// A folder of three runs: a proof, a later experiment with another host as a level, and a search at another peer between
/// them.
pub fn three_runs(place: &Path) -> PathBuf {
    let runs = place.join("runs");
    let run = |name: &str, created, peer: &str, records| {
        let mut header = made_up::header(7, created);
        peer.clone_into(&mut header.peer);
        store(&runs.join(name), &header, records);
    };
    let mut lab = made_up::experiment("flows");
    lab.insert(2, other_host("third"));
    let mut search = made_up::search();
    search[0] = made_up::hosts("other");
    run("a-prove-7", 1_000, "netns:far", made_up::proof());
    run("b-lab-7", 3_000, "netns:far", lab);
    run("c-search-7", 2_000, "ssh://other", search);
    runs
}

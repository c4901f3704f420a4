//! Placement of jobs on a made-up host, and the queues of CPUs.

use linerate_model::build;
use linerate_model::host::{BlockDevice, Host};
use linerate_model::ids::{CpuId, CpuSet, NodeId};
use linerate_model::known::{Cause, Known};
use linerate_model::workload::MemoryPolicy;
use linerate_runtime::cli::Jobs;
use linerate_runtime::cli::place_word::{MemoryWhere, Where};

use super::place::{Site, queue_of};

fn cpus(list: &str) -> CpuSet {
    list.parse().expect("a list")
}

/// Two nodes of four CPUs; the device is on node 1, with a hardware queue for each pair of CPUs.
fn host() -> (Host, BlockDevice) {
    let mut disk = build::block("nvme0n1", "nvme");
    disk.numa_node = Known::Value(NodeId(1));
    disk.queue_cpus = Known::Value(["0-1", "2-3", "4-5", "6-7"].map(cpus).to_vec());
    (build::host().nodes(2, 4).build(), disk)
}

fn jobs(jobs: Jobs, place: Option<&str>, allowed: &str) -> Result<String, String> {
    let (host, disk) = host();
    let site = Site {
        host: &host,
        facts: Some(&disk),
        local: Known::unknown(Cause::Absent, "local_cpulist", "none"),
        allowed: cpus(allowed),
        name: disk.name.clone(),
    };
    let place: Option<Where> = place.map(|word| word.parse().expect(word));
    match site.jobs(jobs, place.as_ref(), false) {
        Ok(jobs) => {
            let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            Ok(jobs.join(" "))
        }
        Err(stop) => Err(stop.to_string()),
    }
}

#[test]
fn jobs_are_pinned_only_where_a_place_or_a_queue_decides() {
    assert_eq!(jobs(Jobs::Number(2), None, "0-7"), Ok(" ".to_owned()));
    let on_node_1 = Ok("4 5 6 7 4".to_owned());
    assert_eq!(jobs(Jobs::Number(5), Some("near"), "0-7"), on_node_1);
    let on_node_0 = Ok("0 1 2 3".to_owned());
    assert_eq!(jobs(Jobs::PerCpu, Some("far"), "0-7"), on_node_0);
    assert_eq!(jobs(Jobs::PerQueue, None, "0-7"), Ok("0 2 4 6".to_owned()));
    assert_eq!(
        jobs(Jobs::PerQueue, Some("node:1"), "0-7"),
        Ok("4 6".to_owned())
    );
}

#[test]
fn no_job_runs_outside_the_cpus_that_this_process_may_use() {
    assert_eq!(jobs(Jobs::PerCpu, None, "1,5"), Ok("1 5".to_owned()));
    assert_eq!(jobs(Jobs::PerQueue, None, "1,5"), Ok("1 5".to_owned()));
    let refused = jobs(Jobs::Number(1), Some("cpu:2"), "1,5").expect_err("outside");
    assert!(refused.contains("outside linerate's cpuset"), "{refused}");
    let refused = jobs(Jobs::Number(1), Some("near"), "1").expect_err("outside");
    assert!(refused.contains("4-7"), "{refused}");
}

#[test]
fn a_node_without_cpus_or_of_connections_is_refused() {
    let refused = jobs(Jobs::Number(1), Some("node:9"), "0-7").expect_err("no node");
    assert!(refused.contains("no NUMA node 9"), "{refused}");
    let refused = jobs(Jobs::Number(1), Some("by-rx-cpu"), "0-7").expect_err("no connection");
    assert!(refused.contains("is for connections"), "{refused}");
}

#[test]
fn buffers_are_bound_to_the_nodes_of_the_device_and_farthest_from_it() {
    let (host, disk) = host();
    let site = Site {
        host: &host,
        facts: Some(&disk),
        local: Known::Value(cpus("4-7")),
        allowed: cpus("0-7"),
        name: disk.name.clone(),
    };
    let bound = |word: Option<&str>| {
        let memory: Option<MemoryWhere> = word.map(|word| word.parse().expect(word));
        site.memory(memory.as_ref())
            .map_err(|stop| stop.to_string())
    };
    assert_eq!(bound(None), Ok(MemoryPolicy::Default));
    assert_eq!(bound(Some("near")), Ok(MemoryPolicy::Bind(vec![NodeId(1)])));
    assert_eq!(bound(Some("far")), Ok(MemoryPolicy::Bind(vec![NodeId(0)])));
    assert!(bound(Some("bind:7")).is_err());
}

#[test]
fn a_cpu_with_a_polled_queue_too_uses_it_only_for_polled_operations() {
    let queues = [cpus("0-1"), cpus("2-3"), cpus("0-3")];
    assert_eq!(queue_of(CpuId(2), &queues, false), Some(1));
    assert_eq!(queue_of(CpuId(2), &queues, true), Some(2));
    assert_eq!(queue_of(CpuId(4), &queues, false), None);
    let three = [cpus("0"), cpus("0"), cpus("0")];
    assert_eq!(queue_of(CpuId(0), &three, false), None);
}

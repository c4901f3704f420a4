//! The ceiling of the path in each combination, computed from one of its trials with its settings in place, compared
//! with the mean that was reached.

use std::net::IpAddr;

use linerate_model::ceiling::{PathFacts, ceilings_of_path, share};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::lab::Response;
use linerate_model::path::PathView;
use linerate_model::plan::End;
use linerate_model::prove::CeilingDocument;
use linerate_model::sample::Sample;
use linerate_model::setting::put;
use linerate_model::units::{BitRate, Ratio};
use linerate_model::workload::{Direction, Workload};

use super::resolve::Resolver;
use super::sorted::{ExperimentRecords, PeerRecord};
use crate::record::Header;
use crate::trial::figure::figure;

/// What ceilings of an experiment's combinations are computed from.
#[derive(Debug)]
pub(super) struct Bounds<'a> {
    header: &'a Header,
    hosts: (&'a Host, &'a Host),
    peers: Vec<PeerRecord<'a>>,
    resolver: Resolver,
}

impl<'a> Bounds<'a> {
    /// The optional settings that a host does not have.
    pub(super) fn goes_without_in_words(&self) -> Vec<String> {
        self.resolver.goes_without_in_words()
    }

    /// A setting of a level's own that its host does not have.
    pub(super) fn went_without(&self, factor: usize, level: usize) -> Option<String> {
        self.resolver.went_without(factor, level)
    }

    /// None of a run that ended before both hosts were read.
    pub(super) fn of(header: &'a Header, sorted: &ExperimentRecords<'a>) -> Option<Self> {
        let hosts = sorted.hosts?;
        let path = |local_nic, remote, remote_nic, address| PathView {
            local: hosts.0,
            remote,
            local_nic,
            remote_nic,
            ipv6: header.is_ipv6(address),
        };
        let home = path(&header.local_nic, hosts.1, &header.remote_nic, None);
        let home = Resolver::new(sorted.experiment.clone(), home);
        let resolver = (sorted.peers.iter()).fold(home, |resolver, peer| {
            let way = path(peer.local_nic, peer.host, peer.remote_nic, peer.address);
            resolver.with_other(peer.at, Ok(way))
        });
        Some(Self {
            header,
            hosts,
            peers: sorted.peers.clone(),
            resolver,
        })
    }

    /// The ceiling of a combination with these trials, and the share of it that `mean` is; none where no bound of its
    /// path is known, or its rate is none of a path.
    pub(super) fn ceiling(
        &self,
        cell: &[usize],
        samples: &[&Sample],
        mean: f64,
    ) -> Option<CeilingDocument> {
        let sample = middle(samples)?;
        let direction = direction(sample)?;
        let (path, address) = self.path(cell, sample);
        let (mut local, mut remote) = (path.local.clone(), path.remote.clone());
        for (end, key, value) in self.resolver.settings(cell).ok()? {
            let host = match end {
                End::Local => &mut local,
                End::Remote => &mut remote,
            };
            put(host, &key, &value);
        }
        let ceilings = ceilings_of_path(&PathFacts {
            local: &local,
            local_nic: path.local_nic,
            remote: &remote,
            remote_nic: path.remote_nic,
            flows: sample.spec.flows,
            direction,
            ipv6: self.header.is_ipv6(address),
            datagram_bytes: match &sample.spec.workload {
                Workload::Udp(udp) => u32::try_from(udp.datagram_bytes.as_u64()).ok(),
                _ => None,
            },
            copy_bandwidth: self.header.copy_bit_per_s.map(BitRate::from_bit_per_s),
            sample: Some(sample),
        });
        let lowest = ceilings.lowest()?;
        let (bound, reason) = if takes_turns(sample) {
            let half = BitRate::from_f64(lowest.bit_per_s.as_f64() / 2.0)?;
            let reason = format!(
                "{}; halved, because a pair sends in one direction at a time",
                lowest.reason
            );
            (half, reason)
        } else {
            (lowest.bit_per_s, lowest.reason.clone())
        };
        let reached = BitRate::from_f64(mean).and_then(|rate| share(rate, bound));
        Some(CeilingDocument {
            bit_per_s: Some(bound.as_f64()),
            share: reached.map(Ratio::as_f64),
            tolerance: lowest.bound.tolerance().0.as_f64(),
            reason,
        })
    }

    /// The ends of a combination's path, and its address where that is known.
    fn path<'s>(&'s self, cell: &[usize], sample: &'s Sample) -> (PathView<'s>, Option<IpAddr>) {
        let at = self.resolver.experiment.at(cell);
        let other = (at.peer.at).and_then(|at| self.peers.iter().find(|peer| peer.at == at));
        let (local_nic, remote, remote_nic) = match other {
            Some(other) => (other.local_nic, other.host, other.remote_nic),
            None => (
                &self.header.local_nic,
                self.hosts.1,
                &self.header.remote_nic,
            ),
        };
        // A level may aim at another address of the same host; of `@KIND` only the run knew which.
        let aimed = at.address.and_then(|address| address.parse().ok());
        let address = aimed.or_else(|| other?.address);
        let (here, there) = (&sample.local.interface, &sample.remote.interface);
        let path = PathView {
            local: self.hosts.0,
            remote,
            // A level may use another path for the data.
            local_nic: here.as_ref().unwrap_or(local_nic),
            remote_nic: there.as_ref().unwrap_or(remote_nic),
            ipv6: self.header.is_ipv6(address),
        };
        (path, address)
    }

    /// What the slower link of a combination's path signals; none where an end does not report it.
    pub(super) fn link(&self, cell: &[usize], samples: &[&Sample]) -> Option<BitRate> {
        let (path, _) = self.path(cell, middle(samples)?);
        let link = |host: &Host, nic: &NicName| {
            // Of a veth the kernel reports a rate that it does not have.
            let nic = host.nic(nic).filter(|nic| nic.kind.has_wire())?;
            nic.link_bit_per_s.get()
        };
        let here = link(path.local, path.local_nic)?;
        Some(here.min(link(path.remote, path.remote_nic)?))
    }
}

/// The direction that a trial's rate belongs to; none if no bound of a path applies to the rate.
fn direction(sample: &Sample) -> Option<Direction> {
    match &sample.spec.workload {
        workload if workload.is_bulk() => Some(sample.spec.direction),
        // One direction of a round trip.
        Workload::Pingpong(_) => Some(Direction::Forward),
        // Both directions count, and concurrent pairs use both at once.
        Workload::Transfer(_) | Workload::Diffusion(_) => Some(Direction::Bidirectional),
        _ => None,
    }
}

/// Whether data is sent there, then back, and never both at once: the rate is at most the harmonic mean of both
/// directions, which is at most half of their sum.
fn takes_turns(sample: &Sample) -> bool {
    let is_there_and_back = matches!(
        sample.spec.workload,
        Workload::Transfer(_) | Workload::Diffusion(_)
    );
    is_there_and_back && sample.spec.flows == 1
}

/// The trial whose rate is the middle one.
fn middle<'s>(samples: &[&'s Sample]) -> Option<&'s Sample> {
    let rated = samples.iter();
    let mut rated: Vec<(f64, &Sample)> = rated
        .filter_map(|sample| Some((figure(Response::Rate, sample)?, *sample)))
        .collect();
    rated.sort_by(|one, other| one.0.total_cmp(&other.0));
    rated.get(rated.len() / 2).map(|(_, sample)| *sample)
}

#[cfg(test)]
mod tests {
    use linerate_model::build;

    use crate::experiment::judge::document;
    use crate::made_up;
    use crate::record::Record;

    /// Both hosts with a wire of 40 Gb/s, and a trial of 30 Gb/s at each MTU.
    fn records() -> Vec<Record> {
        let text = "title = \"t\"\nworkload = \"stream\"\nresponse = [\"rate\", \"cpu\"]\n\
                    [[factors]]\nsetting = \"nic/@/mtu\"\nlevels = [1500, 9000]\n";
        let host = || {
            let host = build::host().nodes(1, 4);
            Box::new(host.nic("eth2", |nic| nic.gbit(40).queues(&[0])).build())
        };
        let mut records = vec![
            Record::Lab {
                experiment: Box::new(
                    crate::experiment::definition::parse(text).expect("a sound experiment"),
                ),
                include_way_in: false,
                own_hosts: false,
            },
            Record::Hosts {
                local: host(),
                remote: host(),
            },
        ];
        records.extend((0..2).map(|level| Record::Cell {
            block: 0,
            levels: vec![level],
            samples: vec![build::sample().gbit(30).build()],
            why: None,
        }));
        records
    }

    #[test]
    fn each_combination_is_held_against_the_ceiling_of_its_own_settings() {
        let mut header = made_up::header(1, 0);
        header.local_nic = "eth2".parse().expect("a name");
        header.remote_nic = header.local_nic.clone();
        let document = document(&header, &records()).expect("an experiment");
        let [rate, cpu] = &document.responses[..] else {
            panic!("two figures were asked for")
        };
        let of = |cell: usize| rate.cells[cell].ceiling.as_ref().expect("a wire bounds it");
        let gbit = |cell| of(cell).bit_per_s.expect("a rate") / 1e9;
        // The sources' figures: 40 Gb/s at 1500 carry 37.66 with timestamps.
        assert!((gbit(0) - 37.66).abs() < 0.01, "{:?}", of(0));
        assert!((gbit(1) - 39.60).abs() < 0.01, "{:?}", of(1));
        let share = of(0).share.expect("a share");
        assert!((share - 30.0 / 37.66).abs() < 0.001, "{share}");
        assert_eq!(rate.cells[0].share_in_words().as_deref(), Some("79.7 %"));
        assert!(cpu.cells.iter().all(|cell| cell.ceiling.is_none()));
    }

    /// The bounds of two hosts at 1500 bytes, the second reached at `address`.
    fn of_two_hosts(address: Option<&str>) -> [f64; 2] {
        let text = "title = \"t\"\nworkload = \"stream\"\nresponse = [\"rate\"]\n[[factors]]\nname = \"host\"\n\
                    [[factors.levels]]\nname = \"far\"\n\
                    [[factors.levels]]\nname = \"third\"\npeer.at = \"netns:third\"\n";
        let mut records = records();
        let Record::Lab { experiment, .. } = &mut records[0] else {
            panic!("it begins with the experiment")
        };
        **experiment = crate::experiment::definition::parse(text).expect("a sound experiment");
        let Record::Hosts { remote, .. } = &records[1] else {
            panic!("then come the hosts")
        };
        let third = Record::Peer {
            at: "netns:third".to_owned(),
            local_nic: "eth2".parse().expect("a name"),
            remote_nic: "eth2".parse().expect("a name"),
            address: address.map(|address| address.parse().expect("an address")),
            host: remote.clone(),
        };
        records.insert(2, third);
        let mut header = made_up::header(1, 0);
        header.local_nic = "eth2".parse().expect("a name");
        header.remote_nic = header.local_nic.clone();
        let document = document(&header, &records).expect("an experiment");
        [0, 1].map(|cell| {
            let ceiling = document.responses[0].cells[cell].ceiling.as_ref();
            ceiling
                .and_then(|one| one.bit_per_s)
                .expect("a wire bounds it")
                / 1e9
        })
    }

    #[test]
    fn a_level_that_is_another_host_is_held_against_the_ceiling_of_its_own_addresss_family() {
        // 40 Gb/s at 1500 with timestamps: 1448 of 1538 bytes, by IPv6 1428.
        let [far, third] = of_two_hosts(Some("2001:db8::3"));
        assert!((far - 37.66).abs() < 0.01, "{far}");
        assert!((third - 37.14).abs() < 0.01, "{third}");
        let [far, third] = of_two_hosts(Some("10.79.0.3"));
        assert!((far - third).abs() < 1e-9, "{far} {third}");
        // An earlier run does not contain the address.
        let [far, third] = of_two_hosts(None);
        assert!((far - third).abs() < 1e-9, "{far} {third}");
    }

    #[test]
    fn a_run_of_before_has_other_hosts_without_addresses() {
        let third = Record::Peer {
            at: "netns:third".to_owned(),
            local_nic: "eth2".parse().expect("a name"),
            remote_nic: "eth2".parse().expect("a name"),
            address: Some("10.79.0.3".parse().expect("an address")),
            host: Box::new(build::host().build()),
        };
        let mut json = serde_json::to_value(third).expect("plain data");
        assert_eq!(json["peer"]["address"], "10.79.0.3");
        let told = json["peer"].as_object_mut().expect("an object");
        told.remove("address");
        let read: Record = serde_json::from_value(json).expect("it reads");
        assert!(
            matches!(read, Record::Peer { address: None, .. }),
            "{read:?}"
        );
    }

    #[test]
    fn a_mean_above_its_ceiling_is_never_shown_as_good() {
        let mut records = records();
        for record in &mut records {
            if let Record::Cell { samples, .. } = record {
                *samples = vec![build::sample().gbit(50).build()];
            }
        }
        let mut header = made_up::header(1, 0);
        header.local_nic = "eth2".parse().expect("a name");
        header.remote_nic = header.local_nic.clone();
        let document = document(&header, &records).expect("an experiment");
        let words = document.responses[0].cells[0].share_in_words();
        assert_eq!(words.as_deref(), Some("above it: the ceiling is wrong"));
    }
}

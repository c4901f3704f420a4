//! Bytes that went over another interface than the one they were meant for. Linux answers ARP requests for any of a host's
//! addresses on every interface, and routes by the destination alone (Documentation/networking/ip-sysctl.rst, `arp_ignore` and
//! `arp_filter`; RFC 1122, 3.3.4.2, the weak host model): with two NICs in one subnet, one of them may carry everything.

use linerate_model::ids::NicName;
use linerate_model::plan::End;
use linerate_model::sample::{FlowRecord, Role, Sample, SideSample};
use linerate_model::units::Bytes;
use linerate_model::watch::Watch;
use serde::Serialize;

use crate::trial::operations::real;

/// An interface that counted less than this share of the payload did not carry it. Drivers that read their hardware's counters
/// once a second are late by up to half of a short trial.
const CARRIED_SHARE: f64 = 0.5;
/// The payload of a trial must be larger than this to judge by.
const PAYLOAD_MIN: u64 = 64 << 10;

/// Payload that an interface did not carry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Elsewhere {
    /// The end.
    pub end: End,
    /// The interface that should have carried the payload.
    pub nic: NicName,
    /// Whether it should have sent or received it.
    pub role: Role,
    /// The payload of the trial.
    pub payload_bytes: Bytes,
    /// What the interface counted, headers included.
    pub counted_bytes: Bytes,
    /// The interfaces of this end that carried at least as much instead; empty if their counters were not read.
    pub over: Vec<NicName>,
}

/// What was not carried by `nics`, the interfaces of this end and of the peer. `grown` has the bytes that each interface of this
/// end sent and received during the trial.
pub fn elsewhere(
    sample: &Sample,
    nics: (&NicName, &NicName),
    grown: &[(NicName, u64, u64)],
) -> Vec<Elsewhere> {
    let ends = [
        (End::Local, &sample.local, nics.0),
        (End::Remote, &sample.remote, nics.1),
    ];
    let mut all = Vec::new();
    for (end, side, nic) in ends {
        let Some(watch) = side.counters.value() else {
            continue;
        };
        for role in [Role::Sender, Role::Receiver] {
            let others = if end == End::Local { grown } else { &[] };
            all.extend(missing(side, watch, (end, nic, role), others));
        }
    }
    all
}

fn missing(
    side: &SideSample,
    watch: &Watch,
    (end, nic, role): (End, &NicName, Role),
    others: &[(NicName, u64, u64)],
) -> Option<Elsewhere> {
    let flows = side.flows.iter().filter(|flow| flow.role == role);
    let payload: u64 = flows
        .map(|flow| FlowRecord::total(flow).as_u64())
        .fold(0, u64::saturating_add);
    let counter = match role {
        Role::Sender => "tx_bytes",
        Role::Receiver => "rx_bytes",
    };
    let counted = watch.grown(&format!("nic/{nic}/stat/{counter}")).get()?;
    let least = real(payload) * CARRIED_SHARE;
    if payload < PAYLOAD_MIN || real(counted) >= least {
        return None;
    }
    let carried = others.iter().filter(|(name, sent, received)| {
        let grown = match role {
            Role::Sender => *sent,
            Role::Receiver => *received,
        };
        name != nic && real(grown) >= least
    });
    Some(Elsewhere {
        end,
        nic: nic.clone(),
        role,
        payload_bytes: Bytes::new(payload),
        counted_bytes: Bytes::new(counted),
        over: carried.map(|(name, ..)| name.clone()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::known::Known;

    use super::*;

    fn name(text: &str) -> NicName {
        text.parse().expect("a name")
    }

    /// A forward trial whose two interfaces counted these shares of the payload.
    fn trial(sent: u64, received: u64) -> Sample {
        let mut sample = build::sample().gbit(1).build();
        let payload = sample.remote.flows[0].total().as_u64();
        let counters = |key: &str, percent: u64| {
            let (host, _) = build::veth_pair();
            Known::Value(
                build::watch(&host)
                    .grew(key, payload / 100 * percent)
                    .build(),
            )
        };
        sample.local.counters = counters("nic/near0/stat/tx_bytes", sent);
        sample.remote.counters = counters("nic/far0/stat/rx_bytes", received);
        sample
    }

    #[test]
    fn an_interface_that_carried_the_payload_is_not_reported() {
        let found = elsewhere(&trial(105, 105), (&name("near0"), &name("far0")), &[]);
        assert_eq!(found, []);
    }

    #[test]
    fn bytes_on_another_interface_are_found_with_its_name() {
        let sample = trial(1, 105);
        let payload = sample.remote.flows[0].total().as_u64();
        let grown = [(name("near1"), payload, 0), (name("near2"), 10, payload)];
        let found = elsewhere(&sample, (&name("near0"), &name("far0")), &grown);
        let [one] = &found[..] else {
            panic!("one end: {found:?}");
        };
        assert_eq!((one.end, one.role), (End::Local, Role::Sender));
        assert_eq!(one.over, [name("near1")]);
    }

    #[test]
    fn bytes_that_arrive_at_another_interface_of_the_peer_are_found() {
        let found = elsewhere(&trial(105, 2), (&name("near0"), &name("far0")), &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].end, found[0].role), (End::Remote, Role::Receiver));
    }

    #[test]
    fn an_interface_whose_counter_was_not_read_is_not_judged() {
        let found = elsewhere(&trial(1, 1), (&name("other0"), &name("other1")), &[]);
        assert_eq!(found, []);
    }
}

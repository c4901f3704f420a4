//! How the packets of a trial are marked, so that qdiscs, filters and switches put them into a class.

use serde::{Deserialize, Serialize};

/// The marks of the packets that a trial sends: set on the sockets of each end that sends payload or requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marks {
    /// `SO_PRIORITY`. On a VLAN its egress map makes a PCP of it. Above 6 it needs CAP_NET_ADMIN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The DSCP, 0 to 63: `IP_TOS`, `IPV6_TCLASS`. Without a priority the kernel derives one from it (`rt_tos2priority`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// `SO_MARK`. It needs CAP_NET_ADMIN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<u32>,
    /// `udp`: the port of all sockets of the connecting end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_port: Option<u16>,
}

impl Marks {
    /// The highest DSCP (RFC 2474).
    pub const DSCP_MAX: u8 = 63;

    /// Whether packets are sent as usual.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{TrialSpec, Verbs};

    #[test]
    fn a_dscp_above_63_a_port_of_tcp_and_marks_over_verbs_are_refused() {
        let check = |marks: Marks, verbs: Option<Verbs>| {
            let spec = TrialSpec {
                marks,
                verbs,
                ..TrialSpec::default()
            };
            spec.check().map_err(|error| error.what)
        };
        let of = |dscp: Option<u8>, udp_port: Option<u16>| Marks {
            dscp,
            udp_port,
            ..Marks::default()
        };
        assert_eq!(check(of(Some(63), None), None), Ok(()));
        assert_eq!(check(of(Some(64), None), None), Err("the DSCP"));
        let port = check(of(None, Some(5_001)), None);
        assert_eq!(port, Err("the port of the datagrams"));
        let marked = check(of(Some(1), None), Some(Verbs::default()));
        assert_eq!(marked, Err("the marks of the packets"));
    }

    #[test]
    fn a_trial_without_marks_is_written_as_before() {
        let text = serde_json::to_string(&TrialSpec::default()).expect("JSON");
        assert!(!text.contains("marks"), "{text}");
    }
}

//! Standard counters (`ETHTOOL_MSG_STATS_GET`): of the PHY, the MAC and MAC control (IEEE 802.3 clause 30), and RMON
//! (RFC 2819). Counters that the driver does not have are left out.

use linerate_model::ids::NicName;

use super::{BIT_NAME, BIT_VALUE, BITS_BIT, BITSET_BITS, Command, Ethtool};
use crate::netlink::error::Failure;
use crate::netlink::message::{Attributes, Request};

pub(super) const GROUPS: u16 = 3;
pub(super) const GROUP: u16 = 4;
pub(super) const GROUP_ID: u16 = 2;
pub(super) const GROUP_STAT: u16 = 4;
pub(super) const HISTOGRAM_RX: u16 = 5;
pub(super) const HISTOGRAM_TX: u16 = 6;
pub(super) const BUCKET_LOW: u16 = 7;
pub(super) const BUCKET_HIGH: u16 = 8;
pub(super) const BUCKET_VALUE: u16 = 9;

/// A group: its name in a request, in our keys, and its counters' names by number.
type Group = (&'static str, &'static str, &'static [&'static str]);

/// The groups by their numbers, `ETHTOOL_STATS_*`.
pub(super) const ALL: [Group; 4] = [
    ("eth-phy", "phy", &["SymbolErrorDuringCarrier"]),
    ("eth-mac", "mac", &MAC),
    (
        "eth-ctrl",
        "ctrl",
        &[
            "MACControlFramesTransmitted",
            "MACControlFramesReceived",
            "UnsupportedOpcodesReceived",
        ],
    ),
    (
        "rmon",
        "rmon",
        &[
            "etherStatsUndersizePkts",
            "etherStatsOversizePkts",
            "etherStatsFragments",
            "etherStatsJabbers",
        ],
    ),
];

/// `ETHTOOL_A_STATS_ETH_MAC_*`, from 0.
const MAC: [&str; 22] = [
    "FramesTransmittedOK",
    "SingleCollisionFrames",
    "MultipleCollisionFrames",
    "FramesReceivedOK",
    "FrameCheckSequenceErrors",
    "AlignmentErrors",
    "OctetsTransmittedOK",
    "FramesWithDeferredXmissions",
    "LateCollisions",
    "FramesAbortedDueToXSColls",
    "FramesLostDueToIntMACXmitError",
    "CarrierSenseErrors",
    "OctetsReceivedOK",
    "FramesLostDueToIntMACRcvError",
    "MulticastFramesXmittedOK",
    "BroadcastFramesXmittedOK",
    "FramesWithExcessiveDeferral",
    "MulticastFramesReceivedOK",
    "BroadcastFramesReceivedOK",
    "InRangeLengthErrors",
    "OutOfRangeLengthField",
    "FrameTooLongErrors",
];

impl Ethtool {
    /// Every standard counter of the driver, by group and name (`mac/FramesReceivedOK`).
    pub(super) fn standard_counts(&mut self, nic: &NicName) -> Result<Vec<(String, u64)>, Failure> {
        self.read_as(Command::StatsGet, nic, 0, put_groups, parse_counts)
    }
}

pub(super) fn put_groups(request: &mut Request) {
    request.nest(GROUPS, |bitset| {
        bitset.nest(BITSET_BITS, |bits| {
            for (name, ..) in ALL {
                bits.nest(BITS_BIT, |bit| {
                    bit.put_text(BIT_NAME, name).put(BIT_VALUE, &[]);
                });
            }
        });
    });
}

pub(super) fn parse_counts(attributes: &Attributes<'_>) -> Result<Vec<(String, u64)>, Failure> {
    let mut counts = Vec::new();
    for (_, payload) in attributes.iter().filter(|(kind, _)| *kind == GROUP) {
        let group = Attributes::parse(payload)?;
        let known = group
            .u32(GROUP_ID)?
            .and_then(|id| ALL.get(usize::try_from(id).ok()?));
        // A group that was not requested, from a later kernel.
        let Some((_, key, names)) = known else {
            continue;
        };
        for (kind, payload) in group.iter() {
            let count = match kind {
                GROUP_STAT => counter(payload, names)?,
                HISTOGRAM_RX => bucket(payload, "rx")?,
                HISTOGRAM_TX => bucket(payload, "tx")?,
                _ => None,
            };
            counts.extend(count.map(|(name, value)| (format!("{key}/{name}"), value)));
        }
    }
    Ok(counts)
}

/// A counter: a nest with one attribute, whose type is the counter's number.
fn counter(payload: &[u8], names: &[&str]) -> Result<Option<(String, u64)>, Failure> {
    let nest = Attributes::parse(payload)?;
    let found = nest
        .iter()
        .find_map(|(kind, _)| Some((kind, names.get(usize::from(kind))?)));
    let Some((kind, name)) = found else {
        return Ok(None);
    };
    Ok(nest.u64(kind)?.map(|value| ((*name).to_owned(), value)))
}

/// The number of frames in a length range, named as in RMON (`etherStatsPkts65to127Octets`).
fn bucket(payload: &[u8], direction: &str) -> Result<Option<(String, u64)>, Failure> {
    let bucket = Attributes::parse(payload)?;
    let low = bucket.u32(BUCKET_LOW)?;
    let range = low.zip(bucket.u32(BUCKET_HIGH)?);
    let count = range.zip(bucket.u64(BUCKET_VALUE)?);
    Ok(count.map(|((low, high), frames)| {
        let name = format!("{direction}-etherStatsPkts{low}to{high}Octets");
        (name, frames)
    }))
}

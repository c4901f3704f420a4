//! Data center bridging over rtnetlink (`<linux/dcbnl.h>`, `dcb(8)`; IEEE 802.1Q, clauses 36 to 38).

use std::collections::BTreeSet;

use linerate_model::host::Dcb;
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::setting::Application;
use linerate_model::units::{BitRate, Bytes};

use super::error::Failure;
use super::known;
use super::message::{Attributes, Request, u16_at};
use super::response::{ResponseAttributes, numbers};
use super::socket::{Answer, Connection};
use crate::nic_control::NicValue;

const NO_DCB: &str = "the driver does not support DCB";

/// `struct dcbmsg`.
const HEADER_BYTES: usize = 4;
pub(super) const COMMAND_IEEE_SET: u8 = 20;
pub(super) const COMMAND_IEEE_GET: u8 = 21;
pub(super) const COMMAND_GET_DCBX: u8 = 22;
pub(super) const COMMAND_IEEE_DELETE: u8 = 27;
pub(super) const NAME: u16 = 1;
pub(super) const IEEE: u16 = 13;
pub(super) const DCBX: u16 = 14;
pub(super) const ETS: u16 = 1;
pub(super) const PFC: u16 = 2;
pub(super) const APP_TABLE: u16 = 3;
pub(super) const PEER_ETS: u16 = 4;
pub(super) const PEER_PFC: u16 = 5;
pub(super) const MAX_RATE: u16 = 7;
pub(super) const BUFFER: u16 = 10;
/// An entry of the application table; `DCB_ATTR_DCB_APP` since Linux 6.3, for selectors that are not in IEEE 802.1Q.
pub(super) const IEEE_APP: u16 = 1;
pub(super) const DCB_APP: u16 = 2;
/// `DCB_APP_SEL_PCP`.
const SELECTOR_PCP: u8 = 255;
/// Since Linux 6.3: the order of selectors for a priority.
pub(super) const TRUST_TABLE: u16 = 11;

/// Offsets of the eight-byte arrays in `struct ieee_ets`, and of the priorities in `struct ieee_pfc`.
pub(super) const ETS_BANDWIDTH_AT: usize = 3;
pub(super) const ETS_ALGORITHM_AT: usize = 19;
pub(super) const ETS_PRIORITY_CLASS_AT: usize = 27;
pub(super) const PFC_ENABLED_AT: usize = 1;
/// The offset of the sizes in `struct dcbnl_buffer`.
const BUFFER_SIZES_AT: usize = 8;

/// The maximum number of application entries read; the kernel's own tables have some dozens.
const APP_MAX: usize = 4_096;

/// Requests all DCB data.
pub(super) fn read(connection: &mut Connection, nic: &NicName) -> Known<Dcb> {
    let path = format!("netlink/dcb/{nic}");
    let ieee = ask(connection, nic, COMMAND_IEEE_GET);
    let dcbx = ask(connection, nic, COMMAND_GET_DCBX);
    let dcbx = known(dcbx, format!("{path}/dcbx"), NO_DCB);
    known(ieee, format!("{path}/ieee"), NO_DCB).map(|body| parse(&body, &dcbx, &path))
}

fn ask(connection: &mut Connection, nic: &NicName, command: u8) -> Result<Vec<u8>, Failure> {
    let mut request = Request::new(libc::RTM_GETDCB, &[0, command, 0, 0]);
    request.put_text(NAME, nic.as_str());
    let first = connection.ask(&request)?.into_iter().next();
    first
        .map(|Answer { body, .. }| body)
        .ok_or(Failure::Malformed("no message before the end of the dump"))
}

/// Sets one structure; its other fields keep the driver's values.
pub(super) fn set(
    connection: &mut Connection,
    nic: &NicName,
    value: &NicValue<'_>,
) -> Result<(), Failure> {
    let told = ask(connection, nic, COMMAND_IEEE_GET)?;
    let (kind, structure) = changed(&told, value)?;
    let mut request = Request::new(libc::RTM_SETDCB, &[0, COMMAND_IEEE_SET, 0, 0]);
    request.put_text(NAME, nic.as_str());
    request.nest(IEEE, |ieee| {
        ieee.put(kind, &structure);
    });
    let answers = connection.ask(&request)?;
    answers.iter().try_for_each(|answer| outcome(&answer.body))
}

/// The structure that `value` belongs to, as read, with the value in it.
fn changed(told: &[u8], value: &NicValue<'_>) -> Result<(u16, Vec<u8>), Failure> {
    let ieee = Attributes::after(told, HEADER_BYTES)?;
    let ieee = ieee.nest(IEEE)?;
    let structure = |kind| {
        let structure = ieee.bytes(kind).map(<[u8]>::to_vec);
        structure.ok_or(Failure::Kernel {
            errno: libc::EOPNOTSUPP,
            message: None,
        })
    };
    let put = |structure: &mut [u8], at: usize, bytes: &[u8]| {
        let slot = structure.get_mut(at..at + bytes.len());
        slot.map(|slot| slot.copy_from_slice(bytes))
            .ok_or(Failure::Malformed("a structure is truncated"))
    };
    match value {
        NicValue::Pfc(mask) => {
            let mut pfc = structure(PFC)?;
            put(&mut pfc, PFC_ENABLED_AT, &[*mask])?;
            Ok((PFC, pfc))
        }
        NicValue::Ets(classes) => {
            let mut ets = structure(ETS)?;
            put(&mut ets, ETS_BANDWIDTH_AT, &classes.share)?;
            put(&mut ets, ETS_ALGORITHM_AT, &classes.served)?;
            put(&mut ets, ETS_PRIORITY_CLASS_AT, &classes.of_priority)?;
            Ok((ETS, ets))
        }
        NicValue::MaxRate(rates) => {
            structure(MAX_RATE)?;
            let kbit = rates.iter().map(|rate| rate.as_bit_per_s() / 1_000);
            Ok((MAX_RATE, kbit.flat_map(u64::to_ne_bytes).collect()))
        }
        _ => Err(Failure::BadInput("not a DCB value".to_owned())),
    }
}

/// Replaces the whole application table by `wanted`. Missing entries are added first, and only then superfluous ones
/// removed, so that an intermediate table contains only entries of the old and new ones.
pub(super) fn set_applications(
    connection: &mut Connection,
    nic: &NicName,
    wanted: &BTreeSet<Application>,
) -> Result<(), Failure> {
    let before = applications(connection, nic)?;
    let first = match change_applications(connection, nic, wanted) {
        Ok(()) => return Ok(()),
        Err(failure) => failure,
    };
    match change_applications(connection, nic, &before) {
        Ok(()) => Err(first),
        Err(second) => Err(Failure::NotPutBack {
            first: Box::new(first),
            second: Box::new(second),
        }),
    }
}

fn change_applications(
    connection: &mut Connection,
    nic: &NicName,
    wanted: &BTreeSet<Application>,
) -> Result<(), Failure> {
    let now = applications(connection, nic)?;
    let missing: Vec<_> = wanted.difference(&now).copied().collect();
    ask_applications(connection, nic, COMMAND_IEEE_SET, &missing)?;
    // Some drivers have one entry per DSCP, and replaced the old one by the new.
    let now = applications(connection, nic)?;
    let surplus: Vec<_> = now.difference(wanted).copied().collect();
    ask_applications(connection, nic, COMMAND_IEEE_DELETE, &surplus)
}

fn ask_applications(
    connection: &mut Connection,
    nic: &NicName,
    command: u8,
    entries: &[Application],
) -> Result<(), Failure> {
    if entries.is_empty() {
        return Ok(());
    }
    let answers = connection.ask(&applications_request(nic, command, entries))?;
    answers.iter().try_for_each(|answer| outcome(&answer.body))
}

fn applications_request(nic: &NicName, command: u8, entries: &[Application]) -> Request {
    let mut request = Request::new(libc::RTM_SETDCB, &[0, command, 0, 0]);
    request.put_text(NAME, nic.as_str());
    request.nest(IEEE, |ieee| {
        ieee.nest(APP_TABLE, |table| {
            for entry in entries {
                let kind = if entry.selector == SELECTOR_PCP {
                    DCB_APP
                } else {
                    IEEE_APP
                };
                let [low, high] = entry.protocol.to_ne_bytes();
                table.put(kind, &[entry.selector, entry.priority, low, high]);
            }
        });
    });
    request
}

/// The application table.
fn applications(
    connection: &mut Connection,
    nic: &NicName,
) -> Result<BTreeSet<Application>, Failure> {
    let body = ask(connection, nic, COMMAND_IEEE_GET)?;
    let ieee = Attributes::after(&body, HEADER_BYTES)?.nest(IEEE)?;
    let table = ieee.nest(APP_TABLE)?;
    let entry = |(_, entry): (u16, &[u8])| {
        Ok(Application {
            selector: byte_at(entry, 0)?,
            priority: byte_at(entry, 1)?,
            protocol: u16_at(entry, 2)?,
        })
    };
    table.iter().take(APP_MAX).map(entry).collect()
}

/// The driver's result: the kernel acknowledges a refused request, and returns the error number in one byte of the
/// response (`dcbnl_ieee_set`).
fn outcome(body: &[u8]) -> Result<(), Failure> {
    let said = Attributes::after(body, HEADER_BYTES)?;
    match said.bytes(IEEE).and_then(<[u8]>::first) {
        None | Some(0) => Ok(()),
        Some(negative) => Err(Failure::Kernel {
            errno: i32::from(negative.wrapping_neg()),
            message: None,
        }),
    }
}

fn parse(body: &[u8], dcbx: &Known<Vec<u8>>, path: &str) -> Dcb {
    let ieee = ResponseAttributes::after(body, HEADER_BYTES, path, NO_DCB).nest(IEEE, "ieee");
    let ets = |at, what: &str| eight(&ieee, ETS, at, what);
    let pfc = |kind, what: &str| {
        ieee.fact(what, |attributes| {
            let enabled = |pfc: &[u8]| byte_at(pfc, PFC_ENABLED_AT).map(u32::from);
            attributes.bytes(kind).map(enabled).transpose()
        })
    };
    Dcb {
        priority_class: ets(ETS_PRIORITY_CLASS_AT, "ets/prio-tc"),
        class_bandwidth: ets(ETS_BANDWIDTH_AT, "ets/tc-bw"),
        class_algorithm: ets(ETS_ALGORITHM_AT, "ets/tc-tsa")
            .map(|all| all.into_iter().map(algorithm).collect()),
        class_max_bit_per_s: ieee.fact("maxrate", |attributes| {
            attributes.bytes(MAX_RATE).map(max_rates).transpose()
        }),
        pfc_enabled: pfc(PFC, "pfc"),
        peer_pfc_enabled: pfc(PEER_PFC, "peer-pfc"),
        peer_class_bandwidth: eight(&ieee, PEER_ETS, ETS_BANDWIDTH_AT, "peer-ets/tc-bw"),
        willing: ieee.fact("ets/willing", |attributes| {
            let willing = |ets: &[u8]| byte_at(ets, 0).map(|byte| byte != 0);
            attributes.bytes(ETS).map(willing).transpose()
        }),
        dcbx: dcbx.clone().and_then(|body| {
            let said = ResponseAttributes::after(&body, HEADER_BYTES, path, NO_DCB);
            said.u8(DCBX, "dcbx").map(dcbx_words)
        }),
        app: ieee.fact("app", |attributes| {
            let table = attributes.nest(APP_TABLE)?;
            let entries = table.iter().take(APP_MAX);
            entries
                .map(|(_, entry)| application(entry))
                .collect::<Result<_, _>>()
                .map(Some)
        }),
        trust: ieee.fact("apptrust", |attributes| {
            let Some(_) = attributes.bytes(TRUST_TABLE) else {
                return Ok(None);
            };
            let table = attributes.nest(TRUST_TABLE)?;
            let words = table.iter().take(APP_MAX);
            words
                .map(|(_, selector)| byte_at(selector, 0).map(selector_word))
                .collect::<Result<_, _>>()
                .map(Some)
        }),
        buffer_bytes: ieee.fact("buffer", |attributes| {
            attributes.bytes(BUFFER).map(buffers).transpose()
        }),
    }
}

/// An array of eight bytes within a structure.
fn eight(ieee: &ResponseAttributes<'_>, kind: u16, at: usize, what: &str) -> Known<Vec<u32>> {
    ieee.fact(what, |attributes| {
        let Some(bytes) = attributes.bytes(kind) else {
            return Ok(None);
        };
        let array = bytes
            .get(at..at + 8)
            .ok_or(Failure::Malformed("a structure is truncated"))?;
        Ok(Some(array.iter().copied().map(u32::from).collect()))
    })
}

fn byte_at(bytes: &[u8], at: usize) -> Result<u8, Failure> {
    let byte = bytes.get(at).copied();
    byte.ok_or(Failure::Malformed("a structure is truncated"))
}

/// `IEEE_8021QAZ_TSA_*`.
fn algorithm(number: u32) -> String {
    match number {
        0 => "strict".to_owned(),
        1 => "credit-based".to_owned(),
        2 => "ets".to_owned(),
        255 => "vendor".to_owned(),
        other => format!("reserved {other}"),
    }
}

/// `struct ieee_maxrate`: kb/s of each class.
fn max_rates(bytes: &[u8]) -> Result<Vec<BitRate>, Failure> {
    let words = numbers::<16>(bytes)?;
    let (pairs, _) = words.as_chunks::<2>();
    Ok(pairs
        .iter()
        .map(|[first, second]| {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&first.to_ne_bytes());
            bytes[4..].copy_from_slice(&second.to_ne_bytes());
            BitRate::from_bit_per_s(u64::from_ne_bytes(bytes).saturating_mul(1_000))
        })
        .collect())
}

/// `DCB_CAP_DCBX_*`.
fn dcbx_words(flags: u8) -> Vec<String> {
    const WORDS: [&str; 5] = ["host", "firmware", "cee", "ieee", "static"];
    let words = WORDS.iter().enumerate();
    words
        .filter(|(bit, _)| flags >> bit & 1 == 1)
        .map(|(_, word)| (*word).to_owned())
        .collect()
}

/// `struct dcb_app`: selector, priority, protocol.
fn application(entry: &[u8]) -> Result<(String, u32, u32), Failure> {
    Ok((
        selector_word(byte_at(entry, 0)?),
        u16_at(entry, 2)?.into(),
        byte_at(entry, 1)?.into(),
    ))
}

/// `IEEE_8021QAZ_APP_SEL_*` and `DCB_APP_SEL_PCP`.
fn selector_word(selector: u8) -> String {
    match selector {
        1 => "ethertype".to_owned(),
        2 => "stream-port".to_owned(),
        3 => "dgram-port".to_owned(),
        4 => "port".to_owned(),
        5 => "dscp".to_owned(),
        255 => "pcp".to_owned(),
        other => format!("selector {other}"),
    }
}

/// `struct dcbnl_buffer`: the buffer of each priority, then the size of each buffer; returned as the buffer size of
/// each priority.
fn buffers(bytes: &[u8]) -> Result<Vec<Bytes>, Failure> {
    let sizes = bytes.get(BUFFER_SIZES_AT..).unwrap_or_default();
    let sizes = numbers::<8>(sizes)?;
    let of = |priority| {
        let buffer = usize::from(byte_at(bytes, priority)?);
        let size = sizes.get(buffer).copied();
        let size = size.ok_or(Failure::Malformed(
            "a priority is mapped to a buffer that does not exist",
        ))?;
        Ok(Bytes::new(size.into()))
    };
    (0..8).map(of).collect()
}

#[cfg(test)]
mod tests;

//! The expressions of a rule (`<linux/netfilter/nf_tables.h>`): to the kernel and back.

use super::super::error::Failure;
use super::super::message::{Attributes, Request, u32_at};
use super::{ClassRule, Packets};

/// `NFTA_LIST_ELEM`; `NFTA_EXPR_NAME`, `_DATA`.
const ELEMENT: u16 = 1;
const NAME: u16 = 1;
const DATA: u16 = 2;
/// `NFT_REG_1` holds what is compared or set, `NFT_REG_VERDICT` the verdict.
const REGISTER: u32 = 1;
const VERDICT_REGISTER: u32 = 0;
/// `NFTA_META_DREG`, `_KEY`, `_SREG`; `NFT_META_*`.
const META_TO: u16 = 1;
const META_KEY: u16 = 2;
const META_FROM: u16 = 3;
const PROTOCOL: u32 = 1;
const PRIORITY: u32 = 2;
const MARK: u32 = 3;
const HARDWARE: u32 = 8;
const TRANSPORT: u32 = 16;
/// `NFTA_CMP_SREG`, `_OP`, `_DATA`; `NFT_CMP_EQ`; `NFTA_DATA_VALUE`, `_VERDICT`; `NFTA_VERDICT_CODE`.
const COMPARE_FROM: u16 = 1;
const COMPARE_HOW: u16 = 2;
const COMPARE_DATA: u16 = 3;
const EQUAL: u32 = 0;
const VALUE: u16 = 1;
const VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
/// `NF_ACCEPT`.
const ACCEPT: u32 = 1;
/// `NFTA_IMMEDIATE_DREG`, `_DATA`.
const IMMEDIATE_TO: u16 = 1;
const IMMEDIATE_DATA: u16 = 2;
/// `NFTA_PAYLOAD_DREG`, `_BASE`, `_OFFSET`, `_LEN`; `NFT_PAYLOAD_*_HEADER`.
const PAYLOAD_TO: u16 = 1;
const PAYLOAD_BASE: u16 = 2;
const PAYLOAD_OFFSET: u16 = 3;
const PAYLOAD_LENGTH: u16 = 4;
const LINK_HEADER: u32 = 0;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// `NFTA_BITWISE_SREG`, `_DREG`, `_LEN`, `_MASK`, `_XOR`.
const BITWISE_FROM: u16 = 1;
const BITWISE_TO: u16 = 2;
const BITWISE_LENGTH: u16 = 3;
const BITWISE_MASK: u16 = 4;
const BITWISE_XOR: u16 = 5;

/// `ARPHRD_ETHER`; EtherTypes; protocols (`IPPROTO_*`).
const ETHERNET: u16 = 1;
const VLAN: u16 = 0x8100;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// The offsets of the EtherType and of the tag's ID in an Ethernet header with a tag.
const ETHERTYPE_AT: u32 = 12;
const VLAN_ID_AT: u32 = 14;

/// One expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expression {
    /// `meta load`.
    Meta(u32),
    /// `payload load`: base, offset, length.
    Payload(u32, u32, u32),
    /// `bitwise`: `and` with these bytes.
    Mask(Vec<u8>),
    /// `cmp eq`.
    Equal(Vec<u8>),
    /// `immediate` of 32 bits, and the register.
    Immediate(u32),
    /// `meta set priority`.
    SetPriority,
    /// `immediate` of a verdict: accept.
    Accept,
}

impl Expression {
    pub(super) fn put_all(all: &[Self], list: &mut Request) {
        for one in all {
            list.nest(ELEMENT, |element| one.put(element));
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Meta(_) | Self::SetPriority => "meta",
            Self::Payload(..) => "payload",
            Self::Mask(_) => "bitwise",
            Self::Equal(_) => "cmp",
            Self::Immediate(_) | Self::Accept => "immediate",
        }
    }

    fn put(&self, element: &mut Request) {
        element.put_text(NAME, self.name());
        element.nest(DATA, |data| match self {
            Self::Meta(key) => put_numbers(data, &[(META_KEY, *key), (META_TO, REGISTER)]),
            Self::SetPriority => {
                put_numbers(data, &[(META_KEY, PRIORITY), (META_FROM, REGISTER)]);
            }
            Self::Payload(base, offset, length) => put_numbers(
                data,
                &[
                    (PAYLOAD_TO, REGISTER),
                    (PAYLOAD_BASE, *base),
                    (PAYLOAD_OFFSET, *offset),
                    (PAYLOAD_LENGTH, *length),
                ],
            ),
            Self::Mask(mask) => {
                let length = u32::try_from(mask.len()).unwrap_or(0);
                put_numbers(
                    data,
                    &[
                        (BITWISE_FROM, REGISTER),
                        (BITWISE_TO, REGISTER),
                        (BITWISE_LENGTH, length),
                    ],
                );
                put_value(data, BITWISE_MASK, mask);
                put_value(data, BITWISE_XOR, &vec![0; mask.len()]);
            }
            Self::Equal(value) => {
                put_numbers(data, &[(COMPARE_FROM, REGISTER), (COMPARE_HOW, EQUAL)]);
                put_value(data, COMPARE_DATA, value);
            }
            Self::Immediate(value) => {
                put_numbers(data, &[(IMMEDIATE_TO, REGISTER)]);
                put_value(data, IMMEDIATE_DATA, &value.to_ne_bytes());
            }
            Self::Accept => {
                put_numbers(data, &[(IMMEDIATE_TO, VERDICT_REGISTER)]);
                data.nest(IMMEDIATE_DATA, |value| {
                    value.nest(VERDICT, |verdict| {
                        verdict.put(VERDICT_CODE, &ACCEPT.to_be_bytes());
                    });
                });
            }
        });
    }

    /// The expression of a list's element; none if linerate makes no such expression.
    fn parse(element: &[u8]) -> Result<Option<Self>, Failure> {
        let element = Attributes::parse(element)?;
        let data = element.nest(DATA)?;
        let number = |kind| number(&data, kind);
        let is_ours = |kind| number(kind).ok().flatten() == Some(REGISTER);
        let value = |kind| -> Result<Option<Vec<u8>>, Failure> {
            let value = data.nest(kind)?;
            Ok(value.bytes(VALUE).map(<[u8]>::to_vec))
        };
        Ok(match element.text(NAME)?.as_deref() {
            Some("meta") if is_ours(META_TO) => number(META_KEY)?.map(Self::Meta),
            Some("meta") if is_ours(META_FROM) => {
                (number(META_KEY)? == Some(PRIORITY)).then_some(Self::SetPriority)
            }
            Some("payload") if is_ours(PAYLOAD_TO) => {
                let parts = (
                    number(PAYLOAD_BASE)?,
                    number(PAYLOAD_OFFSET)?,
                    number(PAYLOAD_LENGTH)?,
                );
                match parts {
                    (Some(base), Some(offset), Some(length)) => {
                        Some(Self::Payload(base, offset, length))
                    }
                    _ => None,
                }
            }
            Some("bitwise") if is_ours(BITWISE_FROM) && is_ours(BITWISE_TO) => {
                let xor = value(BITWISE_XOR)?.unwrap_or_default();
                let mask = value(BITWISE_MASK)?.map(Self::Mask);
                mask.filter(|_| xor.iter().all(|byte| *byte == 0))
            }
            Some("cmp") if is_ours(COMPARE_FROM) && number(COMPARE_HOW)? == Some(EQUAL) => {
                value(COMPARE_DATA)?.map(Self::Equal)
            }
            Some("immediate") if is_ours(IMMEDIATE_TO) => {
                let value = value(IMMEDIATE_DATA)?.filter(|value| value.len() == 4);
                value
                    .map(|value| u32_at(&value, 0).map(Self::Immediate))
                    .transpose()?
            }
            Some("immediate") if number(IMMEDIATE_TO)? == Some(VERDICT_REGISTER) => {
                let verdict = data.nest(IMMEDIATE_DATA)?.nest(VERDICT)?;
                let code = self::number(&verdict, VERDICT_CODE)?;
                (code == Some(ACCEPT)).then_some(Self::Accept)
            }
            _ => None,
        })
    }
}

/// A number in network byte order.
fn number(attributes: &Attributes<'_>, kind: u16) -> Result<Option<u32>, Failure> {
    let bytes = attributes.bytes(kind);
    let number = bytes.map(|bytes| u32_at(bytes, 0)).transpose()?;
    Ok(number.map(u32::from_be))
}

fn put_numbers(data: &mut Request, numbers: &[(u16, u32)]) {
    for (kind, number) in numbers {
        data.put(*kind, &number.to_be_bytes());
    }
}

fn put_value(data: &mut Request, kind: u16, value: &[u8]) {
    data.nest(kind, |nest| {
        nest.put(VALUE, value);
    });
}

/// One rule of the kernel: some rules take several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KernelRule {
    matches: Match,
    class: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Match {
    Priority(u32),
    Mark(u32),
    Vlan(u16),
    Dscp4(u8),
    Dscp6(u8),
    /// Protocol, offset of the port in the header, port.
    Port(u8, u32, u16),
}

impl KernelRule {
    /// Those that make up `rule`.
    pub(super) fn all(rule: ClassRule) -> Vec<Self> {
        let matches = match rule.packets {
            Packets::Priority(number) => vec![Match::Priority(number)],
            Packets::Mark(number) => vec![Match::Mark(number)],
            Packets::Vlan(id) => vec![Match::Vlan(id)],
            Packets::Dscp(number) => vec![Match::Dscp4(number), Match::Dscp6(number)],
            Packets::Port(port) => [TCP, UDP]
                .into_iter()
                .flat_map(|protocol| [0, 2].map(|at| Match::Port(protocol, at, port)))
                .collect(),
        };
        let class = rule.class;
        let rules = matches.into_iter().map(|matches| Self { matches, class });
        rules.collect()
    }

    /// The rule whose first one it is; none if it is a later one.
    pub(super) fn of(self) -> Option<ClassRule> {
        let packets = match self.matches {
            Match::Priority(number) => Packets::Priority(number),
            Match::Mark(number) => Packets::Mark(number),
            Match::Vlan(id) => Packets::Vlan(id),
            Match::Dscp4(number) => Packets::Dscp(number),
            Match::Port(TCP, 0, port) => Packets::Port(port),
            Match::Port(..) | Match::Dscp6(_) => return None,
        };
        let class = self.class;
        Some(ClassRule { packets, class })
    }

    pub(super) fn expressions(self) -> Vec<Expression> {
        use Expression::{Accept, Equal, Immediate, Mask, Meta, Payload, SetPriority};
        let protocol = |number: u16| [Meta(PROTOCOL), Equal(number.to_be_bytes().to_vec())];
        let mut all = match self.matches {
            Match::Priority(number) => vec![Meta(PRIORITY), Equal(number.to_ne_bytes().to_vec())],
            Match::Mark(number) => vec![Meta(MARK), Equal(number.to_ne_bytes().to_vec())],
            Match::Vlan(id) => vec![
                Meta(HARDWARE),
                Equal(ETHERNET.to_ne_bytes().to_vec()),
                Payload(LINK_HEADER, ETHERTYPE_AT, 2),
                Equal(VLAN.to_be_bytes().to_vec()),
                Payload(LINK_HEADER, VLAN_ID_AT, 2),
                Mask(vec![0x0f, 0xff]),
                Equal(id.to_be_bytes().to_vec()),
            ],
            // The upper six bits of the second byte, and of the bits after the version.
            Match::Dscp4(number) => Vec::from(protocol(IPV4))
                .into_iter()
                .chain([
                    Payload(NETWORK_HEADER, 1, 1),
                    Mask(vec![0xfc]),
                    Equal(vec![number << 2]),
                ])
                .collect(),
            Match::Dscp6(number) => Vec::from(protocol(IPV6))
                .into_iter()
                .chain([
                    Payload(NETWORK_HEADER, 0, 2),
                    Mask(vec![0x0f, 0xc0]),
                    Equal((u16::from(number) << 6).to_be_bytes().to_vec()),
                ])
                .collect(),
            Match::Port(protocol, at, port) => vec![
                Meta(TRANSPORT),
                Equal(vec![protocol]),
                Payload(TRANSPORT_HEADER, at, 2),
                Equal(port.to_be_bytes().to_vec()),
            ],
        };
        all.extend([Immediate(self.class), SetPriority, Accept]);
        all
    }

    /// The rule in the attributes of a dump; none if linerate makes no such rule.
    pub(super) fn parse(
        attributes: &Attributes<'_>,
        expressions: u16,
    ) -> Result<Option<Self>, Failure> {
        let list = attributes.nest(expressions)?;
        let found = list.iter().map(|(_, element)| Expression::parse(element));
        let found: Option<Vec<Expression>> = found.collect::<Result<_, Failure>>()?;
        Ok(found.and_then(|found| {
            let rule = Self::guess(&found)?;
            (rule.expressions() == found).then_some(rule)
        }))
    }

    /// The only rule that these expressions can be.
    fn guess(found: &[Expression]) -> Option<Self> {
        use Expression::{Equal, Immediate, Meta};
        let class = found.iter().find_map(|one| match one {
            Immediate(class) => Some(*class),
            _ => None,
        })?;
        let mut compared = found.iter().filter_map(|one| match one {
            Equal(bytes) => Some(bytes.as_slice()),
            _ => None,
        });
        let (first, last) = (compared.next()?, compared.next_back());
        let word = |bytes: &[u8]| u32_at(bytes, 0).ok();
        let short = |bytes: Option<&[u8]>| Some(u16::from_be_bytes(bytes?.try_into().ok()?));
        let matches = match found.first()? {
            Meta(PRIORITY) => Match::Priority(word(first)?),
            Meta(MARK) => Match::Mark(word(first)?),
            Meta(HARDWARE) => Match::Vlan(short(last)?),
            Meta(PROTOCOL) if *first == IPV4.to_be_bytes() => Match::Dscp4(last?.first()? >> 2),
            Meta(PROTOCOL) => Match::Dscp6(u8::try_from(short(last)? >> 6 & 0x3f).ok()?),
            Meta(TRANSPORT) => {
                let at = found.iter().find_map(|one| match one {
                    Expression::Payload(_, at, _) => Some(*at),
                    _ => None,
                });
                Match::Port(*first.first()?, at?, short(last)?)
            }
            _ => return None,
        };
        Some(Self { matches, class })
    }
}

#[cfg(test)]
pub(super) const NUMBERS: &[(&str, u16)] = &[
    ("NFTA_LIST_ELEM", ELEMENT),
    ("NFTA_EXPR_NAME", NAME),
    ("NFTA_EXPR_DATA", DATA),
    ("NFT_REG_1", 1),
    ("NFTA_META_DREG", META_TO),
    ("NFTA_META_KEY", META_KEY),
    ("NFTA_META_SREG", META_FROM),
    ("NFT_META_PROTOCOL", 1),
    ("NFT_META_PRIORITY", 2),
    ("NFT_META_MARK", 3),
    ("NFT_META_IIFTYPE", 8),
    ("NFT_META_L4PROTO", 16),
    ("NFTA_CMP_SREG", COMPARE_FROM),
    ("NFTA_CMP_OP", COMPARE_HOW),
    ("NFTA_CMP_DATA", COMPARE_DATA),
    ("NFTA_DATA_VALUE", VALUE),
    ("NFTA_DATA_VERDICT", VERDICT),
    ("NFTA_VERDICT_CODE", VERDICT_CODE),
    ("NFTA_IMMEDIATE_DREG", IMMEDIATE_TO),
    ("NFTA_IMMEDIATE_DATA", IMMEDIATE_DATA),
    ("NFTA_PAYLOAD_DREG", PAYLOAD_TO),
    ("NFTA_PAYLOAD_BASE", PAYLOAD_BASE),
    ("NFTA_PAYLOAD_OFFSET", PAYLOAD_OFFSET),
    ("NFTA_PAYLOAD_LEN", PAYLOAD_LENGTH),
    ("NFT_PAYLOAD_NETWORK_HEADER", 1),
    ("NFT_PAYLOAD_TRANSPORT_HEADER", 2),
    ("NFTA_BITWISE_SREG", BITWISE_FROM),
    ("NFTA_BITWISE_DREG", BITWISE_TO),
    ("NFTA_BITWISE_LEN", BITWISE_LENGTH),
    ("NFTA_BITWISE_MASK", BITWISE_MASK),
    ("NFTA_BITWISE_XOR", BITWISE_XOR),
];

//! Which packets of an interface go to which class of its root qdisc, as text: `priority 1 -> 1:10; vlan 10 -> 1:20`.

use std::fmt;

/// The maximum number of rules: one batch of netlink messages must hold them.
const CLASS_RULES_MAX: usize = 48;

/// One rule. The first one that matches a packet chooses its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassRule {
    /// The packets.
    pub packets: Packets,
    /// Their class, `1:10` as `0x0001_0010`; below major number 0, their priority, by which `mqprio` has a class.
    pub class: u32,
}

/// What a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packets {
    /// The socket priority (`SO_PRIORITY`).
    Priority(u32),
    /// The VLAN ID, of a tag in the packet or for the NIC.
    Vlan(u16),
    /// The DSCP, of IPv4 and IPv6.
    Dscp(u8),
    /// The source or destination port, of TCP and UDP.
    Port(u16),
    /// The mark (`SO_MARK`, netfilter).
    Mark(u32),
}

/// The names of DSCPs (RFC 2474, RFC 2597, RFC 3246, RFC 5865, RFC 8622), as nft(8) has them.
const DSCP: [(&str, u8); 23] = [
    ("cs0", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];
/// The highest DSCP, and the highest VLAN ID.
const DSCP_MAX: u8 = 63;
const VLAN_MAX: u16 = 4094;

/// Its name, or its number if it has none.
pub fn dscp_word(dscp: u8) -> String {
    let named = DSCP.iter().find(|(_, own)| *own == dscp);
    named.map_or_else(|| dscp.to_string(), |(name, _)| (*name).to_owned())
}

/// A DSCP by its name or number.
pub fn parse_dscp(word: &str) -> Option<u8> {
    let named = DSCP
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(word));
    let number = named.map(|(_, number)| *number);
    number
        .or_else(|| number_of(word)?.try_into().ok())
        .filter(|dscp| *dscp <= DSCP_MAX)
}

fn number_of(word: &str) -> Option<u32> {
    match word.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u32::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => word.parse().ok().filter(|_| !word.starts_with('+')),
    }
}

/// A class `MAJOR:MINOR`, hexadecimal as in tc(8).
fn parse_class(word: &str) -> Option<u32> {
    let half = |digits: &str| {
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u16::from_str_radix(digits, 16).ok();
        number.filter(|_| is_hex)
    };
    let (major, minor) = word.split_once(':')?;
    let minor = half(minor).filter(|minor| *minor != 0)?;
    Some(u32::from(half(major)?) << 16 | u32::from(minor))
}

impl ClassRule {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [kind, value, "->", class] = words[..] else {
            return None;
        };
        let short = |max: u16| {
            let number = u16::try_from(number_of(value)?).ok()?;
            (1..=max).contains(&number).then_some(number)
        };
        let packets = match kind {
            "priority" => Packets::Priority(number_of(value)?),
            "mark" => Packets::Mark(number_of(value)?),
            "vlan" => Packets::Vlan(short(VLAN_MAX)?),
            "port" => Packets::Port(short(u16::MAX)?),
            "dscp" => Packets::Dscp(parse_dscp(value)?),
            _ => return None,
        };
        let class = parse_class(class)?;
        Some(Self { packets, class })
    }
}

impl fmt::Display for Packets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Priority(number) => write!(f, "priority {number}"),
            Self::Mark(number) => write!(f, "mark {number}"),
            Self::Vlan(id) => write!(f, "vlan {id}"),
            Self::Port(port) => write!(f, "port {port}"),
            Self::Dscp(number) => write!(f, "dscp {}", dscp_word(*number)),
        }
    }
}

impl fmt::Display for ClassRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = (self.class >> 16, self.class & 0xffff);
        write!(f, "{} -> {major:x}:{minor:x}", self.packets)
    }
}

/// Rules as text; empty without any.
pub fn class_rule_words(rules: &[ClassRule]) -> String {
    let words: Vec<String> = rules.iter().map(ToString::to_string).collect();
    words.join("; ")
}

/// Parses the text of [`class_rule_words`], or `none`. The same packets have one class.
pub fn parse_class_rules(text: &str) -> Option<Vec<ClassRule>> {
    if matches!(text.trim(), "" | "none") {
        return Some(Vec::new());
    }
    let rules: Option<Vec<ClassRule>> = text.split(';').map(ClassRule::parse).collect();
    let rules = rules.filter(|rules| rules.len() <= CLASS_RULES_MAX)?;
    let is_new = |(at, rule): (usize, &ClassRule)| {
        !rules[..at].iter().any(|one| one.packets == rule.packets)
    };
    rules.iter().enumerate().all(is_new).then_some(rules)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rules_are_printed_as_they_are_parsed() {
        for (text, printed) in [
            (
                "priority 1 -> 1:10; vlan 10 -> 1:20; dscp af21 -> 1:20; port 5001 -> 1:30; mark 1 -> 1:30",
                "priority 1 -> 1:10; vlan 10 -> 1:20; dscp af21 -> 1:20; port 5001 -> 1:30; mark 1 -> 1:30",
            ),
            ("dscp 18->1:1", ""),
            (
                " dscp  18 ->  1:A ;mark 0x10 -> ffff:1",
                "dscp af21 -> 1:a; mark 16 -> ffff:1",
            ),
            ("dscp 9 -> 1:1", "dscp 9 -> 1:1"),
            ("vlan 10 -> 0:f", "vlan 10 -> 0:f"),
        ] {
            let rules = parse_class_rules(text);
            let rules = rules.map(|rules| class_rule_words(&rules));
            assert_eq!(rules.unwrap_or_default(), printed, "{text}");
        }
        assert_eq!(parse_class_rules("none"), Some(Vec::new()));
        assert_eq!(parse_class_rules(""), Some(Vec::new()));
        for wrong in [
            "priority 1",
            "priority 1 -> 1:0",
            "priority 1 -> 10",
            "priority -1 -> 1:1",
            "priority +1 -> 1:1",
            "priority 1 -> 1:+1",
            "vlan 0 -> 1:1",
            "vlan 4095 -> 1:1",
            "dscp 64 -> 1:1",
            "dscp af99 -> 1:1",
            "port 0 -> 1:1",
            "port 65536 -> 1:1",
            "port 1 -> 1:1; port 1 -> 1:2",
            "port 1 -> 1:1;",
            "none; port 1 -> 1:1",
            "address 1 -> 1:1",
        ] {
            assert_eq!(parse_class_rules(wrong), None, "{wrong}");
        }
        let many = |count: u32| {
            let rules = (0..count).map(|number| format!("mark {number} -> 1:1"));
            parse_class_rules(&rules.collect::<Vec<_>>().join("; "))
        };
        assert!(many(48).is_some() && many(49).is_none());
    }

    fn any_rule() -> impl Strategy<Value = ClassRule> {
        let packets = prop_oneof![
            any::<u32>().prop_map(Packets::Priority),
            any::<u32>().prop_map(Packets::Mark),
            (1..=VLAN_MAX).prop_map(Packets::Vlan),
            (1u16..).prop_map(Packets::Port),
            (0..=DSCP_MAX).prop_map(Packets::Dscp),
        ];
        (packets, 0u32..0x1_0000, 1u32..0x1_0000).prop_map(|(packets, major, minor)| ClassRule {
            packets,
            class: major << 16 | minor,
        })
    }

    proptest! {
        #[test]
        fn rules_read_back_as_they_were_printed(mut rules in proptest::collection::vec(any_rule(), 0..48)) {
            let mut seen: Vec<Packets> = Vec::new();
            rules.retain(|rule| {
                let is_new = !seen.contains(&rule.packets);
                seen.push(rule.packets);
                is_new
            });
            prop_assert_eq!(parse_class_rules(&class_rule_words(&rules)), Some(rules));
        }

        #[test]
        fn no_words_panic(words in "((priority|vlan|dscp|port|mark) [0-9a-fx+]{1,6} -> [0-9a-f]{0,5}:[0-9a-f]{0,5};?){0,3}|.{0,20}") {
            let _ = parse_class_rules(&words);
        }
    }
}

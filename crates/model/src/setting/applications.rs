//! The priority of applications' packets (IEEE 802.1Q, application priority table), in dcb-app(8) syntax.

use std::collections::BTreeSet;

use crate::host::Dcb;
use crate::known::Known;

/// One entry of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Application {
    /// The selector, by the kernel's numbers (`IEEE_8021QAZ_APP_SEL_*`, `DCB_APP_SEL_PCP`).
    pub selector: u8,
    /// The protocol: an Ethernet type, a port, a DSCP, or a PCP with DEI above.
    pub protocol: u16,
    /// The priority of matching packets.
    pub priority: u8,
}

/// `IEEE_8021QAZ_APP_SEL_ETHERTYPE`; type 0 matches every packet without another entry.
const ETHERTYPE: u8 = 1;
/// `IEEE_8021QAZ_APP_SEL_DSCP`.
const DSCP: u8 = 5;
/// `DCB_APP_SEL_PCP`.
const PCP: u8 = 255;
/// The drop-eligible bit of a PCP.
const DEI: u16 = 8;

/// Each selector: its number, its name in dcb-app(8), its name in [`Dcb::app`].
const SELECTORS: [(u8, &str, &str); 6] = [
    (ETHERTYPE, "ethtype-prio", "ethertype"),
    (2, "stream-port-prio", "stream-port"),
    (3, "dgram-port-prio", "dgram-port"),
    (4, "port-prio", "port"),
    (DSCP, "dscp-prio", "dscp"),
    (PCP, "pcp-prio", "pcp"),
];
/// The name for an Ethernet type of 0.
const DEFAULT: &str = "default-prio";

/// The table of a NIC, as text of [`application_words`].
pub(super) fn applications_of(dcb: &Dcb) -> Known<String> {
    dcb.app.clone().and_then(|table| {
        let entry = |(selector, protocol, priority): &(String, u32, u32)| {
            let known = SELECTORS.iter().find(|(.., word)| word == selector);
            Some(Application {
                selector: known?.0,
                protocol: u16::try_from(*protocol).ok()?,
                priority: u8::try_from(*priority).ok()?,
            })
        };
        let all: Option<BTreeSet<Application>> = table.iter().map(entry).collect();
        let why = "the table has an entry of a kind that linerate does not know";
        all.map_or_else(
            || Known::unknown(crate::known::Cause::Unreadable, "dcb/app", why),
            |all| Known::Value(application_words(&all)),
        )
    })
}

/// The whole table as text: `default-prio 0 ethtype-prio 0x8915:3 dscp-prio 26:3 46:5`.
pub fn application_words(table: &BTreeSet<Application>) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut part = "";
    for entry in table {
        let Application {
            selector,
            protocol,
            priority,
        } = *entry;
        let known = SELECTORS.iter().find(|(number, ..)| *number == selector);
        let (own, word) = match (selector, protocol) {
            (ETHERTYPE, 0) => (DEFAULT, priority.to_string()),
            (ETHERTYPE, _) => (SELECTORS[0].1, format!("{protocol:#x}:{priority}")),
            (PCP, _) => {
                let dei = if protocol & DEI == 0 { "nd" } else { "de" };
                (
                    SELECTORS[5].1,
                    format!("{}{dei}:{priority}", protocol % DEI),
                )
            }
            _ => match known {
                Some((_, word, _)) => (*word, format!("{protocol}:{priority}")),
                // Unreachable: neither parsed text nor a NIC's table contains such an entry.
                None => continue,
            },
        };
        if own != part {
            words.push(own.to_owned());
            part = own;
        }
        words.push(word);
    }
    words.join(" ")
}

/// Parses the text of [`application_words`].
pub fn parse_applications(words: &str) -> Option<BTreeSet<Application>> {
    let mut table = BTreeSet::new();
    let mut part = None;
    for word in words.split_whitespace() {
        if word == DEFAULT || SELECTORS.iter().any(|(_, own, _)| *own == word) {
            part = Some(word);
            continue;
        }
        let known = SELECTORS.iter().find(|(_, own, _)| Some(*own) == part);
        let (selector, protocol, priority) = match (part?, known) {
            (_, Some((selector, ..))) => {
                let (protocol, priority) = word.split_once(':')?;
                (*selector, parse_protocol(*selector, protocol)?, priority)
            }
            (_, None) => (ETHERTYPE, 0, word),
        };
        let priority: u8 = priority.parse().ok().filter(|priority| *priority < 8)?;
        table.insert(Application {
            selector,
            protocol,
            priority,
        });
    }
    Some(table)
}

fn parse_protocol(selector: u8, word: &str) -> Option<u16> {
    if selector == PCP {
        let (pcp, dei) = match (word.strip_suffix("nd"), word.strip_suffix("de")) {
            (Some(pcp), _) => (pcp, 0),
            (_, Some(pcp)) => (pcp, DEI),
            _ => return None,
        };
        let pcp: u16 = pcp.parse().ok().filter(|pcp| *pcp < DEI)?;
        return Some(pcp | dei);
    }
    let number: u16 = match word.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok()?,
        None => word.parse().ok()?,
    };
    let most = if selector == DSCP { 63 } else { u16::MAX };
    let least = u16::from(selector == ETHERTYPE);
    (least..=most).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;

    const WORDS: &str = "default-prio 0 ethtype-prio 0x8915:3 stream-port-prio 3260:4 \
        dscp-prio 26:3 46:5 pcp-prio 3nd:3 3de:2";

    #[test]
    fn a_table_is_told_in_the_words_of_dcb_and_what_is_none_is_refused() {
        let table = parse_applications(WORDS).expect("words");
        assert_eq!(table.len(), 7);
        assert_eq!(application_words(&table), WORDS);
        assert_eq!(parse_applications(""), Some(BTreeSet::new()));
        for wrong in [
            "26:3",
            "dscp-prio 64:3",
            "dscp-prio 26:8",
            "dscp-prio 26",
            "ethtype-prio 0:1",
            "pcp-prio 8nd:1",
            "pcp-prio 3:1",
            "default-prio 0:1",
            "port-prio 65536:1",
        ] {
            assert_eq!(parse_applications(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_known_of_a_card_is_told_in_the_words_that_set_it() {
        let entry = |selector: &str, protocol, priority| (selector.to_owned(), protocol, priority);
        let dcb = Dcb {
            app: Known::Value(vec![
                entry("pcp", 11, 2),
                entry("dscp", 26, 3),
                entry("ethertype", 0, 1),
            ]),
            ..Dcb::default()
        };
        let words = "default-prio 1 dscp-prio 26:3 pcp-prio 3de:2";
        assert_eq!(applications_of(&dcb), Known::Value(words.to_owned()));
        let strange = Dcb {
            app: Known::Value(vec![entry("selector 9", 1, 1)]),
            ..Dcb::default()
        };
        assert!(applications_of(&strange).gap().is_some());
    }

    fn any_entry() -> impl Strategy<Value = Application> {
        let entry = |selector, protocol, priority| Application {
            selector,
            protocol,
            priority,
        };
        prop_oneof![
            (1u8..5, any::<u16>(), 0u8..8).prop_map(move |(s, p, priority)| entry(s, p, priority)),
            (0u16..64, 0u8..8).prop_map(move |(p, priority)| entry(DSCP, p, priority)),
            (0u16..16, 0u8..8).prop_map(move |(p, priority)| entry(PCP, p, priority)),
        ]
    }

    proptest! {
        #[test]
        fn a_table_is_what_its_words_tell(table in btree_set(any_entry(), 0..12)) {
            prop_assert_eq!(parse_applications(&application_words(&table)), Some(table));
        }

        #[test]
        fn no_words_panic(words in "[0-9a-z: -]{0,24}") {
            let _ = parse_applications(&words);
        }
    }
}

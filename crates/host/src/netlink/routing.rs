//! Routes and routing rules (`ip-route(8)`, `ip-rule(8)`; `<linux/rtnetlink.h>`, `<linux/fib_rules.h>`), IPv4: for a
//! testbed that sends packets between two addresses of one host over the wire.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use linerate_model::ids::NicName;

use super::error::Failure;
use super::link;
use super::message::{Attributes, CREATE, EXCLUSIVE, Request, u16_at, u32_at};
use super::{Netlink, lock};

/// `struct fib_rule_hdr`.
const RULE_HEADER_BYTES: usize = 12;
const RULE_INPUT: u16 = 3;
const RULE_PRIORITY: u16 = 6;
const RULE_SUPPRESS_PREFIX: u16 = 14;
const RULE_TABLE: u16 = 15;
const RULE_PROTOCOL: u16 = 21;
/// `FR_ACT_TO_TBL`: look the address up in a table.
const TO_TABLE: u8 = 1;

/// `struct rtmsg` and `struct rtnexthop` (`<linux/rtnetlink.h>`).
const ROUTE_HEADER_BYTES: usize = 12;
const NEXTHOP_HEADER_BYTES: usize = 8;
/// `RTNH_F_DEAD` and `RTNH_F_LINKDOWN`.
const UNUSABLE: u8 = 1 | 16;

/// A routing rule that selects a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its priority: lower is first, equal ones in the order in which they were added.
    pub priority: u32,
    /// The table; 255 is `local`.
    pub table: u32,
    /// Matches only packets received on this interface; `lo` matches packets of the host itself.
    pub input: Option<String>,
    /// It has conditions other than `input`.
    pub is_narrower: bool,
}

impl Rule {
    /// The `local` table.
    pub const LOCAL: u32 = libc::RT_TABLE_LOCAL as u32;

    /// The rule for the `local` table.
    pub fn own_addresses(priority: u32) -> Self {
        Self {
            priority,
            table: Self::LOCAL,
            input: None,
            is_narrower: false,
        }
    }
}

impl Netlink {
    /// The IPv4 rules in order of evaluation, only those that select a table.
    pub fn rules(&self) -> io::Result<Vec<Rule>> {
        let mut header = [0; RULE_HEADER_BYTES];
        header[0] = family();
        let mut route = lock(&self.route);
        route
            .dump(&Request::new(libc::RTM_GETRULE, &header))
            .and_then(|answers| {
                let rules = answers.iter().map(|answer| parse_rule(&answer.body));
                rules.filter_map(Result::transpose).collect()
            })
            .map_err(|failure| failure.during("list", "the routing rules"))
    }

    /// Adds a rule after those of the same priority.
    pub fn add_rule(&self, rule: &Rule) -> io::Result<()> {
        self.on_rule("add", rule, libc::RTM_NEWRULE, CREATE)
    }

    /// Deletes the first such rule.
    pub fn delete_rule(&self, rule: &Rule) -> io::Result<()> {
        self.on_rule("delete", rule, libc::RTM_DELRULE, 0)
    }

    fn on_rule(&self, doing: &'static str, rule: &Rule, kind: u16, flags: u16) -> io::Result<()> {
        lock(&self.route)
            .ask(&rule_request(rule, kind).with_flags(flags))
            .map(drop)
            .map_err(|failure| {
                let subject = format!("rule {} to table {}", rule.priority, rule.table);
                failure.during(doing, subject)
            })
    }

    /// How many usable next hops the route to the network `to`/`prefix` has in the main table; 0 without such a route.
    pub fn next_hops(&self, to: IpAddr, prefix: u8) -> io::Result<usize> {
        let mut header = [0; ROUTE_HEADER_BYTES];
        header[0] = match to {
            IpAddr::V4(_) => family(),
            IpAddr::V6(_) => u8::try_from(libc::AF_INET6).expect("a byte (socket.h)"),
        };
        let mut route = lock(&self.route);
        route
            .dump(&Request::new(libc::RTM_GETROUTE, &header))
            .and_then(|answers| {
                let hops = answers
                    .iter()
                    .map(|answer| parse_next_hops(&answer.body, to, prefix));
                hops.sum()
            })
            .map_err(|failure| failure.during("list the routes", format!("to {to}/{prefix}")))
    }

    /// Adds a route to the one address `to` over `nic`, from the address `from`, to the table `table`.
    pub fn add_route(
        &self,
        to: Ipv4Addr,
        nic: &NicName,
        from: Ipv4Addr,
        table: u32,
    ) -> io::Result<()> {
        let mut route = lock(&self.route);
        link::read(&mut route, nic)
            .and_then(|link| route.ask(&route_request(to, link.index, from, table)))
            .map(drop)
            .map_err(|failure| failure.during("add the route", format!("to {to} over {nic}")))
    }
}

fn family() -> u8 {
    u8::try_from(libc::AF_INET).expect("a byte (socket.h)")
}

fn rule_request(rule: &Rule, kind: u16) -> Request {
    let mut header = [0; RULE_HEADER_BYTES];
    header[0] = family();
    header[7] = TO_TABLE;
    let mut request = Request::new(kind, &header);
    if let Some(input) = &rule.input {
        request.put_text(RULE_INPUT, input);
    }
    request.put_u32(RULE_PRIORITY, rule.priority);
    request.put_u32(RULE_TABLE, rule.table);
    request
}

fn route_request(to: Ipv4Addr, index: u32, from: Ipv4Addr, table: u32) -> Request {
    // A table number above a byte is only in the attribute.
    let header = [
        family(),
        32,
        0,
        0,
        libc::RT_TABLE_UNSPEC,
        libc::RTPROT_STATIC,
        libc::RT_SCOPE_LINK,
        libc::RTN_UNICAST,
        0,
        0,
        0,
        0,
    ];
    let mut request = Request::new(libc::RTM_NEWROUTE, &header).with_flags(CREATE | EXCLUSIVE);
    request.put(libc::RTA_DST, &to.octets());
    request.put(libc::RTA_PREFSRC, &from.octets());
    request.put_u32(libc::RTA_OIF, index);
    request.put_u32(libc::RTA_TABLE, table);
    request
}

/// A rule from the kernel; `None` for one that does not select a table.
fn parse_rule(body: &[u8]) -> Result<Option<Rule>, Failure> {
    const KNOWN: [u16; 5] = [
        RULE_INPUT,
        RULE_PRIORITY,
        RULE_TABLE,
        RULE_PROTOCOL,
        RULE_SUPPRESS_PREFIX,
    ];
    let [_, to_bits, from_bits, tos, table, _, _, action] = *body
        .first_chunk()
        .ok_or(Failure::Malformed("a rule is truncated"))?;
    let flags = u32_at(body, 8)?;
    if action != TO_TABLE {
        return Ok(None);
    }
    let attributes = Attributes::after(body, RULE_HEADER_BYTES)?;
    // All bits set: routes of every length count.
    let suppresses = attributes
        .u32(RULE_SUPPRESS_PREFIX)?
        .is_some_and(|length| length != u32::MAX);
    let selects = attributes.iter().any(|(kind, _)| !KNOWN.contains(&kind));
    Ok(Some(Rule {
        priority: attributes.u32(RULE_PRIORITY)?.unwrap_or(0),
        table: attributes.u32(RULE_TABLE)?.unwrap_or(u32::from(table)),
        input: attributes.text(RULE_INPUT)?,
        is_narrower: [to_bits, from_bits, tos] != [0; 3] || flags != 0 || suppresses || selects,
    }))
}

/// The usable next hops of a dumped route, 0 if it is another one.
fn parse_next_hops(body: &[u8], to: IpAddr, prefix: u8) -> Result<usize, Failure> {
    let &[_, to_bits, _, _, table, _, _, kind, ..] = body else {
        return Err(Failure::Malformed("a route is truncated"));
    };
    let attributes = Attributes::after(body, ROUTE_HEADER_BYTES)?;
    let table = attributes.u32(libc::RTA_TABLE)?.unwrap_or(u32::from(table));
    let is_same = match (to, attributes.bytes(libc::RTA_DST)) {
        (IpAddr::V4(to), Some(bytes)) => to.octets() == bytes,
        (IpAddr::V6(to), Some(bytes)) => to.octets() == bytes,
        (_, None) => prefix == 0,
    };
    if to_bits != prefix
        || !is_same
        || kind != libc::RTN_UNICAST
        || table != u32::from(libc::RT_TABLE_MAIN)
    {
        return Ok(0);
    }
    let Some(mut list) = attributes.bytes(libc::RTA_MULTIPATH) else {
        let flags = u32_at(body, 8)?;
        return Ok(usize::from(flags & u32::from(UNUSABLE) == 0));
    };
    let mut count = 0;
    while !list.is_empty() {
        let length = usize::from(u16_at(list, 0)?);
        let hop = list
            .get(..length)
            .filter(|hop| hop.len() >= NEXTHOP_HEADER_BYTES)
            .ok_or(Failure::Malformed("a next hop is truncated"))?;
        count += usize::from(hop[2] & UNUSABLE == 0);
        list = list.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A route to 10.0.0.0/24 in the main table, with next hops of these flags.
    fn multipath(flags: &[u8]) -> Vec<u8> {
        let main = libc::RT_TABLE_MAIN;
        let header = [
            family(),
            24,
            0,
            0,
            main,
            0,
            0,
            libc::RTN_UNICAST,
            0,
            0,
            0,
            0,
        ];
        let mut request = Request::new(libc::RTM_NEWROUTE, &header);
        request.put(libc::RTA_DST, &[10, 0, 0, 0]);
        let hops = flags
            .iter()
            .flat_map(|flags| [8u16.to_ne_bytes(), [*flags, 0], [2, 0], [0, 0]].concat());
        request.put(libc::RTA_MULTIPATH, &hops.collect::<Vec<u8>>());
        request.into_body()
    }

    #[test]
    fn next_hops_without_a_link_do_not_count() {
        let to = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0));
        let count = |flags: &[u8], prefix| parse_next_hops(&multipath(flags), to, prefix);
        assert_eq!(count(&[0, 0], 24).expect("our own"), 2);
        assert_eq!(count(&[0, 16], 24).expect("our own"), 1);
        assert_eq!(count(&[0, 0], 16).expect("our own"), 0);
        let truncated = &multipath(&[0, 0]);
        let end = truncated.len() - 4;
        assert!(parse_next_hops(&truncated[..end], to, 24).is_err());
    }

    #[test]
    fn the_numbers_are_the_headers() {
        let ours = [
            ("FRA_IIFNAME", RULE_INPUT),
            ("FRA_PRIORITY", RULE_PRIORITY),
            ("FRA_SUPPRESS_PREFIXLEN", RULE_SUPPRESS_PREFIX),
            ("FRA_TABLE", RULE_TABLE),
            ("FRA_PROTOCOL", RULE_PROTOCOL),
            ("FR_ACT_TO_TBL", u16::from(TO_TABLE)),
        ];
        crate::netlink::headers::compare("fib_rules.h", &ours);
    }

    #[test]
    fn a_rule_is_read_as_it_is_written() {
        let sent = Rule {
            priority: 7,
            table: 27_762,
            input: Some("lo".to_owned()),
            is_narrower: false,
        };
        let body = rule_request(&sent, libc::RTM_NEWRULE).into_body();
        assert_eq!(parse_rule(&body).expect("our own"), Some(sent.clone()));
        let mut narrow = rule_request(&sent, libc::RTM_NEWRULE);
        narrow.put(1, &[10, 0, 0, 1]); // FRA_DST
        let read = parse_rule(&narrow.into_body()).expect("our own");
        assert!(read.is_some_and(|rule| rule.is_narrower));
    }

    #[test]
    fn a_rule_that_looks_nothing_up_is_passed_over() {
        let mut body = rule_request(&Rule::own_addresses(0), libc::RTM_NEWRULE).into_body();
        body[7] = 6; // FR_ACT_BLACKHOLE
        assert_eq!(parse_rule(&body).expect("our own"), None);
        assert!(parse_rule(&body[..6]).is_err());
    }
}

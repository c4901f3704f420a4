//! Statistics of the classes of an interface's qdiscs (`struct gnet_stats_basic`, `struct gnet_stats_queue` of
//! `<linux/gen_stats.h>`).

use linerate_model::ids::NicName;
use linerate_model::known::Known;

use super::{CLASSFUL, STATS_QUEUE, link, table};
use crate::netlink::error::Failure;
use crate::netlink::message::{Attributes, u32_at};
use crate::netlink::qdisc_entry::{Entry, HEADER_BYTES};
use crate::netlink::response::numbers;
use crate::netlink::{NO_KERNEL, Netlink, known};
use crate::nic_control::NicCounts;

pub(super) const STATS_BASIC: u16 = 1;
pub(super) const STATS_PACKETS: u16 = 8;

/// What a class of a qdisc has sent, and what waits in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassCounts {
    /// `htb`, `mqprio` ...
    pub kind: String,
    /// Its handle: the number of the qdisc, and its own in the lower 16 bits.
    pub handle: u32,
    /// The handle of its parent.
    pub parent: u32,
    /// Bytes of frames sent, from the destination address to the payload's end.
    pub bytes: u64,
    /// Frames sent; a segment of a larger packet counts as one.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// How often it had to wait for tokens.
    pub overlimits: u64,
    /// Bytes that wait. 0 for a class with classes below it.
    pub backlog_bytes: u64,
}

impl ClassCounts {
    /// The class as tc(8) names it, `1:10`.
    pub fn name(&self) -> String {
        class_name(self.handle)
    }
}

/// A handle as tc(8) prints it: two hexadecimal numbers.
pub fn class_name(handle: u32) -> String {
    format!("{:x}:{:x}", handle >> 16, handle & 0xffff)
}

impl Netlink {
    /// The statistics of the interface's classes, ordered by handle; those that are only queues are left out.
    pub fn classes(&self, nic: &NicName) -> Known<Vec<ClassCounts>> {
        let classes = self.read_route(nic, "classes", |route| {
            let index = link::read(route, nic)?.index;
            table(route, index, libc::RTM_GETTCLASS)
        });
        classes.and_then(|classes| class_counts(&classes, nic))
    }
}

pub(super) fn class_counts(classes: &[Vec<u8>], nic: &NicName) -> Known<Vec<ClassCounts>> {
    let all: Result<Vec<Option<ClassCounts>>, Failure> =
        classes.iter().map(|body| parse(body)).collect();
    let all = all.map(|all| {
        let mut all: Vec<ClassCounts> = all.into_iter().flatten().collect();
        all.sort_by_key(|class| class.handle);
        all
    });
    known(all, format!("netlink/route/{nic}/classes"), NO_KERNEL)
}

/// The statistics of a class; `None` if it is only a queue.
fn parse(body: &[u8]) -> Result<Option<ClassCounts>, Failure> {
    let entry = Entry::parse(body)?;
    if entry.kind != "mqprio" && !CLASSFUL.contains(&entry.kind.as_str()) {
        return Ok(None);
    }
    let attributes = Attributes::after(body, HEADER_BYTES)?;
    let stats = attributes.nest(libc::TCA_STATS2)?;
    // `struct gnet_stats_basic`: bytes in 64 bits, packets in 32.
    let basic = stats.bytes(STATS_BASIC).unwrap_or_default();
    let mut bytes = [0; 8];
    if let Some(first) = basic.get(..8) {
        bytes.copy_from_slice(first);
    }
    let short = u32_at(basic, 8).map_or(0, u64::from);
    let queue = stats.bytes(STATS_QUEUE).map(numbers::<5>).transpose()?;
    let [_, backlog, drops, _, overlimits] = queue.unwrap_or_default();
    Ok(Some(ClassCounts {
        bytes: u64::from_ne_bytes(bytes),
        packets: stats.u64(STATS_PACKETS)?.unwrap_or(short),
        drops: drops.into(),
        overlimits: overlimits.into(),
        backlog_bytes: backlog.into(),
        kind: entry.kind,
        handle: entry.handle,
        parent: entry.parent,
    }))
}

/// Adds what grows.
pub(super) fn put(classes: &[ClassCounts], nic: &NicName, counts: &mut NicCounts) {
    for class in classes {
        let path = format!("netlink/route/{nic}/classes/{}", class.name());
        for (name, value) in [
            ("bytes", class.bytes),
            ("packets", class.packets),
            ("drops", class.drops),
            ("overlimits", class.overlimits),
        ] {
            let key = format!("class/{}/{name}", class.name());
            counts.values.insert(key, (value, path.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::headers::compare;
    use crate::netlink::message::Request;
    use crate::netlink::qdisc::header;

    #[test]
    fn the_attributes_have_the_numbers_of_the_kernels_headers() {
        compare(
            "gen_stats.h",
            &[
                ("TCA_STATS_BASIC", STATS_BASIC),
                ("TCA_STATS_PKT64", STATS_PACKETS),
            ],
        );
    }

    fn listed(kind: &str, packets64: Option<u64>) -> Vec<u8> {
        let mut request = Request::new(0, &header(2, 0x1_0010, 0x1_0001));
        request.put_text(libc::TCA_KIND, kind);
        request.nest(libc::TCA_STATS2, |stats| {
            let mut basic = 1_000_000_u64.to_ne_bytes().to_vec();
            basic.extend(700_u32.to_ne_bytes());
            stats.put(STATS_BASIC, &basic);
            let queue: Vec<u8> = [3, 4_542, 5, 0, 9_u32]
                .iter()
                .flat_map(|number| number.to_ne_bytes())
                .collect();
            stats.put(STATS_QUEUE, &queue);
            if let Some(packets) = packets64 {
                stats.put(STATS_PACKETS, &packets.to_ne_bytes());
            }
        });
        request.into_body()
    }

    #[test]
    fn a_class_counts_what_it_has_sent_and_what_waits() {
        let class = parse(&listed("htb", None)).expect("our own");
        let class = class.expect("a class");
        assert_eq!(class.name(), "1:10");
        assert_eq!((class.bytes, class.packets), (1_000_000, 700));
        assert_eq!((class.drops, class.overlimits), (5, 9));
        assert_eq!(class.backlog_bytes, 4_542);
        let long = parse(&listed("htb", Some(1 << 33))).expect("our own");
        assert_eq!(long.expect("a class").packets, 1 << 33);
        assert_eq!(parse(&listed("fq_codel", None)).ok(), Some(None));
        let mut counts = NicCounts::default();
        put(&[class], &"eth0".parse().expect("a name"), &mut counts);
        assert_eq!(counts.values["class/1:10/bytes"].0, 1_000_000);
    }
}

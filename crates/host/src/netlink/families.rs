//! The other generic netlink families used here (`<linux/genetlink.h>`): which of them this kernel has, and requests
//! to them.

use std::collections::BTreeMap;
use std::io;

use super::error::Failure;
use super::message::{Attributes, Request};
use super::socket::{Answer, Connection};

/// `GENL_ID_CTRL`: the one family whose number is fixed.
const CONTROL_FAMILY: u16 = 16;
/// `CTRL_CMD_GETFAMILY`, version 2.
const CONTROL_GET_FAMILY: [u8; 4] = [3, 2, 0, 0];
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;
/// The version of these families (`NETDEV_FAMILY_VERSION`, `DEVLINK_GENL_VERSION`, `TEAM_GENL_VERSION`).
const VERSION: u8 = 1;

/// `struct genlmsghdr`: command, version, two reserved bytes.
pub(super) const GENERIC_HEADER_BYTES: usize = 4;

/// A generic netlink socket and its families' numbers on this kernel.
#[derive(Debug)]
pub(super) struct Families {
    connection: Connection,
    numbers: Option<BTreeMap<String, u16>>,
}

impl Families {
    /// A socket in the network namespace of this thread.
    pub(super) fn open() -> io::Result<Self> {
        let connection = Connection::open(Some(rustix::net::netlink::GENERIC))?;
        Ok(Self {
            connection,
            numbers: None,
        })
    }

    /// Three families that `script` answers.
    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn scripted(script: super::script::Script) -> io::Result<Self> {
        let numbers =
            [("netdev", 21), ("devlink", 22), ("team", 23)].map(|(name, id)| (name.to_owned(), id));
        Ok(Self {
            connection: Connection::scripted(script)?,
            numbers: Some(BTreeMap::from(numbers)),
        })
    }

    /// The number of the family `name`; `None` if this kernel does not have it. All are listed: requesting one by
    /// name would make the kernel load its module, and reading must change nothing.
    pub(super) fn number(&mut self, name: &str) -> Result<Option<u16>, Failure> {
        if self.numbers.is_none() {
            let list = Request::new(CONTROL_FAMILY, &CONTROL_GET_FAMILY);
            let answers = self.connection.dump(&list)?;
            self.numbers = Some(
                answers
                    .iter()
                    .map(|answer| parse_family(&answer.body))
                    .filter_map(Result::transpose)
                    .collect::<Result<_, _>>()?,
            );
        }
        let numbers = self.numbers.as_ref();
        Ok(numbers.and_then(|numbers| numbers.get(name).copied()))
    }

    /// Sends `family` a request for one object.
    pub(super) fn ask(
        &mut self,
        family: u16,
        command: u8,
        fill: impl FnOnce(&mut Request),
    ) -> Result<Vec<Answer>, Failure> {
        self.connection.ask(&request(family, command, fill))
    }

    /// Sends `family` a dump request.
    pub(super) fn dump(
        &mut self,
        family: u16,
        command: u8,
        fill: impl FnOnce(&mut Request),
    ) -> Result<Vec<Answer>, Failure> {
        self.connection.dump(&request(family, command, fill))
    }
}

fn request(family: u16, command: u8, fill: impl FnOnce(&mut Request)) -> Request {
    let mut request = Request::new(family, &[command, VERSION, 0, 0]);
    fill(&mut request);
    request
}

/// The name and the number of the family that `body` describes.
fn parse_family(body: &[u8]) -> Result<Option<(String, u16)>, Failure> {
    let attributes = Attributes::after(body, GENERIC_HEADER_BYTES)?;
    let name = attributes.text(CONTROL_FAMILY_NAME)?;
    Ok(name.zip(attributes.u16(CONTROL_FAMILY_ID)?))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_panic(body in vec(any::<u8>(), 0..120)) {
            let _ = parse_family(&body);
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_kernels_families_are_known_by_name() {
        let families: BTreeMap<String, u16> =
            crate::netlink::captured::answers(include_str!("captured/families.hex"))
                .iter()
                .filter_map(|answer| parse_family(&answer.body).expect("the kernel's own"))
                .collect();
        assert_eq!(families.get("nlctrl"), Some(&CONTROL_FAMILY));
        assert!(families.contains_key("ethtool"), "{families:?}");
    }
}

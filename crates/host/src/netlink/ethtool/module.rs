//! The module's EEPROM, page by page (`ETHTOOL_MSG_MODULE_EEPROM_GET`, which requires `CAP_NET_ADMIN`);
//! [`crate::eeprom`] decodes it.

use linerate_model::host::Module;
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};

use super::{Command, Ethtool};
use crate::eeprom::{self, Half, Pages};
use crate::netlink::error::Failure;
use crate::netlink::message::{Attributes, Request};
use crate::netlink::{NO_DRIVER, known};

pub(super) const OFFSET: u16 = 2;
pub(super) const LENGTH: u16 = 3;
pub(super) const PAGE: u16 = 4;
pub(super) const BANK: u16 = 5;
pub(super) const ADDRESS: u16 = 6;
pub(super) const DATA: u16 = 7;

const ONLY_ROOT: &str = "only root can read the module EEPROM (CAP_NET_ADMIN)";

impl Ethtool {
    /// The decoded module. It is read over a slow bus, so only the required pages are read.
    pub(super) fn module(&mut self, nic: &NicName) -> Known<Module> {
        let mut pages = Pages::new(format!("netlink/ethtool/{nic}/module"));
        while let Some(half) = eeprom::next(&pages) {
            let path = format!("{}/{half}", pages.path());
            let mut bytes = known(self.half(nic, half), path, NO_DRIVER);
            if let Known::Unknown(gap) = &mut bytes
                && gap.cause == Cause::Denied
            {
                gap.reason = String::from(ONLY_ROOT);
            }
            pages.insert(half, bytes);
        }
        eeprom::decode(&pages)
    }

    fn half(&mut self, nic: &NicName, half: Half) -> Result<Vec<u8>, Failure> {
        self.read_as(
            Command::ModuleEepromGet,
            nic,
            0,
            |request| put_half(request, half),
            parse_half,
        )
    }
}

pub(super) fn put_half(request: &mut Request, half: Half) {
    let (address, page, offset) = match half {
        Half::Lower { address } => (address, 0, 0),
        Half::Upper { address, page } => (address, page, eeprom::HALF_BYTES),
    };
    request
        .put_u32(OFFSET, offset)
        .put_u32(LENGTH, eeprom::HALF_BYTES)
        .put(PAGE, &[page])
        .put(BANK, &[0])
        .put(ADDRESS, &[address]);
}

pub(super) fn parse_half(attributes: &Attributes<'_>) -> Result<Vec<u8>, Failure> {
    attributes
        .bytes(DATA)
        .map(<[u8]>::to_vec)
        .ok_or(Failure::Malformed("the reply has no data"))
}

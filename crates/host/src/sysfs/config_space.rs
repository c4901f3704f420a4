//! Decodes the PCI config space of a function, from the sysfs file `config`: the PCI Express capability (PCI Local
//! Bus Specification 3.0, 6.7; PCI Express Base Specification, 7.5.3) and ACS (the same, 7.7.8). Offsets and bits are
//! those of `include/uapi/linux/pci_regs.h`.

use linerate_model::host::PcieControl;
use linerate_model::units::{Bytes, TransferRate};

/// The config space of conventional PCI, which contains the PCI Express capability. Without root only its first 64
/// bytes are readable.
pub(crate) const CONVENTIONAL_BYTES: usize = 256;
/// The config space of PCI Express, with the extended capabilities.
pub(crate) const EXTENDED_BYTES: usize = 4096;

/// The kernel's limits for the capability lists (`PCI_FIND_CAP_TTL`, `pci_find_next_ext_capability`): they are linked
/// lists in the device, which may contain a loop.
const CAPABILITIES_MAX: usize = 48;
const EXTENDED_CAPABILITIES_MAX: usize = (4096 - 256) / 8;

const CAPABILITY_EXPRESS: u8 = 0x10;
const EXTENDED_ACS: u16 = 0x0d;
/// Up to the link status register.
const EXPRESS_BYTES: usize = 0x14;
const ACS_BYTES: usize = 8;

/// Link and device control from a function's config space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Express {
    /// The current link; none if the function has no link, or it is not trained.
    pub(crate) speed: Option<TransferRate>,
    pub(crate) width: Option<u32>,
    /// The maximum link.
    pub(crate) speed_max: Option<TransferRate>,
    pub(crate) width_max: Option<u32>,
    pub(crate) control: PcieControl,
}

/// Why a config space has no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTold {
    /// Fewer bytes than conventional PCI config space were readable.
    Hidden,
    /// There is no such capability: not a PCI Express function.
    NotExpress,
    /// All ones: the device does not answer.
    Gone,
}

/// Decodes the readable part of a config space.
pub(crate) fn parse_config(space: &[u8]) -> Result<Express, NotTold> {
    if word(space, 0) == Some(0xffff) {
        return Err(NotTold::Gone);
    }
    if space.len() < CONVENTIONAL_BYTES {
        return Err(NotTold::Hidden);
    }
    let at = capabilities(space)
        .into_iter()
        .find(|(_, id)| *id == CAPABILITY_EXPRESS)
        .map(|(at, _)| at)
        .ok_or(NotTold::NotExpress)?;
    let express = |offset| double_word(space, at + offset).ok_or(NotTold::NotExpress);
    let (device, control) = (express(0x04)?, express(0x08)?);
    // The status registers are the upper halves of the control registers.
    let (link, status) = (express(0x0c)?, express(0x10)? >> 16);
    Ok(Express {
        speed: speed(status & 0xf),
        width: width(status >> 4),
        speed_max: speed(link & 0xf),
        width_max: width(link >> 4),
        control: PcieControl {
            max_payload_bytes: size(control >> 5),
            max_payload_supported_bytes: size(device),
            max_read_request_bytes: size(control >> 12),
            relaxed_ordering: control & 1 << 4 != 0,
            acs_redirect: acs_redirect(space),
        },
    })
}

/// The part of a config space that [`parse_config`] uses: the rest (a serial number, base addresses) identifies the
/// machine, and no rule reads it. Offsets are preserved; the unused end is cut off.
pub(crate) fn used_bytes(space: &[u8]) -> Vec<u8> {
    let mut kept = vec![0; space.len()];
    // The readable size is data too: 64 bytes, 256, or more.
    let mut end = match space.len() {
        shown @ ..=256 => shown,
        _ => 256 + 4,
    };
    let mut keep = |at: usize, bytes: usize| {
        let range = at..(at + bytes).min(space.len());
        end = end.max(range.end);
        if let (Some(to), Some(from)) = (kept.get_mut(range.clone()), space.get(range)) {
            to.copy_from_slice(from);
        }
    };
    keep(0, 0x10);
    keep(0x34, 1);
    for (at, id) in capabilities(space) {
        let is_express = id == CAPABILITY_EXPRESS;
        keep(at, if is_express { EXPRESS_BYTES } else { 2 });
    }
    for (at, id) in extended_capabilities(space) {
        keep(at, if id == EXTENDED_ACS { ACS_BYTES } else { 4 });
    }
    kept.truncate(end);
    kept
}

/// The capabilities with their offsets.
fn capabilities(space: &[u8]) -> Vec<(usize, u8)> {
    let has_list = word(space, 0x06).is_some_and(|status| status & 1 << 4 != 0);
    let mut found = Vec::new();
    let mut next = if has_list {
        space.get(0x34).copied()
    } else {
        None
    };
    while let Some(at) = next
        .map(|at| usize::from(at & 0xfc))
        .filter(|at| *at >= 0x40)
    {
        match (space.get(at), space.get(at + 1)) {
            (Some(id), Some(after)) if *id != 0xff && found.len() < CAPABILITIES_MAX => {
                found.push((at, *id));
                next = Some(*after);
            }
            _ => break,
        }
    }
    found
}

/// The extended capabilities, as far as they were readable.
fn extended_capabilities(space: &[u8]) -> Vec<(usize, u16)> {
    let mut found = Vec::new();
    let mut at = 0x100;
    while let Some(header) = double_word(space, at) {
        let after = (header >> 20) as usize & 0xffc;
        if header == 0 || header == u32::MAX || found.len() == EXTENDED_CAPABILITIES_MAX {
            break;
        }
        found.push((at, (header & 0xffff) as u16));
        if after < 0x100 {
            break;
        }
        at = after;
    }
    found
}

/// Whether ACS of a bridge redirects peer-to-peer requests or completions to the root.
fn acs_redirect(space: &[u8]) -> Option<bool> {
    let is_bridge = space.get(0x0e).is_some_and(|header| header & 0x7f == 1);
    let (at, _) = extended_capabilities(space)
        .into_iter()
        .find(|(_, id)| is_bridge && *id == EXTENDED_ACS)?;
    let control = word(space, at + 6)?;
    Some(control & (1 << 2 | 1 << 3) != 0)
}

/// `LNKSTA_CLS` and `LNKCAP_SLS`; 0 and undefined values are no speed.
fn speed(code: u32) -> Option<TransferRate> {
    let mt_per_s = match code {
        1 => 2_500,
        2 => 5_000,
        3 => 8_000,
        4 => 16_000,
        5 => 32_000,
        6 => 64_000,
        _ => return None,
    };
    Some(TransferRate::from_mt_per_s(mt_per_s))
}

fn width(bits: u32) -> Option<u32> {
    Some(bits & 0x3f).filter(|lanes| (1..=super::pci::WIDTH_MAX).contains(lanes))
}

/// Sizes are 128 bytes times a power of two.
fn size(bits: u32) -> Bytes {
    Bytes::new(128 << (bits & 7))
}

fn word(space: &[u8], at: usize) -> Option<u16> {
    let bytes = space.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn double_word(space: &[u8], at: usize) -> Option<u32> {
    let bytes = space.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A function with a PCI Express capability at 0x60 after another one, on a link with 8 GT/s and 4 lanes and a
    /// maximum of 16 GT/s and 16; and, for a bridge, ACS after another extended one.
    pub(crate) fn space(is_bridge: bool) -> Vec<u8> {
        let mut space = vec![0; if is_bridge { 4096 } else { 256 }];
        let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &[0xb3, 0x15, 0x17, 0x10, 0x06, 0x04, 0x10, 0x00]);
        put(0x0e, &[0x80 | u8::from(is_bridge)]);
        put(0x34, &[0x40]);
        put(0x40, &[0x01, 0x60]);
        put(0x60, &[0x10, 0x00, 0x02, 0x00]);
        put(0x64, &[0x02, 0x80, 0x00, 0x10]);
        put(0x68, &[0x30, 0x29, 0x00, 0x00]);
        put(0x6c, &[0x04, 0x01, 0x40, 0x00]);
        put(0x70, &[0x00, 0x00, 0x43, 0x10]);
        if is_bridge {
            put(0x100, &[0x03, 0x00, 0x01, 0x15]);
            put(0x104, &[1, 2, 3, 4, 5, 6, 7, 8]);
            put(0x150, &[0x0d, 0x00, 0x01, 0x00, 0x1f, 0x00, 0x1d, 0x00]);
        }
        space
    }

    #[test]
    fn the_link_and_its_control_are_decoded() {
        let express = parse_config(&space(false)).expect("a capability");
        let rate = |mt| Some(TransferRate::from_mt_per_s(mt));
        assert_eq!((express.speed, express.width), (rate(8_000), Some(4)));
        assert_eq!(
            (express.speed_max, express.width_max),
            (rate(16_000), Some(16))
        );
        assert_eq!(
            express.control,
            PcieControl {
                max_payload_bytes: Bytes::new(256),
                max_payload_supported_bytes: Bytes::new(512),
                max_read_request_bytes: Bytes::new(512),
                relaxed_ordering: true,
                acs_redirect: None,
            }
        );
        let bridge = parse_config(&space(true)).expect("a capability");
        assert_eq!(bridge.control.acs_redirect, Some(true));
    }

    #[test]
    fn what_an_ordinary_user_is_shown_does_not_tell() {
        assert_eq!(parse_config(&space(false)[..64]), Err(NotTold::Hidden));
        assert_eq!(parse_config(&[]), Err(NotTold::Hidden));
        assert_eq!(parse_config(&[0xff; 256]), Err(NotTold::Gone));
        assert_eq!(parse_config(&[0; 256]), Err(NotTold::NotExpress));
    }

    #[test]
    fn a_list_that_runs_in_a_circle_or_out_of_the_space_ends() {
        let mut circle = space(false);
        circle[0x41] = 0x40;
        assert_eq!(parse_config(&circle), Err(NotTold::NotExpress));
        let mut out = space(false);
        (out[0x41], out[0xfc]) = (0xfc, 0x10);
        assert_eq!(parse_config(&out), Err(NotTold::NotExpress));
        let mut extended = space(true);
        extended[0x102..0x104].copy_from_slice(&[0x01, 0x10]);
        let bridge = parse_config(&extended).expect("a capability");
        assert_eq!(bridge.control.acs_redirect, None);
    }

    #[test]
    fn what_is_kept_of_a_space_reads_the_same_and_holds_no_serial_number() {
        for is_bridge in [false, true] {
            let whole = space(is_bridge);
            let kept = used_bytes(&whole);
            assert_eq!(parse_config(&kept), parse_config(&whole));
            assert!(kept.len() < 0x160, "{}", kept.len());
            assert!(
                !kept
                    .windows(8)
                    .any(|bytes| bytes == [1, 2, 3, 4, 5, 6, 7, 8])
            );
        }
        assert_eq!(used_bytes(&space(false)[..64]).len(), 64);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            patches in proptest::collection::vec((0usize..4096, any::<[u8; 4]>()), 0..24),
            length in 0usize..4097,
        ) {
            let mut space = space(true);
            for (at, bytes) in patches {
                for (byte, new) in space.iter_mut().skip(at).zip(bytes) {
                    *byte = new;
                }
            }
            space.truncate(length);
            let kept = used_bytes(&space);
            prop_assert_eq!(parse_config(&kept), parse_config(&space));
        }
    }
}

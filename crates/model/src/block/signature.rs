//! Whether a device is recognizably blank: the areas at its two ends in which file systems, partition tables, RAIDs,
//! volume managers and swap keep their signatures are all zero.
//!
//! The areas cover the offsets at which libblkid and wipefs(8) look: up to the two headers of LUKS2 (cryptsetup, "LUKS2
//! on-disk format", 4 MiB each at most) at the start, and the labels of ZFS (512 KiB), of MD and of firmware RAIDs at the
//! end. What is not zero is never overwritten, whether it has a name here or not. A measurement that writes leaves both
//! areas untouched, so the device stays blank for the next one.

use crate::units::Bytes;

/// The area at the start of a device that is inspected, and never written.
pub const HEAD: Bytes = Bytes::mib(8);
/// The area at its end that is inspected, and never written.
pub const TAIL: Bytes = Bytes::mib(1);

/// A signature: its name, its offset, and its bytes.
type Magic = (&'static str, usize, &'static [u8]);

/// The known ones at the start. The offsets are those of wipefs(8) and of libblkid's probes; the more specific ones come
/// first.
const AT_START: [Magic; 31] = [
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", 4096, b"EFI PART"),
    ("a LUKS volume", 0, b"LUKS\xba\xbe"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("an LVM physical volume", 0, b"LABELONE"),
    ("an LVM physical volume", 1024, b"LABELONE"),
    ("an LVM physical volume", 1536, b"LABELONE"),
    ("an XFS file system", 0, b"XFSB"),
    ("an ext2, ext3 or ext4 file system", 1080, b"\x53\xef"),
    ("a Btrfs file system", 65_600, b"_BHRfS_M"),
    ("a swap area", 4086, b"SWAPSPACE2"),
    ("a swap area", 4086, b"SWAP-SPACE"),
    ("a swap area", 16_374, b"SWAPSPACE2"),
    ("a swap area", 65_526, b"SWAPSPACE2"),
    ("a member of an MD RAID", 0, b"\xfc\x4e\x2b\xa9"),
    ("a member of an MD RAID", 4096, b"\xfc\x4e\x2b\xa9"),
    ("an F2FS file system", 1024, b"\x10\x20\xf5\xf2"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a FAT file system", 54, b"FAT1"),
    ("a FAT file system", 82, b"FAT32   "),
    ("an ISO 9660 file system", 32_769, b"CD001"),
    ("a SquashFS file system", 0, b"hsqs"),
    ("an EROFS file system", 1024, b"\xe2\xe1\xf5\xe0"),
    ("a bcache device", 4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    (
        "a bcachefs file system",
        4120,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9",
    ),
    ("a Ceph BlueStore volume", 0, b"bluestore block device"),
    ("a VDO volume", 0, b"dmvdo001"),
    ("a Stratis pool", 528, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("a GFS2 file system", 65_536, b"\x01\x16\x19\x70"),
    ("an MBR partition table", 510, b"\x55\xaa"),
];

/// The known ones at the end: the offset counts back from the end of the device.
const AT_END: [Magic; 6] = [
    ("a backup GPT partition table", 512, b"EFI PART"),
    ("a backup GPT partition table", 4096, b"EFI PART"),
    ("a member of an MD RAID", 65_536, b"\xfc\x4e\x2b\xa9"),
    ("a member of an MD RAID", 8192, b"\xfc\x4e\x2b\xa9"),
    (
        "a member of an Intel RAID",
        1024,
        b"Intel Raid ISM Cfg Sig. ",
    ),
    ("a DRBD volume", 4096, b"\x83\x74\x02"),
];

/// The labels of ZFS begin at these distances from either end (OpenZFS, vdev_label.c), and each has an array of
/// uberblocks with this magic in its second half.
const ZFS_UBERBLOCK: u64 = 0x00ba_b10c;
const ZFS_LABEL: usize = 256 << 10;
const ZFS_UBERBLOCKS: usize = 128 << 10;

/// Why a device is not blank, from all bytes of its [`HEAD`] and its [`TAIL`]; none if both are all zero.
pub fn found(head: &[u8], tail: &[u8]) -> Option<String> {
    let at = |bytes: &[u8], offset: usize, magic: &[u8]| {
        let end = offset.checked_add(magic.len());
        end.and_then(|end| bytes.get(offset..end)) == Some(magic)
    };
    let known_start = AT_START
        .iter()
        .find(|(_, offset, magic)| at(head, *offset, magic));
    if let Some((name, ..)) = known_start {
        return Some((*name).to_owned());
    }
    if has_uberblock(head) || has_uberblock(tail) {
        return Some("a member of a ZFS pool".to_owned());
    }
    let known_end = AT_END.iter().find(|(_, back, magic)| {
        let offset = tail.len().checked_sub(*back);
        offset.is_some_and(|offset| at(tail, offset, magic))
    });
    if let Some((name, ..)) = known_end {
        return Some((*name).to_owned());
    }
    let first = |bytes: &[u8]| bytes.iter().position(|byte| *byte != 0);
    if let Some(offset) = first(head) {
        return Some(format!("data at byte {offset}"));
    }
    let back = first(tail).map(|offset| tail.len() - offset);
    back.map(|back| format!("data {back} bytes before its end"))
}

/// Whether one of the two labels in `bytes` has an uberblock.
fn has_uberblock(bytes: &[u8]) -> bool {
    let labels = bytes.chunks(ZFS_LABEL).take(4);
    let mut blocks = labels.flat_map(|label| {
        let all = label.get(ZFS_UBERBLOCKS..).unwrap_or_default();
        all.chunks(1024)
    });
    blocks.any(|block| {
        let number = block.first_chunk::<8>();
        number.is_some_and(|bytes| {
            u64::from_le_bytes(*bytes) == ZFS_UBERBLOCK
                || u64::from_be_bytes(*bytes) == ZFS_UBERBLOCK
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blank() -> (Vec<u8>, Vec<u8>) {
        let zero = |size: Bytes| vec![0; usize::try_from(size.as_u64()).expect("a few MiB")];
        (zero(HEAD), zero(TAIL))
    }

    #[test]
    fn a_device_whose_ends_are_zero_is_blank() {
        let (head, tail) = blank();
        assert_eq!(found(&head, &tail), None);
    }

    #[test]
    fn every_known_signature_is_found_by_its_name() {
        for (name, offset, magic) in AT_START {
            let (mut head, tail) = blank();
            head[offset..offset + magic.len()].copy_from_slice(magic);
            assert_eq!(found(&head, &tail).as_deref(), Some(name), "at {offset}");
        }
        for (name, back, magic) in AT_END {
            let (head, mut tail) = blank();
            let offset = tail.len() - back;
            tail[offset..offset + magic.len()].copy_from_slice(magic);
            assert_eq!(found(&head, &tail).as_deref(), Some(name), "{back} back");
        }
    }

    #[test]
    fn the_labels_of_zfs_are_found_at_both_ends_and_in_both_byte_orders() {
        for at_end in [false, true] {
            for bytes in [ZFS_UBERBLOCK.to_le_bytes(), ZFS_UBERBLOCK.to_be_bytes()] {
                let (mut head, mut tail) = blank();
                let area = if at_end { &mut tail } else { &mut head };
                let offset = ZFS_LABEL + ZFS_UBERBLOCKS + 5 * 1024;
                area[offset..offset + 8].copy_from_slice(&bytes);
                let name = found(&head, &tail);
                assert_eq!(name.as_deref(), Some("a member of a ZFS pool"));
            }
        }
    }

    #[test]
    fn a_device_that_is_shorter_than_the_areas_does_not_panic() {
        assert_eq!(found(&[], &[]), None);
        assert_eq!(
            found(&[0; 3], &[7]).as_deref(),
            Some("data 1 bytes before its end")
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn one_byte_that_is_not_zero_anywhere_in_the_areas_is_enough(
            offset in 0..HEAD.as_u64() + TAIL.as_u64(),
            byte in 1..=u8::MAX,
        ) {
            let (mut head, mut tail) = blank();
            let offset = usize::try_from(offset).expect("a few MiB");
            match offset.checked_sub(head.len()) {
                Some(offset) => tail[offset] = byte,
                None => head[offset] = byte,
            }
            prop_assert!(found(&head, &tail).is_some());
        }
    }
}

//! The same functions as property tests: every reader gets random bytes in every test run. The fuzz targets run
//! longer and use coverage.

use proptest::collection::vec;
use proptest::prelude::*;

use super::texts::count;
use super::*;

/// Text like the kernel's, so that parsing gets beyond the first word.
fn kernel_text() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        "[0-9]{1,21}",
        "[a-zA-Z_:.-]{1,12}",
        Just("0-4294967295".to_owned()),
        Just("CPU0 CPU1 CPU99999999999".to_owned()),
        Just("18446744073709551616".to_owned()),
        any::<String>(),
    ];
    let separator = prop_oneof![
        Just(" "),
        Just("\n"),
        Just("\t"),
        Just(","),
        Just(":"),
        Just("=")
    ];
    vec((word, separator), 0..30).prop_map(|words| {
        words
            .into_iter()
            .map(|(word, separator)| word + separator)
            .collect()
    })
}

proptest! {
    #[test]
    fn no_text_panics_a_reader_of_a_file(which in 0..count(), text in kernel_text()) {
        let mut bytes = vec![which];
        bytes.extend_from_slice(text.as_bytes());
        sysfs_text(&bytes);
    }

    #[test]
    fn no_bytes_panic_a_reader(bytes in vec(any::<u8>(), 0..600)) {
        sysfs_text(&bytes);
        netlink(&bytes);
        events(&bytes);
        eeprom(&bytes);
        pcie_config(&bytes);
        archive(&bytes);
        tarball(&bytes);
    }

    #[test]
    fn no_answer_of_a_kernel_panics(which in 0u8..14, bodies in vec((any::<u8>(), vec(any::<u8>(), 0..80)), 0..12)) {
        let mut bytes = vec![which];
        for (kind, body) in bodies {
            bytes.extend([1, kind, u8::try_from(body.len()).expect("short"), 0]);
            bytes.extend(body);
        }
        netlink(&bytes);
    }
}

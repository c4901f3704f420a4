//! Text from people, files and peers is parsed without a panic, whatever it contains, and a parsed setting key can be
//! printed and parsed again.

use linerate_model::host::Host;
use linerate_model::protocol::{Reply, Request};
use linerate_model::setting::SettingKey;
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use proptest::collection::vec;
use proptest::prelude::*;

/// Pieces of setting keys, and arbitrary text.
fn name() -> impl Strategy<Value = String> {
    let words = [
        "sysctl",
        "nic",
        "eth0",
        "mtu",
        "queue",
        "rx-0",
        "tx-4294967295",
        "rx-",
        "rps-cpus",
        "xps-rxqs",
        "irq-cpus",
        "feature",
        "rx-gro",
        "ring",
        "channels",
        "coalesce",
        "qdisc",
        "irq",
        "24",
        "cpus",
        "cpu",
        "governor",
        "pci",
        "trial",
        "net.core.rmem_max",
        "",
        ".",
        "0",
    ];
    let word = prop_oneof![
        proptest::sample::select(words.to_vec()).prop_map(str::to_owned),
        any::<String>(),
    ];
    vec(word, 1..6).prop_map(|words| words.join("/"))
}

proptest! {
    #[test]
    fn no_text_panics_a_setting(name in name(), value in any::<String>()) {
        if let Ok(key) = name.parse::<SettingKey>() {
            prop_assert_eq!(key.to_string().parse(), Ok(key.clone()));
            let _ = key.spec();
            let _ = key.parse_value(&value);
        }
    }

    #[test]
    fn no_text_panics_a_unit(
        number in "[0-9.,-]{0,25}", unit in "[a-zA-Z/µ]{0,7}", other in any::<String>(),
    ) {
        for text in [format!("{number}{unit}"), format!("{number} {unit}"), other] {
            let _ = (text.parse::<Bytes>(), text.parse::<BitRate>());
            let _ = text.parse::<Nanoseconds>();
        }
    }

    #[test]
    fn no_bytes_panic_what_reads_a_far_end(bytes in vec(any::<u8>(), 0..300)) {
        let _ = serde_json::from_slice::<Request>(&bytes);
        let _ = serde_json::from_slice::<Reply>(&bytes);
        let _ = serde_json::from_slice::<Host>(&bytes);
    }
}

//! devlink responses: numbers as in the kernel's header, messages written by hand in the kernel's form.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::netlink::headers::compare;

#[test]
fn the_attributes_have_the_numbers_of_the_kernels_headers() {
    compare(
        "devlink.h",
        &[
            ("DEVLINK_CMD_PORT_GET", COMMAND_PORT.into()),
            ("DEVLINK_CMD_INFO_GET", COMMAND_INFO.into()),
            ("DEVLINK_CMD_HEALTH_REPORTER_GET", COMMAND_HEALTH.into()),
            ("DEVLINK_ATTR_BUS_NAME", BUS),
            ("DEVLINK_ATTR_DEV_NAME", DEVICE),
            ("DEVLINK_ATTR_PORT_INDEX", PORT),
            ("DEVLINK_ATTR_PORT_TYPE", PORT_TYPE),
            ("DEVLINK_ATTR_PORT_DESIRED_TYPE", PORT_DESIRED_TYPE),
            ("DEVLINK_ATTR_PORT_NETDEV_IFINDEX", PORT_NETDEV_INDEX),
            ("DEVLINK_ATTR_INFO_VERSION_FIXED", VERSION_FIXED),
            ("DEVLINK_ATTR_INFO_VERSION_RUNNING", VERSION_RUNNING),
            ("DEVLINK_ATTR_INFO_VERSION_STORED", VERSION_STORED),
            ("DEVLINK_ATTR_INFO_VERSION_NAME", VERSION_NAME),
            ("DEVLINK_ATTR_INFO_VERSION_VALUE", VERSION_VALUE),
            ("DEVLINK_ATTR_HEALTH_REPORTER", REPORTER),
            ("DEVLINK_ATTR_HEALTH_REPORTER_NAME", REPORTER_NAME),
            ("DEVLINK_ATTR_HEALTH_REPORTER_STATE", REPORTER_STATE),
            ("DEVLINK_ATTR_HEALTH_REPORTER_ERR_COUNT", REPORTER_ERRORS),
            (
                "DEVLINK_ATTR_HEALTH_REPORTER_RECOVER_COUNT",
                REPORTER_RECOVERIES,
            ),
        ],
    );
    compare(
        "if_link.h",
        &[
            ("IFLA_PARENT_DEV_NAME", PARENT_NAME),
            ("IFLA_PARENT_DEV_BUS_NAME", PARENT_BUS),
        ],
    );
}

fn place() -> Place {
    Place {
        bus: "pci".to_owned(),
        device: "0000:17:00.0".to_owned(),
        port: Some(1),
        kind: Some(2),
        desired: None,
    }
}

fn answer(device: &str, fill: impl FnOnce(&mut Request)) -> Vec<u8> {
    let mut request = Request::new(0, &[0; GENERIC_HEADER_BYTES]);
    request.put_text(BUS, "pci").put_text(DEVICE, device);
    fill(&mut request);
    request.into_body()
}

#[test]
fn an_interface_is_found_by_its_port() {
    let port = answer("0000:17:00.0", |port| {
        port.put_u32(PORT, 1).put_u32(PORT_NETDEV_INDEX, 4);
        port.put(PORT_TYPE, &2_u16.to_ne_bytes());
    });
    assert_eq!(parse_port(&port, 4).expect("our own"), Some(place()));
    assert_eq!(parse_port(&port, 5).expect("our own"), None);
}

fn versions() -> Versions {
    let info = answer("0000:17:00.0", |info| {
        for (kind, name, value) in [
            (VERSION_FIXED, "board.id", "MT_0000000012"),
            (VERSION_RUNNING, "fw.version", "22.35.1012"),
            (VERSION_RUNNING, "fw.psid", "MT_0000000359"),
            (VERSION_STORED, "fw.version", "22.39.2048"),
            (VERSION_STORED, "fw.psid", "MT_0000000359"),
        ] {
            info.nest(kind, |version| {
                version
                    .put_text(VERSION_NAME, name)
                    .put_text(VERSION_VALUE, value);
            });
        }
    });
    parse_versions(&info).expect("our own")
}

#[test]
fn firmware_that_waits_for_a_reset_is_told_and_what_is_alike_is_not() {
    let nic: NicName = "eth0".parse().expect("a name");
    let mut card = Card::default();
    fill_versions(&mut card, versions(), &nic);
    assert_eq!(card.firmware, Known::Value("22.35.1012".to_owned()));
    assert_eq!(card.board, Known::Value("MT_0000000012".to_owned()));
    assert_eq!(card.psid, Known::Value("MT_0000000359".to_owned()));
    let all = card.versions.value().expect("reported");
    let stored = |one: &&FirmwareVersion| one.state == VersionState::Stored;
    let stored: Vec<_> = all.iter().filter(stored).map(|one| &*one.version).collect();
    assert_eq!(all.len(), 5);
    assert_eq!(stored, ["MT_0000000359", "22.39.2048"]);
    let waiting = BTreeMap::from([("fw.version".to_owned(), "22.39.2048".to_owned())]);
    assert_eq!(card.firmware_stored, Known::Value(waiting));

    let mut told = Card {
        firmware: Known::Value("22.35.1012 (MT_12)".to_owned()),
        ..Card::default()
    };
    fill_versions(&mut told, Versions::default(), &nic);
    assert_eq!(
        told.firmware,
        Known::Value("22.35.1012 (MT_12)".to_owned()),
        "it stays"
    );
    let cause = told.firmware_stored.gap().map(|gap| gap.cause);
    assert_eq!(cause, Some(Cause::NotSaid));
}

#[test]
fn health_reporters_are_those_of_the_device_and_of_its_port() {
    let reporter = |device: &str, port: Option<u32>| {
        answer(device, |answer| {
            if let Some(port) = port {
                answer.put_u32(PORT, port);
            }
            answer.nest(REPORTER, |reporter| {
                reporter
                    .put_text(REPORTER_NAME, "tx")
                    .put(REPORTER_STATE, &[1]);
                reporter.put(REPORTER_ERRORS, &5_u64.to_ne_bytes());
                reporter.put(REPORTER_RECOVERIES, &4_u64.to_ne_bytes());
            });
        })
    };
    let read = |body: &[u8]| parse_reporter(body, &place(), "p").expect("our own");
    let own = read(&reporter("0000:17:00.0", Some(1))).expect("its port's");
    assert_eq!(
        (own.name.as_str(), own.state),
        ("tx", Known::Value("error".to_owned()))
    );
    assert_eq!((own.errors.get(), own.recoveries.get()), (Some(5), Some(4)));
    assert!(
        read(&reporter("0000:17:00.0", None)).is_some(),
        "the device's"
    );
    assert!(
        read(&reporter("0000:17:00.0", Some(2))).is_none(),
        "another port's"
    );
    assert!(
        read(&reporter("0000:18:00.0", None)).is_none(),
        "another device's"
    );
}

proptest! {
    #[test]
    fn no_bytes_panic_a_parser(body in vec(any::<u8>(), 0..160)) {
        let _ = (parse_port(&body, 4).is_ok(), parse_versions(&body).is_ok());
        let _ = parse_reporter(&body, &place(), "p").is_ok();
        let reporter = answer("0000:17:00.0", |answer| {
            answer.put(REPORTER, &body);
        });
        let _ = parse_reporter(&reporter, &place(), "p").is_ok();
    }
}

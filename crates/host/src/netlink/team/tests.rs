//! Team responses: numbers as in the kernel's header, messages written by hand as in `team_nl_fill_one_*` of
//! drivers/net/team.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::netlink::headers::compare;
use crate::netlink::message::Request;

#[test]
fn the_attributes_have_the_numbers_of_the_kernels_header() {
    compare(
        "if_team.h",
        &[
            ("TEAM_CMD_OPTIONS_GET", COMMAND_OPTIONS.into()),
            ("TEAM_CMD_PORT_LIST_GET", COMMAND_PORTS.into()),
            ("TEAM_ATTR_TEAM_IFINDEX", TEAM_INDEX),
            ("TEAM_ATTR_LIST_OPTION", OPTIONS),
            ("TEAM_ATTR_LIST_PORT", PORTS),
            ("TEAM_ATTR_ITEM_OPTION", OPTION),
            ("TEAM_ATTR_ITEM_PORT", PORT),
            ("TEAM_ATTR_OPTION_NAME", OPTION_NAME),
            ("TEAM_ATTR_OPTION_TYPE", OPTION_TYPE),
            ("TEAM_ATTR_OPTION_DATA", OPTION_DATA),
            ("TEAM_ATTR_OPTION_PORT_IFINDEX", OPTION_PORT_INDEX),
            ("TEAM_ATTR_PORT_IFINDEX", PORT_INDEX),
            ("TEAM_ATTR_PORT_LINKUP", PORT_LINK_UP),
        ],
    );
}

fn answer(list: u16, fill: impl FnOnce(&mut Request)) -> Answer {
    let mut request = Request::new(0, &[0; GENERIC_HEADER_BYTES]);
    request.put_u32(TEAM_INDEX, 9).nest(list, fill);
    Answer {
        kind: 23,
        body: request.into_body(),
    }
}

fn put(list: &mut Request, name: &str, port: Option<u32>, value: &Value) {
    list.nest(OPTION, |option| {
        option.put_text(OPTION_NAME, name);
        match value {
            Value::Number(number) => {
                option.put(OPTION_TYPE, &[TYPE_NUMBER]);
                option.put_u32(OPTION_DATA, *number);
            }
            Value::Text(text) => {
                option.put(OPTION_TYPE, &[TYPE_TEXT]);
                option.put_text(OPTION_DATA, text);
            }
            Value::Flag(on) => {
                option.put(OPTION_TYPE, &[TYPE_FLAG]);
                if *on {
                    option.put(OPTION_DATA, &[]);
                }
            }
        }
        if let Some(port) = port {
            option.put_u32(OPTION_PORT_INDEX, port);
        }
    });
}

/// The options of a team with the ports 2 and 3, in two messages as for a long list.
fn options(mode: &str, active: Option<u32>, third: bool) -> Known<Vec<Setting>> {
    let first = answer(OPTIONS, |list| {
        put(list, "mode", None, &Value::Text(mode.to_owned()));
        // A type that is not used here (`NLA_BINARY`).
        list.nest(OPTION, |option| {
            option.put_text(OPTION_NAME, "bpf_hash_func");
            option.put(OPTION_TYPE, &[11]).put(OPTION_DATA, &[1, 2, 3]);
        });
        put(list, "enabled", Some(2), &Value::Flag(true));
    });
    let second = answer(OPTIONS, |list| {
        put(list, "enabled", Some(3), &Value::Flag(third));
        if let Some(active) = active {
            put(list, "activeport", None, &Value::Number(active));
        }
    });
    let parsed = parse_options(Some(&[first, second])).expect("well formed");
    assert!(parsed.is_some());
    told(Ok(parsed), "p", "options")
}

fn ports() -> Known<Vec<(u32, bool)>> {
    let list = answer(PORTS, |list| {
        list.nest(PORT, |port| {
            port.put_u32(PORT_INDEX, 2).put(PORT_LINK_UP, &[]);
        });
        list.nest(PORT, |port| {
            port.put_u32(PORT_INDEX, 3);
        });
    });
    told(parse_ports(Some(&[list])), "p", "ports")
}

fn names() -> Names {
    let name = |text: &str| text.parse().expect("a name");
    Names::from([(2, name("eth2")), (3, name("eth3")), (9, name("team0"))])
}

fn part(port: u32, options: &Known<Vec<Setting>>) -> (Option<String>, Option<String>) {
    let part = team_port(port, names().get(&9).cloned(), options, &ports(), "p");
    assert_eq!(part.bond.value().map(NicName::as_str), Some("team0"));
    assert!(part.aggregator.gap().is_some() && part.link_failures.gap().is_some());
    (
        part.state.value().cloned(),
        part.mii_status.value().cloned(),
    )
}

#[test]
fn a_team_of_an_active_port_and_a_backup_tells_which_is_which() {
    let options = options("activebackup", Some(3), true);
    let team = team(&options, &names(), "p");
    assert_eq!(team.mode, Known::Value("activebackup".to_owned()));
    let active = team.active_port.expect("the mode has one");
    assert_eq!(active.value().map(NicName::as_str), Some("eth3"));
    let word = |text: &str| Some(text.to_owned());
    assert_eq!(part(2, &options), (word("backup"), word("up")));
    assert_eq!(part(3, &options), (word("active"), word("down")));
}

#[test]
fn the_ports_of_other_modes_are_active_while_they_are_enabled() {
    let options = options("loadbalance", None, false);
    assert_eq!(team(&options, &names(), "p").active_port, None);
    assert_eq!(part(2, &options).0.as_deref(), Some("active"));
    assert_eq!(part(3, &options).0.as_deref(), Some("disabled"));
    assert_eq!(part(4, &options), (None, None), "of no port of this team");
}

#[test]
fn a_team_without_a_mode_and_one_that_does_not_answer_are_told_apart() {
    let cause = |known: &Known<String>| known.gap().map(|gap| gap.cause);
    let options = options(NO_MODE, None, true);
    assert_eq!(
        cause(&team(&options, &names(), "p").mode),
        Some(Cause::NotSaid)
    );
    let denied: Known<Vec<Setting>> = told(
        Err(Failure::Kernel {
            errno: libc::EPERM,
            message: None,
        }),
        "p",
        "options",
    );
    assert_eq!(
        cause(&team(&denied, &names(), "p").mode),
        Some(Cause::Denied)
    );
    assert_eq!(
        cause(&team_port(2, None, &denied, &ports(), "p").state),
        Some(Cause::Denied)
    );
    let none: Known<Vec<Setting>> = told(parse_options(None), "p", "options");
    assert_eq!(
        cause(&team(&none, &names(), "p").mode),
        Some(Cause::Absent),
        "a kernel without the family"
    );
}

proptest! {
    #[test]
    fn no_bytes_panic(body in vec(any::<u8>(), 0..160)) {
        let answers = [Answer { kind: 0, body }];
        if let Ok(options) = parse_options(Some(&answers)) {
            let options = told(Ok(options), "p", "options");
            let _ = team(&options, &names(), "p");
            let _ = team_port(2, None, &options, &ports(), "p");
        }
        let _ = parse_ports(Some(&answers));
    }
}

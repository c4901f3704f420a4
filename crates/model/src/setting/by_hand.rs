//! Shell commands for the settings that linerate writes: printed for what could not be restored, and in reports.

use super::{
    ByHand, LinkSpeed, Packets, QdiscSpec, SettingKey, Value, parse_addresses, parse_class_rules,
    parse_rates, parse_vlan_link,
};
use crate::shell::{quoted, quoted_words};
use crate::units::BitRate;

/// A caveat about the rates that dcb(8) takes; a shell treats it as a comment.
const DCB_RATES: &str = "  # with iproute2 6.18 or later: an earlier dcb sets 125 times the rate";

/// The command that sets `key` to `value`; none if no common tool can.
pub fn by_hand(key: &SettingKey, value: &Value) -> Option<String> {
    if let Some(file) = key.fixed_file() {
        let text = file.text(value)?;
        // echo may parse these as options or escapes.
        let print = if text.starts_with('-') || text.contains('\\') {
            "printf '%s\\n'"
        } else {
            "echo"
        };
        let (text, path) = (quoted(&text), quoted(&format!("/{}", file.path)));
        return Some(format!("{print} {text} > {path}"));
    }
    if let Some(folder) = key.folder() {
        let folder = quoted(&format!("/{folder}"));
        return match value {
            Value::Switch(true) => Some(format!("mkdir {folder}")),
            Value::Switch(false) => Some(format!("rmdir {folder}")),
            _ => None,
        };
    }
    match key.spec().by_hand {
        ByHand::Nothing => None,
        ByHand::Command(template) => Some(filled(template, key, value)),
        ByHand::Code(of) => of(key, value),
    }
}

/// A command with its words in place of the placeholders.
fn filled(template: &str, key: &SettingKey, value: &Value) -> String {
    let words = template.split(' ').map(|word| match word {
        "VALUE" => quoted_words(&value.to_string()),
        "MASK" => mask_of_queue(key),
        word if word.bytes().all(|b| b.is_ascii_uppercase()) => {
            quoted(&key.word(word).unwrap_or_default())
        }
        word => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// ethtool(8) takes a hexadecimal mask of queues.
fn mask_of_queue(key: &SettingKey) -> String {
    let index = match key {
        SettingKey::Nic(_, knob) => knob.queue().map_or(0, |(_, index)| index),
        _ => 0,
    };
    let zeros = "0".repeat(index as usize / 4);
    let digit = 1 << (index % 4);
    format!("0x{digit}{zeros}")
}

/// The interface of a key, quoted.
fn nic_of(key: &SettingKey) -> Option<String> {
    key.word("NAME").map(|nic| quoted(&nic))
}

/// The sysctl(8) command.
pub(super) fn by_sysctl(key: &SettingKey, value: &Value) -> Option<String> {
    let SettingKey::Sysctl(name) = key else {
        return None;
    };
    Some(format!("sysctl -w {}", quoted(&format!("{name}={value}"))))
}

/// The nft(8) command that adds or removes linerate's own table.
pub(super) fn by_nft(_key: &SettingKey, value: &Value) -> Option<String> {
    const TABLE: &str = "inet linerate_conntrack";
    match value {
        Value::Switch(true) => Some(format!(
            "nft 'table {TABLE} {{ chain prerouting {{ type filter hook prerouting priority 0; ct state new; }}; }}'"
        )),
        Value::Switch(false) => Some(format!("nft delete table {TABLE}")),
        _ => None,
    }
}

/// The ethtool(8) command for a table that is equally spread.
pub(super) fn by_rss_table(key: &SettingKey, value: &Value) -> Option<String> {
    let words = quoted_words(&value.to_string());
    let nic = nic_of(key)?;
    words
        .starts_with("equal ")
        .then(|| format!("ethtool -X {nic} {words}"))
}

/// The ethtool(8) command for autonegotiation and speed.
pub(super) fn by_link(key: &SettingKey, value: &Value) -> Option<String> {
    let Value::Text(words) = value else {
        return None;
    };
    let nic = nic_of(key)?;
    Some(match LinkSpeed::parse(words)? {
        LinkSpeed::Negotiated(modes) => {
            let modes: Vec<String> = modes
                .iter()
                .map(|mode| format!("{} on", quoted(mode)))
                .collect();
            format!("ethtool -s {nic} autoneg on advertise {}", modes.join(" "))
        }
        LinkSpeed::Forced {
            mbit_per_s,
            full_duplex,
        } => {
            let duplex = if full_duplex { "full" } else { "half" };
            format!("ethtool -s {nic} speed {mbit_per_s} duplex {duplex} autoneg off")
        }
    })
}

/// The tc(8) commands for a qdisc whose parameters linerate models.
pub(super) fn by_tc(key: &SettingKey, value: &Value) -> Option<String> {
    let Value::Qdisc(qdisc) = value else {
        return None;
    };
    let nic = nic_of(key)?;
    let qdisc_spec = qdisc.qdisc_spec()?;
    // The handle that was read, so that filters find it again.
    let major = if qdisc.handle == 0 {
        "1".to_owned()
    } else {
        format!("{:x}", qdisc.handle >> 16)
    };
    let words = qdisc_spec.to_string();
    let root = words.split(" class ").next()?.split(" leaf ").next()?;
    let add = |what: &str, parent: u16, rest: String| {
        let parent = if parent == 0 {
            format!("{major}:")
        } else {
            format!("{major}:{parent:x}")
        };
        format!(
            " && tc {what} add dev {nic} parent {parent} {}",
            quoted_words(&rest)
        )
    };
    let mut commands = String::new();
    let root = match &qdisc_spec {
        QdiscSpec::Htb(htb) => {
            for (minor, class) in htb.downwards() {
                let rest = format!("classid {major}:{minor:x} htb{}", class.words());
                commands += &add("class", class.parent, rest);
                if let Some(leaf) = &class.leaf {
                    commands += &add("qdisc", minor, leaf.to_string());
                }
            }
            // Its only class may be written with the root.
            root.split(" rate ").next()?
        }
        other => {
            for (queue, leaf) in other.leaves().into_iter().flatten() {
                commands += &add("qdisc", *queue, leaf.to_string());
            }
            root
        }
    };
    let handle = if commands.is_empty() {
        String::new()
    } else {
        format!(" handle {major}:")
    };
    let root = quoted_words(root);
    Some(format!(
        "tc qdisc replace dev {nic} root{handle} {root}{commands}"
    ))
}

/// The ip-link(8) command for a VLAN device.
pub(super) fn by_vlan_link(key: &SettingKey, value: &Value) -> Option<String> {
    let nic = nic_of(key)?;
    let Some(link) = parse_vlan_link(text_of(value)?)? else {
        return Some(format!("ip link delete dev {nic}"));
    };
    let words = link.to_string();
    let (parent, rest) = words.split_once(' ')?;
    let parent = quoted(parent);
    Some(format!(
        "ip link add link {parent} name {nic} type vlan {rest}"
    ))
}

/// The ip-link(8) command for the administrative state.
pub(super) fn by_up(key: &SettingKey, value: &Value) -> Option<String> {
    let state = match value {
        Value::Switch(true) => "up",
        Value::Switch(false) => "down",
        _ => return None,
    };
    Some(format!("ip link set dev {} {state}", nic_of(key)?))
}

/// The ip-address(8) commands for static addresses.
pub(super) fn by_addresses(key: &SettingKey, value: &Value) -> Option<String> {
    let nic = nic_of(key)?;
    let addresses = parse_addresses(text_of(value)?)?;
    let flush = format!("ip address flush dev {nic} scope global permanent");
    let add = addresses.iter().map(|address| {
        let words = quoted_words(&address.to_string());
        format!("ip address add {words} dev {nic}")
    });
    let commands: Vec<String> = std::iter::once(flush).chain(add).collect();
    Some(commands.join(" && "))
}

/// The nft(8) command that replaces the rules of an interface.
pub(super) fn by_class_rules(key: &SettingKey, value: &Value) -> Option<String> {
    let nic = key.word("NAME")?;
    let table = format!("netdev linerate_qos_{nic}");
    let rules = parse_class_rules(text_of(value)?)?;
    let clear = format!("table {table}; delete table {table}");
    let lines = rules.iter().map(|rule| {
        let class = format!("{:x}:{:x}", rule.class >> 16, rule.class & 0xffff);
        let set = format!("meta priority set {class} accept");
        match rule.packets {
            Packets::Priority(number) => format!("meta priority 0x{number:x} {set}; "),
            Packets::Mark(number) => format!("meta mark {number} {set}; "),
            Packets::Vlan(id) => format!("vlan id {id} {set}; "),
            Packets::Dscp(dscp) => format!("ip dscp {dscp} {set}; ip6 dscp {dscp} {set}; "),
            Packets::Port(port) => ["tcp sport", "tcp dport", "udp sport", "udp dport"]
                .map(|field| format!("{field} {port} {set}; "))
                .concat(),
        }
    });
    let lines: String = lines.collect();
    let script = if lines.is_empty() {
        clear
    } else {
        let hook = format!("type filter hook egress device \"{nic}\" priority 0");
        format!("{clear}; table {table} {{ chain egress {{ {hook}; {lines}}}; }}")
    };
    Some(format!("nft {}", quoted(&script)))
}

/// The dcb(8) command for PFC.
pub(super) fn by_dcb_pfc(key: &SettingKey, value: &Value) -> Option<String> {
    let (nic, words) = (nic_of(key)?, text_of(value)?);
    let on = words.split_whitespace();
    let on = on.map(|one| format!(" {}", quoted(&format!("{one}:on"))));
    let on: String = on.collect();
    Some(format!("dcb pfc set dev {nic} prio-pfc all:off{on}"))
}

/// The dcb(8) command for rate limits.
pub(super) fn by_dcb_maxrate(key: &SettingKey, value: &Value) -> Option<String> {
    let (nic, words) = (nic_of(key)?, text_of(value)?);
    let rates = parse_rates(words)?.map(BitRate::as_bit_per_s);
    let limits = (0u32..).zip(rates);
    let limits = limits.map(|(class, rate)| format!(" {class}:{rate}"));
    let limits: String = limits.collect();
    // No unit of a rate works with every version of dcb: older ones pass bytes for the kernel's kbit, whatever the
    // unit.
    let note = if rates == [0; 8] { "" } else { DCB_RATES };
    Some(format!(
        "dcb maxrate set dev {nic} tc-maxrate{limits}{note}"
    ))
}

/// The dcb(8) commands for the application priority table.
pub(super) fn by_dcb_app(key: &SettingKey, value: &Value) -> Option<String> {
    let (nic, words) = (nic_of(key)?, text_of(value)?);
    let flush = format!("dcb app flush dev {nic}");
    if words.is_empty() {
        return Some(flush);
    }
    let words = quoted_words(words);
    Some(format!("{flush} && dcb app add dev {nic} {words}"))
}

/// The dcb(8) command for ETS.
pub(super) fn by_dcb_ets(key: &SettingKey, value: &Value) -> Option<String> {
    let (nic, words) = (nic_of(key)?, text_of(value)?);
    let words = quoted_words(&words.replace("credit-based", "cbs"));
    Some(format!("dcb ets set dev {nic} {words}"))
}

fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::Text(words) => Some(words),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn key(text: &str) -> SettingKey {
        text.parse().expect("a key")
    }

    #[test]
    fn what_was_lossless_and_limited_can_be_set_by_dcb() {
        let by_hand = |name: &str, text: &str| by_hand(&key(name), &Value::Text(text.to_owned()));
        assert_eq!(
            by_hand("nic/eth2/dcb/pfc", "3 4").as_deref(),
            Some("dcb pfc set dev eth2 prio-pfc all:off 3:on 4:on")
        );
        assert_eq!(
            by_hand("nic/eth2/dcb/pfc", "").as_deref(),
            Some("dcb pfc set dev eth2 prio-pfc all:off")
        );
        assert_eq!(
            by_hand("nic/eth2/dcb/maxrate", "none 1kbit").as_deref(),
            Some(
                "dcb maxrate set dev eth2 tc-maxrate 0:0 1:1000 2:0 3:0 4:0 5:0 6:0 7:0  \
                 # with iproute2 6.18 or later: an earlier dcb sets 125 times the rate"
            )
        );
        // No text for "no limit" works with every version of dcb.
        assert_eq!(
            by_hand("nic/eth2/dcb/maxrate", "").as_deref(),
            Some("dcb maxrate set dev eth2 tc-maxrate 0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0")
        );
    }

    #[test]
    fn what_was_asked_for_in_words_can_be_set_by_the_tools_whose_words_they_are() {
        let by_hand = |name: &str, text: &str| {
            let key = key(name);
            let value = key.parse_value(text).expect("words");
            by_hand(&key, &value).expect("a command")
        };
        assert_eq!(
            by_hand("nic/eth2/qdisc", "fq limit 500 nopacing"),
            "tc qdisc replace dev eth2 root fq limit 500 nopacing"
        );
        assert_eq!(
            by_hand("nic/eth2/qdisc", "htb default 10 rate 1gbit"),
            "tc qdisc replace dev eth2 root handle 1: htb default 10 && \
             tc class add dev eth2 parent 1: classid 1:10 htb rate 1gbit ceil 1gbit"
        );
        assert_eq!(
            by_hand("nic/eth2/link/speed", "auto 1000baseT/Full 100baseT/Full"),
            "ethtool -s eth2 autoneg on advertise 100baseT/Full on 1000baseT/Full on"
        );
        assert_eq!(
            by_hand("nic/eth2/link/speed", "1000 full"),
            "ethtool -s eth2 speed 1000 duplex full autoneg off"
        );
        assert_eq!(
            by_hand("nic/eth2/rss/key", "6d5a"),
            "ethtool -X eth2 hkey 6d:5a"
        );
        assert_eq!(
            by_hand(
                "nic/eth2/qdisc",
                "htb default 30 class 1 rate 1gbit class 30 parent 1 rate 8mbit leaf pfifo limit 9"
            ),
            "tc qdisc replace dev eth2 root handle 1: htb default 30 && \
             tc class add dev eth2 parent 1: classid 1:1 htb rate 1gbit ceil 1gbit && \
             tc class add dev eth2 parent 1:1 classid 1:30 htb rate 8mbit ceil 8mbit && \
             tc qdisc add dev eth2 parent 1:30 pfifo limit 9"
        );
        assert_eq!(
            by_hand("nic/eth2/qdisc", "mq leaf 2 fq"),
            "tc qdisc replace dev eth2 root handle 1: mq && tc qdisc add dev eth2 parent 1:2 fq"
        );
        assert_eq!(
            by_hand("nic/v10/vlan/link", "eth1 id 10"),
            "ip link add link eth1 name v10 type vlan id 10"
        );
        assert_eq!(
            by_hand("nic/v10/vlan/link", "none"),
            "ip link delete dev v10"
        );
        assert_eq!(by_hand("nic/v10/up", "off"), "ip link set dev v10 down");
        assert_eq!(
            by_hand("nic/v10/addresses", "10.0.0.1/24"),
            "ip address flush dev v10 scope global permanent && ip address add 10.0.0.1/24 dev v10"
        );
        assert_eq!(
            by_hand("nic/e0/class-rules", "vlan 10 -> 1:20"),
            "nft 'table netdev linerate_qos_e0; delete table netdev linerate_qos_e0; \
             table netdev linerate_qos_e0 { chain egress { type filter hook egress device \"e0\" priority 0; \
             vlan id 10 meta priority set 1:20 accept; }; }'"
        );
        assert_eq!(
            by_hand("nic/eth2/dcb/app", "dscp-prio 26:3"),
            "dcb app flush dev eth2 && dcb app add dev eth2 dscp-prio 26:3"
        );
    }

    /// The words of a command as a shell splits them. Nothing can create a file in the shell's folder: a command or a
    /// redirection in a word would print an error.
    #[expect(
        clippy::disallowed_methods,
        reason = "a test: only a shell knows what it makes of words"
    )]
    fn taken_by_sh(command: &str) -> Vec<String> {
        let mut shell = Command::new("sh");
        shell.current_dir("/proc");
        let script = format!("for word in {command}; do printf '%s\\0' \"$word\"; done");
        let output = shell.args(["-c", &script]).output().expect("a shell");
        assert!(output.status.success(), "{command}");
        assert!(output.stderr.is_empty(), "{command}: {output:?}");
        let words = String::from_utf8(output.stdout).expect("text");
        words.split_terminator('\0').map(str::to_owned).collect()
    }

    #[test]
    fn a_hostile_name_or_value_is_a_word_of_the_command_and_runs_nothing() {
        let text = |text: &str| Value::Text(text.to_owned());
        let hostile = "`>a`$(>b);>c";
        let rows = [
            ("nic/`>a`$(>b);>c/mtu", Value::Integer(1_500)),
            ("nic/e/private-flag/`>a`$(>b);>c", Value::Switch(true)),
            ("nic/e/feature/`>a`$(>b);>c", Value::Switch(true)),
            ("nic/e/fec", text(hostile)),
            ("nic/e/vlan/egress", text(hostile)),
            ("nic/e/dcb/ets", text(hostile)),
            ("nic/e/rss/table", text("equal `>a`$(>b);>c")),
            ("sysctl/net.ipv4.tcp_x", text(hostile)),
        ];
        for (name, value) in rows {
            let command = by_hand(&key(name), &value).unwrap_or_else(|| panic!("{name}"));
            let words = taken_by_sh(&command);
            assert!(words.iter().any(|word| word.contains(hostile)), "{words:?}");
        }
        let app = by_hand(&key("nic/e/dcb/app"), &text("dscp-prio 1;>c"));
        let app = app.expect("a command");
        assert!(app.ends_with("dev e dscp-prio '1;>c'"), "{app}");
    }

    #[test]
    fn what_is_a_file_or_a_folder_is_set_by_commands_for_files() {
        let governor = by_hand(
            &key("cpu/policy4/governor"),
            &Value::Text("performance".to_owned()),
        );
        assert_eq!(
            governor.as_deref(),
            Some("echo performance > /sys/devices/system/cpu/cpufreq/policy4/scaling_governor")
        );
        let defaults = by_hand(&key("rdma/rxe0/cm-defaults"), &Value::Switch(false));
        assert_eq!(
            defaults.as_deref(),
            Some("rmdir /sys/kernel/config/rdma_cm/rxe0")
        );
    }

    #[test]
    fn what_echo_would_take_for_an_option_or_an_escape_is_printed_by_printf() {
        let scheduler = key("block/sda/scheduler");
        for (value, command) in [
            ("none", "echo none > /sys/block/sda/queue/scheduler"),
            ("-n", r"printf '%s\n' -n > /sys/block/sda/queue/scheduler"),
            (
                r"a\c",
                r"printf '%s\n' 'a\c' > /sys/block/sda/queue/scheduler",
            ),
        ] {
            let value = Value::Text(value.to_owned());
            assert_eq!(by_hand(&scheduler, &value).as_deref(), Some(command));
        }
    }

    #[test]
    fn a_queue_is_named_to_ethtool_by_a_mask() {
        let by_hand = |name: &str| by_hand(&key(name), &Value::Integer(8));
        assert_eq!(
            by_hand("nic/eth2/queue/rx-6/rx-usecs").as_deref(),
            Some("ethtool --per-queue eth2 queue_mask 0x40 --coalesce rx-usecs 8")
        );
        assert_eq!(
            by_hand("nic/eth2/queue/tx-0/tx-usecs").as_deref(),
            Some("ethtool --per-queue eth2 queue_mask 0x1 --coalesce tx-usecs 8")
        );
    }
}

//! Settings of a host as a file for any host names them, and why a host does not have one.

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::{Host, Nic, NicKind, QueueKind};
use linerate_model::ids::{CpuSet, NicName};
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::lab::{Word, Words};
use linerate_model::setting::{MachineKnob, NicKnob, SettingError, SettingKey, Value, current};

/// Settings of one host with their values.
pub type HostSettings = Vec<(SettingKey, Value)>;

/// Settings of a host as a plan for any host names them, and what the host goes without, in words.
pub fn settings_on(
    host: &Host,
    nic: &NicName,
    settings: &Words,
) -> Outcome<(HostSettings, Vec<String>)> {
    let (mut wanted, mut without) = (Vec::new(), Vec::new());
    for (key, word) in settings {
        let keys = match keys(key, host, nic, nic.as_str()) {
            Ok(keys) => keys,
            Err(stop) if stop.code == Code::NotSupported => {
                without.push(format!("without {key}: {}", stop.message));
                continue;
            }
            Err(stop) => return Err(stop),
        };
        // One line for many CPUs.
        let gap = keys.iter().find_map(|key| lacking(host, key));
        if let Some(gap) = gap {
            without.push(format!(
                "without {key}, which this host does not have: {gap}"
            ));
            continue;
        }
        for key in keys {
            let value = value(&key, word, host, nic)?;
            wanted.push((key, value));
        }
    }
    Ok((wanted, without))
}

/// Why a host does not have a setting. One that could not be read may be there.
pub(super) fn lacking(host: &Host, key: &SettingKey) -> Option<Gap> {
    let now = current(host, key);
    // Documentation/ABI/testing/sysfs-devices-system-cpu: `notsupported` has one thread a core, `notimplemented` no switch.
    if let (SettingKey::Machine(MachineKnob::Smt), Known::Value(Value::Text(word))) = (key, &now)
        && word.starts_with("not")
    {
        let path = "/sys/devices/system/cpu/smt/control";
        return Known::<()>::unknown(Cause::Inapplicable, path, word.as_str())
            .gap()
            .cloned();
    }
    let gap = now.ok().err()?.clone();
    matches!(gap.cause, Cause::Absent | Cause::Inapplicable).then_some(gap)
}

/// Why an IPoIB interface cannot have a mode: there is none on the path, or its driver has datagram mode only.
pub(super) fn without_ipoib_mode(host: &Host, key: &SettingKey, value: &Value) -> Option<String> {
    let SettingKey::Nic(nic, NicKnob::IpoibMode) = key else {
        return None;
    };
    let of_path = host.nic(nic)?;
    if of_path.kind != NicKind::Ipoib {
        let mut others = host.nics.iter().filter(|nic| nic.kind == NicKind::Ipoib);
        return Some(match others.next() {
            Some(other) => {
                let other = &other.name;
                format!("{nic} is not an IPoIB interface; {other} is: select it with --address")
            }
            None => "this host has no IPoIB device".to_owned(),
        });
    }
    let supports = of_path.stack.ipoib_connected.as_ref();
    let refused = supports.and_then(Known::value) == Some(&false);
    (refused && value.to_string() == "connected").then(|| {
        format!(
            "{nic} has datagram mode only: its hardware address lacks the RC flag (RFC 4755), as with ConnectX-4 and later \
             (enhanced IPoIB of mlx5)"
        )
    })
}

/// The settings on a host that a key of a file matches: `@` is the `noun`, `rx-*` and `tx-*` all queues of the interface,
/// `cpu*` and `policy*` all CPUs and all groups of them that change frequency together.
pub(super) fn keys(text: &str, host: &Host, nic: &NicName, noun: &str) -> Outcome<Vec<SettingKey>> {
    let text = text
        .split('/')
        .map(|word| if word == "@" { noun } else { word })
        .collect::<Vec<_>>()
        .join("/");
    let queues = |kind| {
        let queues = host.nic(nic).map_or(&[][..], |nic: &Nic| &nic.queues);
        let of_kind = queues.iter().filter(move |queue| queue.kind == kind);
        of_kind.map(|queue| queue.index).collect::<Vec<u32>>()
    };
    let numbers = if text.contains("/rx-*") {
        queues(QueueKind::Rx)
    } else if text.contains("/tx-*") {
        queues(QueueKind::Tx)
    } else if text.contains("/policy*") {
        let policies = host.power.frequency.value().into_iter().flatten();
        policies.filter_map(|policy| policy.number.get()).collect()
    } else if text.contains("/cpu*") {
        host.cpus.iter().map(|cpu| cpu.id.0).collect()
    } else if let Some(both) = rx_and_tx_channels(&text, host, nic) {
        return Ok(both);
    } else {
        let key = text
            .parse()
            .map_err(|error: SettingError| Stop::new(Code::BadInput, error.to_string()))?;
        if matches!(key, SettingKey::Trial(_)) {
            let why = format!("{key} belongs to the trial: vary an option of the workload instead");
            return Err(Stop::new(Code::BadInput, why));
        }
        return Ok(vec![key]);
    };
    if numbers.is_empty() {
        let why = format!("`{text}` matches nothing on this path");
        return Err(Stop::new(Code::NotSupported, why));
    }
    let one = |number: u32| keys(&text.replace('*', &number.to_string()), host, nic, noun);
    let all: Vec<Vec<SettingKey>> = numbers.into_iter().map(one).collect::<Outcome<_>>()?;
    Ok(all.concat())
}

/// The receive and transmit channels of a driver without combined ones: `combined = N` is N of each (ethtool(8), -L).
fn rx_and_tx_channels(text: &str, host: &Host, nic: &NicName) -> Option<Vec<SettingKey>> {
    let knob = |knob| SettingKey::Nic(nic.clone(), knob);
    if text != knob(NicKnob::ChannelsCombined).to_string() {
        return None;
    }
    let channels = host.nic(nic)?.channels.value()?;
    let has = |most: &Known<u32>| most.get().unwrap_or(0) > 0;
    let apart = !has(&channels.combined_max) && has(&channels.rx_max) && has(&channels.tx_max);
    apart.then(|| vec![knob(NicKnob::ChannelsRx), knob(NicKnob::ChannelsTx)])
}

/// A value; for CPUs also `@near`, those of the NIC's node, `@all`, and `@none`.
pub(super) fn value(key: &SettingKey, word: &Word, host: &Host, nic: &NicName) -> Outcome<Value> {
    let text = match word.to_string().as_str() {
        "@near" => {
            let near = host
                .nic(nic)
                .and_then(|nic| nic.local_cpus.value().cloned());
            let near = near.ok_or_else(|| {
                let why = format!("the local CPUs of {nic} are unknown");
                Stop::new(Code::NotSupported, why)
            })?;
            near.to_string()
        }
        "@all" => {
            let all: CpuSet = host.cpus.iter().map(|cpu| cpu.id).collect();
            all.to_string()
        }
        "@none" => String::new(),
        text => text.to_owned(),
    };
    key.parse_value(&text)
        .map_err(|error| Stop::new(Code::BadInput, error.to_string()))
}

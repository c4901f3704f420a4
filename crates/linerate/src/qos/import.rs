//! `qos import`: a file of classes of what an interface has now, also if linerate did not make it: the VLANs on it with their egress maps, the
//! limits of traffic classes (mlnx_qos, dcb(8)) and of qdiscs (tc(8)), and linerate's rules.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use linerate_host::netlink::spec_without_filters;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};
use linerate_model::qos::{Held, imported};
use linerate_model::setting::{NicKnob, SettingKey, Value, parse_class_rules};
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::local::LocalEndpoint;

/// Prints the file, and what of the host is not in it.
pub(super) fn run(interface: &NicName, state: &Path, say: &Say) -> Outcome<()> {
    let endpoint = LocalEndpoint::open(state)?;
    let host = endpoint.read_host();
    let denied = RefCell::new(BTreeSet::new());
    let held = |nic: &NicName| {
        let read = |knob: NicKnob| {
            let key = SettingKey::Nic(nic.clone(), knob);
            match endpoint.read_setting(&key) {
                Known::Value(value) => Some(value),
                Known::Unknown(gap) => {
                    if gap.cause == Cause::Denied {
                        denied
                            .borrow_mut()
                            .insert(format!("{key} cannot be read: {}", gap.reason));
                    }
                    None
                }
            }
        };
        Held {
            qdisc: match read(NicKnob::Qdisc) {
                Some(Value::Qdisc(qdisc)) => {
                    qdisc.qdisc_spec().or_else(|| spec_without_filters(&qdisc))
                }
                _ => None,
            },
            rules: match read(NicKnob::ClassRules) {
                Some(Value::Text(rules)) => parse_class_rules(&rules).unwrap_or_default(),
                _ => Vec::new(),
            },
        }
    };
    let imported = imported(&host, interface, held);
    let (file, notes) = imported.map_err(|error| super::not_here(&error))?;
    for note in denied.take().iter().chain(&notes) {
        say.note(note);
    }
    let text = toml::to_string(&file)
        .map_err(|error| Stop::new(Code::Bug, format!("cannot write the file: {error}")))?;
    say.data(text.trim_end())
}

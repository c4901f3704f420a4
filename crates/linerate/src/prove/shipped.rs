//! The plans that come with linerate, by name: `tune apply --from stack-base --nic eth2`.
//!
//! A plan file names each setting of one host. These are for any host: `@` is the interface that is given beside it, and
//! `cpu*` each CPU.

use std::path::Path;

use linerate_analysis::experiment::host_settings::settings_on;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::ids::NicName;
use linerate_model::lab::Words;
use linerate_model::plan::Change;
use linerate_runtime::endpoint::local::LocalEndpoint;
use serde::Deserialize;

/// The plans that come with linerate.
const SHIPPED: [(&str, &str); 1] = [("stack-base", include_str!("../../plans/stack-base.toml"))];

#[derive(Debug, Deserialize)]
struct Plan {
    settings: Words,
}

/// The changes of the plan of this name on a host, and what it goes without; none if no plan has this name.
pub(super) fn changes(
    name: &Path,
    nic: Option<&NicName>,
    endpoint: &LocalEndpoint,
) -> Option<Outcome<(Vec<Change>, Vec<String>)>> {
    let (name, text) = SHIPPED
        .iter()
        .find(|(shipped, _)| name.to_str() == Some(shipped))?;
    Some(changes_of(name, text, nic, endpoint))
}

fn changes_of(
    name: &str,
    text: &str,
    nic: Option<&NicName>,
    endpoint: &LocalEndpoint,
) -> Outcome<(Vec<Change>, Vec<String>)> {
    let plan: Plan = toml::from_str(text)
        .map_err(|error| Stop::new(Code::Bug, format!("the plan {name}: {error}")))?;
    let host = endpoint.read_host();
    let nic = nic.ok_or_else(|| {
        let why = format!("cannot use the plan {name}: it is for one interface, and none is named");
        Stop::new(Code::Usage, why).hint("name it: `--nic IFACE`; `linerate map` lists them")
    })?;
    if host.nic(nic).is_none() {
        let why = format!("no such interface: {nic}");
        return Err(Stop::new(Code::BadInput, why).hint("`linerate map` lists the interfaces"));
    }
    let (settings, mut without) = settings_on(&host, nic, &plan.settings)?;
    let mut changes = Vec::new();
    for (setting, to) in settings {
        match endpoint.read_setting(&setting).ok() {
            Ok(from) if to.is_met_by(from) => {}
            Ok(from) => changes.push(Change {
                from: from.clone(),
                setting,
                to,
            }),
            Err(gap) => without.push(format!("without {setting}: {gap}")),
        }
    }
    Ok((changes, without))
}

/// The names of the plans, for a hint.
pub(super) fn names() -> String {
    SHIPPED.map(|(name, _)| name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plan_of_linerate_can_be_read() {
        for (name, text) in SHIPPED {
            let plan: Plan = toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!plan.settings.is_empty(), "{name}");
        }
    }
}

//! `linerate testbed redundant`: a small network that survives faults, and commands that inject them.

use std::path::Path as FilePath;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_runtime::cli::state_folder::state_folder;
use linerate_runtime::cli::{EcmpArgs, IgpArg, RedundantAction, RedundantKind};
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::{Format, Say};
use linerate_testbed::redundant::{
    Network, Redundant, RedundantError, RedundantObstacle as Obstacle, Spec,
};
use serde::Serialize;

/// BFD's interval if none is given.
const BFD_MS: u32 = 50;

/// What `linerate testbed redundant ACTION --format json` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RedundantDocument {
    schema: &'static str,
    #[cfg_attr(test, schemars(extend("enum" = ["add", "remove", "list", "stop", "start"])))]
    action: &'static str,
    /// The network that exists now; null if there is none.
    network: Option<Network>,
    /// The daemons that this call stopped or started; null for other actions.
    daemons: Option<usize>,
    /// Whether this call removed a network; null for other actions.
    removed: Option<bool>,
}

/// Carries out an action.
pub(crate) fn run(action: &RedundantAction, state: &FilePath, say: &Say) -> Outcome<()> {
    let interrupt = Interrupt::listen()?;
    let asked = || interrupt.asked();
    let mut redundant = Redundant::open(state).map_err(stop)?;
    let mut document = RedundantDocument {
        schema: "linerate.testbed-redundant/1",
        action: "list",
        network: None,
        daemons: None,
        removed: None,
    };
    match action {
        RedundantAction::Add { kind } => {
            document.action = "add";
            let spec = spec_of(kind)?;
            redundant.add(&spec, &asked).map_err(stop)?;
        }
        RedundantAction::Remove => {
            document.action = "remove";
            document.removed = Some(redundant.remove().map_err(not_removed)?);
        }
        RedundantAction::List => {}
        RedundantAction::Stop { namespace, kill } => {
            document.action = "stop";
            document.daemons = Some(redundant.stop(namespace, *kill).map_err(stop)?);
        }
        RedundantAction::Start { namespace } => {
            document.action = "start";
            document.daemons = Some(redundant.start(namespace, &asked).map_err(stop)?);
        }
    }
    document.network = redundant.network();
    if let Some(network) = &mut document.network {
        name_state(network, state);
    }
    if say.format == Format::Json {
        return say.json(&document);
    }
    say.lines(&in_words(&document))?;
    if let (RedundantAction::Add { .. }, Some(network)) = (action, &document.network) {
        for hint in hints(network) {
            say.note(&hint);
        }
    }
    Ok(())
}

fn spec_of(kind: &RedundantKind) -> Outcome<Spec> {
    Ok(match kind {
        RedundantKind::Vrrp { advert } => Spec::Vrrp { advert_ms: *advert },
        RedundantKind::Ecmp(args) => ecmp(args)?,
        RedundantKind::Magp => Spec::Magp,
        RedundantKind::ActiveBackup { miimon } => {
            Redundant::check_bonding().map_err(stop)?;
            Spec::ActiveBackup {
                miimon_ms: miimon.0.unwrap_or(0),
            }
        }
        RedundantKind::Mlag { lag, lacp_rate } => Spec::Mlag {
            lag: Redundant::lag(lag.map(Into::into)).map_err(stop)?,
            lacp_rate: (*lacp_rate).into(),
        },
    })
}

fn ecmp(args: &EcmpArgs) -> Outcome<Spec> {
    let is_static = args.igp == IgpArg::Static;
    let usage = |why: &str| Err(Stop::new(Code::Usage, why));
    if args.resilient && !is_static {
        return usage("`--resilient` needs `--igp static`: FRR makes the nexthop groups itself");
    }
    let bfd_ms = match args.bfd {
        Some(bfd) if is_static && bfd.0.is_some() => {
            return usage(
                "`--bfd` needs `--igp bgp` or `--igp ospf`: nothing monitors static routes",
            );
        }
        Some(bfd) => bfd.0,
        None => (!is_static).then_some(BFD_MS),
    };
    Ok(Spec::Ecmp {
        igp: args.igp.into(),
        bfd_ms,
        resilient: args.resilient,
    })
}

/// The commands of linerate itself need the state folder, if it is not the usual one.
fn name_state(network: &mut Network, state: &FilePath) {
    if state_folder(None).is_ok_and(|usual| usual == state) {
        return;
    }
    let folder = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
    let quoted = folder.display().to_string().replace('\'', "'\\''");
    for fault in &mut network.faults {
        for command in [&mut fault.inject, &mut fault.restore] {
            if let Some(rest) = command.strip_prefix("linerate ") {
                *command = format!("linerate --state '{quoted}' {rest}");
            }
        }
    }
}

fn in_words(document: &RedundantDocument) -> String {
    let mut lines = Vec::new();
    match (document.action, document.daemons) {
        ("remove", _) if document.removed == Some(true) => {
            return "redundant network removed".to_owned();
        }
        ("stop", Some(count)) => lines.push(format!("{count} daemons stopped")),
        ("start", Some(count)) => lines.push(format!("{count} daemons started")),
        _ => {}
    }
    let Some(network) = &document.network else {
        return "no redundant network created by linerate".to_owned();
    };
    lines.push(network.spec.to_string());
    if !network.ready {
        lines.push(
            "partially configured: remove it with `linerate testbed redundant remove`".to_owned(),
        );
    }
    for node in &network.nodes {
        let addresses = match node.namespace {
            "lr-client" => format!(", {}", network.client.join(", ")),
            "lr-server" => format!(", {}", network.server.join(", ")),
            _ => String::new(),
        };
        lines.push(format!(
            "  {:<10} {}{addresses}{}",
            node.namespace,
            node.role,
            daemons_of(network, node.namespace)
        ));
    }
    lines.push(format!("folder: {}", network.folder));
    if document.action == "add" || document.action == "list" {
        lines.push("faults, for `--do` and `--restore` of `linerate failover`:".to_owned());
        for fault in &network.faults {
            let missing = match fault.missing {
                Some(package) => format!(" (not installed: {package})"),
                None => String::new(),
            };
            lines.push(format!("  {}: {}{missing}", fault.name, fault.about));
            lines.push(format!("    do       {}", fault.inject));
            lines.push(format!("    restore  {}", fault.restore));
        }
    }
    lines.join("\n")
}

/// The daemons of a namespace, with their processes.
fn daemons_of(network: &Network, namespace: &str) -> String {
    let own = network
        .daemons
        .iter()
        .filter(|daemon| daemon.namespace == namespace);
    let each = own.map(|daemon| match daemon.pid {
        Some(pid) => format!("{} (PID {pid})", daemon.program),
        None => format!("{} (not running)", daemon.program),
    });
    let words = each.collect::<Vec<_>>().join(", ");
    if words.is_empty() {
        words
    } else {
        format!(": {words}")
    }
}

/// What to do next.
fn hints(network: &Network) -> Vec<String> {
    let server = network.server.first().map_or("", String::as_str);
    vec![
        format!(
            "to measure through it: `ip netns exec lr-client linerate measure udp netns:lr-server \
             --address {server}`"
        ),
        "to remove it: `linerate testbed redundant remove`".to_owned(),
    ]
}

/// A removal that failed has left something.
fn not_removed(error: RedundantError) -> Stop {
    match error.obstacle() {
        Obstacle::Failed => Stop::new(Code::RestoreIncomplete, error.to_string())
            .hint("run `linerate testbed redundant remove` again"),
        _ => stop(error),
    }
}

pub(super) fn stop(error: RedundantError) -> Stop {
    let code = match error.obstacle() {
        Obstacle::NotSupported => Code::NotSupported,
        Obstacle::Permission => Code::PermissionMissing,
        Obstacle::BadInput => Code::BadInput,
        Obstacle::Failed => Code::FailedRestored,
        Obstacle::Incomplete => Code::RestoreIncomplete,
        Obstacle::TimeOut => Code::TimeOut,
        Obstacle::Interrupted => Code::Interrupted,
    };
    let stop = Stop::new(code, error.to_string());
    let packages = error.packages();
    if !packages.is_empty() {
        return stop.hint(format!("apt-get install {}", packages.join(" ")));
    }
    match error {
        RedundantError::Exists { .. } => stop.hint(
            "`linerate testbed redundant list` shows it, `linerate testbed redundant remove` removes it",
        ),
        RedundantError::HalfMade => stop.hint("run `linerate testbed redundant remove`"),
        RedundantError::None => stop.hint("create one with `linerate testbed redundant add KIND`"),
        RedundantError::NameTaken { name } => {
            stop.hint(format!("if it is not needed: `ip netns delete {name}`"))
        }
        RedundantError::NotUndone { .. } => {
            stop.hint("run `linerate testbed redundant remove` to finish")
        }
        _ => stop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_do_not_fit_the_protocol_are_refused() {
        let args = |igp, bfd, resilient| EcmpArgs {
            igp,
            bfd,
            resilient,
        };
        let code = |args| ecmp(&args).expect_err("it does not fit").code;
        assert_eq!(code(args(IgpArg::Bgp, None, true)), Code::Usage);
        let bfd = linerate_runtime::cli::BfdArg(Some(50));
        assert_eq!(code(args(IgpArg::Static, Some(bfd), false)), Code::Usage);
        let fits = ecmp(&args(IgpArg::Static, None, true)).expect("it fits");
        assert!(matches!(
            fits,
            Spec::Ecmp {
                bfd_ms: None,
                resilient: true,
                ..
            }
        ));
        let fits = ecmp(&args(IgpArg::Ospf, None, false)).expect("it fits");
        assert!(matches!(
            fits,
            Spec::Ecmp {
                bfd_ms: Some(50),
                ..
            }
        ));
    }
}

//! Who takes part, and in which pattern: from the command line and the hosts file.

use std::fs;

use linerate_analysis::mesh::hosts_of_text;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::mesh::{
    HostIndex, Incast, ListedHost, MeshHost, Pattern, Step, hosts_of_peers,
};
use linerate_runtime::cli::{MeshArgs, PatternArg};

/// The hosts of the command line or of the file.
pub(super) fn listed(args: &MeshArgs) -> Outcome<Vec<ListedHost>> {
    let Some(file) = &args.hosts else {
        return hosts_of_peers(&args.peers).map_err(|error| {
            Stop::new(Code::BadInput, error.to_string())
                .hint("name at least two hosts, or give a file with `--hosts FILE`")
        });
    };
    let shown = file.display();
    let text = fs::read_to_string(file).map_err(|error| {
        Stop::new(Code::BadInput, format!("cannot read {shown}")).because(error)
    })?;
    hosts_of_text(&text)
        .map_err(|why| Stop::new(Code::BadInput, format!("cannot use {shown}: {why}")))
}

/// The pattern.
pub(super) fn pattern(args: &MeshArgs, hosts: &[MeshHost]) -> Outcome<Pattern> {
    let root = args
        .root
        .as_deref()
        .map(|name| named(hosts, name))
        .transpose()?;
    let receives = matches!(args.pattern, Some(PatternArg::ToRoot | PatternArg::Incast));
    if root.is_some() && !receives {
        let why = "`--root` needs `--pattern to-root` or `--pattern incast`";
        return Err(Stop::new(Code::Usage, why));
    }
    if !args.victim.is_empty() && args.pattern != Some(PatternArg::Incast) {
        return Err(Stop::new(
            Code::Usage,
            "`--victim` needs `--pattern incast`",
        ));
    }
    let Some(pattern) = args.pattern else {
        return Ok(Pattern::default_for(hosts.len()));
    };
    Ok(match pattern {
        PatternArg::Pairs => Pattern::Pairs,
        PatternArg::Ring => Pattern::Ring,
        PatternArg::ToRoot => Pattern::ToRoot {
            root: root.unwrap_or(HostIndex(0)),
        },
        PatternArg::Incast => {
            let victim = match args.victim.as_slice() {
                [from, to] => Some((named(hosts, from)?, named(hosts, to)?)),
                _ => None,
            };
            Pattern::Incast(Incast {
                senders: args.incast,
                receiver: root,
                victim,
            })
        }
        PatternArg::Bisection => Pattern::Bisection,
        PatternArg::Neighbors => Pattern::Neighbors {
            kind: args.group.into(),
        },
        PatternArg::Quick => Pattern::Quick,
    })
}

/// The directions, each once.
pub(super) fn steps(args: &MeshArgs) -> Vec<Step> {
    let mut steps: Vec<Step> = args.directions.iter().map(|one| (*one).into()).collect();
    steps.sort_unstable();
    steps.dedup();
    steps
}

fn named(hosts: &[MeshHost], name: &str) -> Outcome<HostIndex> {
    let found = hosts.iter().position(|host| host.name == name);
    found.map(HostIndex::at).ok_or_else(|| {
        let names: Vec<&str> = hosts
            .iter()
            .take(8)
            .map(|host| host.name.as_str())
            .collect();
        Stop::new(
            Code::BadInput,
            format!("no host of the mesh is named `{name}`"),
        )
        .hint(format!("the first names are {}", names.join(", ")))
    })
}

//! Several paths to one peer, each over its own interface of this host, with its own session.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path as FilePath;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::{Host, Nic, NicKind};
use linerate_model::ids::NicName;
use linerate_model::peer_address::PeerAddress;
use linerate_model::protocol::{Failure, Request};
use linerate_traffic::tcp::{Source, may_bind_to_device};

use crate::cli::{NicArg, PeerArgs};
use crate::console::interrupt::Interrupt;
use crate::console::say::Say;
use crate::endpoint::local::LocalEndpoint;
use crate::endpoint::peer::Peer;
use crate::endpoint::trial::{
    PeerPath, addresses_of, host_of, no_remote_nic, parse_prefixed, same_subnet, usable,
};

/// Opens a path to the peer over each of `nics`, whose sockets are bound to the interface where that is permitted, and to
/// its address.
pub fn open_paths(
    args: &PeerArgs,
    nics: &[NicArg],
    state: &FilePath,
    interrupt: &Interrupt,
    say: &Say,
) -> Outcome<Vec<PeerPath>> {
    if args.peer == PeerAddress::Local {
        let why = "`--nic` needs a peer on another host: data to this host does not leave it";
        return Err(Stop::new(Code::Usage, why));
    }
    let endpoint = LocalEndpoint::open(state)?;
    let local = endpoint.read_host();
    for nic in nics {
        check_local(&local, &nic.nic)?;
    }
    let address = args.peer_to_pair()?;
    let push = args.reach.push;
    let mut first = Peer::start(&address, push, state, interrupt, Some(say))?;
    let remote = host_of(first.ask(&Request::ReadHost)?)?;
    let routes = routes(&local, &remote, &first, nics)?;
    let mut paths = Vec::with_capacity(nics.len());
    let mut session = Some((endpoint, first));
    for (route, nic) in routes.into_iter().zip(nics) {
        let (endpoint, peer) = match session.take() {
            Some(session) => session,
            None => (
                LocalEndpoint::open(state)?,
                Peer::start(&args.peer, push, state, interrupt, Some(say))?,
            ),
        };
        let device = may_bind_to_device(&nic.nic)
            .map_err(|error| Stop::from(Failure::from(&error)))?
            .then(|| nic.nic.clone());
        paths.push(PeerPath {
            endpoint,
            peer,
            local: local.clone(),
            remote: remote.clone(),
            local_nic: nic.nic.clone(),
            remote_nic: route.remote_nic,
            address: route.to,
            port: None,
            source: Some(Source {
                address: route.from,
                device,
            }),
            includes_way_in: false,
            watch: None,
            failing: None,
            interrupt: interrupt.clone(),
        });
    }
    Ok(paths)
}

/// Whether data can be sent over this interface.
fn check_local(local: &Host, name: &NicName) -> Outcome<()> {
    let Some(nic) = local.nic(name) else {
        let others = local.nics.iter();
        let others = others.filter(|nic| nic.kind != NicKind::Loopback);
        let others: Vec<&str> = others.map(|nic| nic.name.as_str()).collect();
        let hint = if others.is_empty() {
            "this host has no interface but the loopback".to_owned()
        } else {
            format!("the interfaces of this host are {}", others.join(", "))
        };
        let why = format!("cannot measure over {name}: no such interface");
        return Err(Stop::new(Code::BadInput, why).hint(hint));
    };
    let why = |why: String| Stop::new(Code::BadInput, format!("cannot measure over {name}: {why}"));
    let state = nic.operstate.value().map(String::as_str);
    if let Some(state @ ("down" | "lowerlayerdown" | "notpresent")) = state {
        return Err(why(format!("its state is `{state}`"))
            .hint(format!("`ip link set {name} up`, and check the cable")));
    }
    if own_addresses(nic).next().is_some() {
        return Ok(());
    }
    let mut uppers = local.nics.iter();
    let upper = uppers.find(|upper| upper.lower().contains(name));
    Err(match upper {
        Some(upper) => why(format!("it has no address, but {} is on it", upper.name))
            .hint(format!("measure over {}", upper.name)),
        None => why("it has no address".to_owned())
            .hint(format!("`ip address add ADDRESS/PREFIX dev {name}`")),
    })
}

fn own_addresses(nic: &Nic) -> impl Iterator<Item = (IpAddr, u8)> {
    let all = nic.addresses.value().into_iter().flatten();
    let all = all.filter_map(|text| parse_prefixed(text));
    all.filter(|(address, _)| usable(*address))
}

/// How the data of one interface goes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Route {
    from: IpAddr,
    to: IpAddr,
    remote_nic: NicName,
}

/// The address of the peer for each interface: the given one, or else one in a subnet of the interface, on an interface of the
/// peer that no other path uses if there is one.
fn routes(local: &Host, remote: &Host, peer: &Peer, nics: &[NicArg]) -> Outcome<Vec<Route>> {
    let mut used = BTreeSet::new();
    let mut all = Vec::with_capacity(nics.len());
    for one in nics {
        let Some(nic) = local.nic(&one.nic) else {
            return Err(Stop::new(Code::Bug, "an interface is gone"));
        };
        let route = if let Some(to) = one.address {
            given(nic, to, remote, peer)?
        } else {
            let mut found = common(nic, remote);
            let unused = found.iter().position(|way| !used.contains(&way.remote_nic));
            if found.is_empty() {
                let why = format!(
                    "cannot measure over {}: no subnet of it is one of the peer's",
                    nic.name
                );
                let hint = format!("name an address of the peer: `{}=ADDRESS`", nic.name);
                return Err(Stop::new(Code::BadInput, why).hint(hint));
            }
            found.swap_remove(unused.unwrap_or(0))
        };
        used.insert(route.remote_nic.clone());
        all.push(route);
    }
    Ok(all)
}

/// To an address of the peer that was given.
fn given(nic: &Nic, to: IpAddr, remote: &Host, peer: &Peer) -> Outcome<Route> {
    let at = remote.nic_with_address(&to.to_string());
    let at = at.ok_or_else(|| {
        let theirs = addresses_of(remote).into_iter();
        let theirs: Vec<String> = theirs.map(|(_, address, _)| address.to_string()).collect();
        no_remote_nic(peer, to).hint(format!("its addresses are {}", theirs.join(", ")))
    })?;
    Ok(Route {
        from: source_for(nic, to)?,
        to,
        remote_nic: at.name.clone(),
    })
}

/// The peer's addresses in the subnets of an interface.
fn common(nic: &Nic, remote: &Host) -> Vec<Route> {
    let theirs = addresses_of(remote);
    own_addresses(nic)
        .flat_map(|(from, prefix)| {
            let near = theirs
                .iter()
                .filter(move |(_, to, _)| *to != from && same_subnet(from, *to, prefix));
            near.map(move |(remote_nic, to, _)| Route {
                from,
                to: *to,
                remote_nic: remote_nic.clone(),
            })
        })
        .collect()
}

/// The address of the interface for connections to `to`: one in its subnet, or else the first of its family.
fn source_for(nic: &Nic, to: IpAddr) -> Outcome<IpAddr> {
    let all: Vec<(IpAddr, u8)> = own_addresses(nic)
        .filter(|(own, _)| own.is_ipv4() == to.is_ipv4())
        .collect();
    let near = all
        .iter()
        .find(|(own, prefix)| same_subnet(*own, to, *prefix));
    near.or(all.first()).map(|(own, _)| *own).ok_or_else(|| {
        let family = if to.is_ipv4() { "IPv4" } else { "IPv6" };
        Stop::new(
            Code::BadInput,
            format!(
                "cannot measure from {} to {to}: it has no {family} address",
                nic.name
            ),
        )
        .hint("name an address of a family that the interface has")
    })
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::known::Known;

    use super::*;

    fn host(nics: &[(&str, &str)]) -> Host {
        let mut host = build::host();
        for (name, address) in nics {
            host = host.nic(name, |nic| {
                nic.with(|nic| nic.addresses = Known::Value(vec![(*address).to_owned()]))
            });
        }
        host.build()
    }

    #[test]
    fn an_interface_reaches_the_peers_addresses_in_its_own_subnet() {
        let local = host(&[("a", "10.1.0.1/24"), ("b", "10.2.0.1/24")]);
        let remote = host(&[("c", "10.2.0.2/24"), ("d", "10.1.0.2/24")]);
        let ways = common(
            local
                .nic(&"a".parse().expect("a name"))
                .expect("it is there"),
            &remote,
        );
        assert_eq!(ways.len(), 1);
        assert_eq!(
            (ways[0].remote_nic.as_str(), ways[0].to.to_string()),
            ("d", "10.1.0.2".to_owned())
        );
    }

    #[test]
    fn an_interface_that_is_missing_is_reported_with_those_that_exist() {
        let local = host(&[("a", "10.1.0.1/24"), ("b", "10.2.0.1/24")]);
        let stop =
            check_local(&local, &"c".parse().expect("a name")).expect_err("no such interface");
        assert!(stop.to_string().contains("a, b"), "{stop}");
    }

    #[test]
    fn the_source_is_of_the_family_and_of_the_subnet_of_the_destination() {
        let mut local = host(&[("a", "10.1.0.1/24")]);
        local.nics[0].addresses =
            Known::Value(vec!["10.1.0.1/24".to_owned(), "10.2.0.1/24".to_owned()]);
        let nic = &local.nics[0];
        let to = |text: &str| text.parse::<IpAddr>().expect(text);
        assert_eq!(source_for(nic, to("10.2.0.9")).ok(), Some(to("10.2.0.1")));
        assert_eq!(source_for(nic, to("10.9.0.9")).ok(), Some(to("10.1.0.1")));
        assert!(source_for(nic, to("fd00::1")).is_err());
    }
}

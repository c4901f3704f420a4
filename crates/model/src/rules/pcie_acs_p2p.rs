//! `pcie-acs-p2p`: ACS redirects peer-to-peer traffic below a PCIe switch to the root complex. PCI
//! Express Base Specification 6.12 (Access Control Services); Documentation/driver-api/pci/p2pdma.rst.

use super::facts::{answer_one, config, controls, pcie_link};
use super::{Draft, each_nic, subject};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::{Nic, PcieControl, PcieHop, PcieLink};
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "pcie-acs-p2p",
    number: 49,
    status: Status::AdviceOnly,
    title: "ACS redirects peer-to-peer traffic below a PCIe switch to the root complex",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: &[Profile::Rdma],
    judges_by: &[Basis::Facts],
    threshold: "ACS P2P Request Redirect or Completion Redirect enabled on a switch port above an RDMA device",
    effect: "half the GPU-to-NIC rate with redirection was reported (torchcomms #3015); nothing without \
             peer-to-peer traffic",
    source: "Documentation/driver-api/pci/p2pdma.rst; Documentation/admin-guide/kernel-parameters.txt \
             (pci=disable_acs_redir=, config_acs=)",
    fix: Fix::Advised(&[Class::R4]),
    persist: "kernel command line: pci=disable_acs_redir=ADDRESS or pci=config_acs=",
    contested: None,
    page: include_str!("../../../../docs/rules/pcie-acs-p2p.md"),
    check,
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| {
        nic.rdma.value()?;
        let mut missing = Vec::new();
        let link = pcie_link(nic, &mut missing)?;
        // NIC and root port only: all peer-to-peer traffic passes the root anyway.
        if link.links.len() <= ROOT_ONLY {
            return None;
        }
        let said = judge(nic, link, &controls(link, &mut missing));
        answer_one(rule, context, subject(nic), said, missing)
    })
}

const ROOT_ONLY: usize = 2;

fn judge(nic: &Nic, link: &PcieLink, way: &[(&PcieHop, PcieControl)]) -> Option<Draft> {
    let root = link.links.last()?.address;
    let redirects: Vec<&PcieHop> = way
        .iter()
        .filter(|(hop, control)| hop.address != root && control.acs_redirect == Some(true))
        .map(|(hop, _)| *hop)
        .collect();
    let first = redirects.first()?;
    Some(Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary: format!(
            "switch port {} above {} redirects peer-to-peer traffic to the root complex (ACS), which slows \
             GPUDirect: disable it only if no device is passed to a VM",
            first.address, nic.name
        ),
        evidence: redirects
            .iter()
            .map(|hop| {
                let what = format!("ACS redirect of {}", hop.address);
                Evidence::new(what, "on", config(hop))
            })
            .collect(),
        remedies: Vec::new(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::ids::PciAddress;
    use crate::known::{Cause, Known};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("a switch port redirects", || {
            rdma(below_a_switch(Some(true)))
        })],
        silent: &[
            ("it does not", || rdma(below_a_switch(Some(false)))),
            ("it has no such services", || rdma(below_a_switch(None))),
            ("bulk transfer", || World::of(below_a_switch(Some(true)))),
            ("no switch on the way", || {
                let mut host = below_a_switch(Some(true));
                if let Known::Value(link) = &mut host.nics[0].pcie {
                    link.links.truncate(2);
                }
                rdma(host)
            }),
        ],
        undetermined: &[("only root sees it", || {
            let mut host = below_a_switch(None);
            if let Known::Value(link) = &mut host.nics[0].pcie {
                let why = "only root sees more than 64 octets";
                link.links[1].control = Known::unknown(Cause::Denied, "config", why);
            }
            rdma(host)
        })],
    };

    fn rdma(host: Host) -> World {
        World::of(host).profile(Profile::Rdma)
    }

    /// Card, switch port, the switch's own port, root port.
    fn below_a_switch(redirect: Option<bool>) -> Host {
        let mut link = build::pcie_link((8_000, 16), (8_000, 16));
        for bus in [0x15, 0x14] {
            let mut hop = link.links[1].clone();
            hop.address = PciAddress { bus, ..hop.address };
            link.links.push(hop);
        }
        if let Known::Value(control) = &mut link.links[1].control {
            control.acs_redirect = redirect;
        }
        build::host()
            .nic("ib0", |nic| {
                nic.pcie(link)
                    .with(|nic| nic.rdma = Known::Value("mlx5_0".to_owned()))
            })
            .build()
    }

    #[test]
    fn it_names_the_port_and_the_risk() {
        let world = rdma(below_a_switch(Some(true)));
        let said = finding(ID, &world.context());
        assert!(said.summary.contains("0000:16:00.0"), "{}", said.summary);
        assert!(said.summary.contains("passed to a VM"), "{}", said.summary);
    }
}

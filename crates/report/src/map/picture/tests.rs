//! Pictures of synthetic hosts.

use linerate_model::build;
use linerate_model::host::{Bond, BondPort, NicKind, Tunnel, Vlan};
use linerate_model::ids::NicName;

use super::*;

fn name(text: &str) -> NicName {
    text.parse().expect("a name")
}

/// Two nodes of 16 CPUs; `nics` cards, every third with its interrupts on the other node.
fn server(nics: u32) -> Host {
    let mut host = build::host().nodes(2, 16);
    for number in 0..nics {
        let node = number % 2;
        let far = number % 3 == 2;
        let first = 16 * if far { 1 - node } else { node } + number % 8;
        let cpus: Vec<u32> = (first..first + 4).collect();
        host = host.nic(&format!("ens{number}np0"), |nic| {
            nic.gbit(100).node(node).queues(&cpus)
        });
    }
    host.build()
}

/// A VLAN and a tunnel on a bond of two of its cards.
fn stacked_server() -> Host {
    let mut host = server(2);
    let mut add = |text: &str, kind: NicKind, lower: &[&str], change: &dyn Fn(&mut Nic)| {
        let mut nic = build::host()
            .nic(text, build::NicBuilder::veth)
            .build()
            .nics
            .remove(0);
        nic.kind = kind;
        nic.lower = lower
            .iter()
            .map(|text| name(text))
            .collect::<Vec<_>>()
            .into();
        change(&mut nic);
        host.nics.push(nic);
    };
    let known = |text: &str| Known::Value(text.to_owned());
    add("bond0", NicKind::Bond, &["ens0np0", "ens1np0"], &|nic| {
        nic.stack.bond = Some(Bond {
            mode: known("802.3ad"),
            hash_policy: known("layer3+4"),
            ..Bond::default()
        });
    });
    for id in [100, 200, 300] {
        add(&format!("bond0.{id}"), NicKind::Vlan, &["bond0"], &|nic| {
            nic.stack.vlan = Some(Vlan {
                id: Known::Value(id),
                ..Vlan::default()
            });
        });
    }
    add("vxlan42", NicKind::Tunnel, &["bond0.200"], &|nic| {
        nic.stack.tunnel = Some(Tunnel {
            kind: known("vxlan"),
            id: Known::Value(42),
            ..Tunnel::default()
        });
    });
    add("br0", NicKind::Bridge, &["vxlan42", "veth7"], &|_| ());
    add("veth7", NicKind::Veth, &[], &|_| ());
    add("docker0", NicKind::Bridge, &[], &|_| ());
    for nic in host.nics.iter_mut().take(2) {
        nic.stack.bond_port = Some(BondPort {
            state: known("active"),
            ..BondPort::default()
        });
    }
    host
}

/// The boxes of devices and of what is stacked: x, y, width, height on the picture.
fn cards_of(svg: &str) -> Vec<[u32; 4]> {
    let number = |text: &str, key: &str| -> Option<u32> {
        let rest = text.split(&format!("{key}=\"")).nth(1)?;
        rest.split('"').next()?.parse().ok()
    };
    svg.split("<g transform=\"translate(")
        .skip(1)
        .filter_map(|part| {
            let (place, rest) = part.split_once(")\">")?;
            let (x, y) = place.split_once(' ')?;
            let own = rest.split("<rect").nth(1)?;
            let size = [number(own, "width")?, number(own, "height")?];
            Some([x.parse().ok()?, y.parse().ok()?, size[0], size[1]])
        })
        .collect()
}

#[test]
fn no_card_lies_on_another_and_none_leaves_the_picture() {
    for host in [server(1), server(16), server(70), stacked_server()] {
        let svg = map_svg(&host);
        let cards = cards_of(&svg);
        let frame = svg.split(" width=\"").nth(1).expect("a width");
        let frame: u32 = frame
            .split('"')
            .next()
            .expect("a number")
            .parse()
            .expect("one");
        assert!(cards.len() >= host.nics.len().min(2).min(NICS_DRAWN));
        for (at, [x, y, width, height]) in cards.iter().enumerate() {
            assert!(x + width <= frame, "{x} + {width} in {frame}");
            for [other_x, other_y, other_width, other_height] in cards.iter().skip(at + 1) {
                let apart = x + width <= *other_x
                    || other_x + other_width <= *x
                    || y + height <= *other_y
                    || other_y + other_height <= *y;
                assert!(apart, "cards at {x},{y} and {other_x},{other_y}");
            }
        }
    }
}

#[test]
fn a_host_without_devices_has_no_empty_half() {
    let host = build::host().nodes(2, 8).build();
    let svg = map_svg(&host);
    let frame = 2 * (MARGIN + PAD) + COLUMN;
    assert!(svg.contains(&format!("viewBox=\"0 0 {frame} ")), "{svg}");
    assert!(!svg.contains("Queue to CPU"), "{svg}");
}

#[test]
fn interrupts_on_another_node_are_seen_without_colour() {
    let svg = map_svg(&server(3));
    assert!(svg.contains("REMOTE: CPUs 18-21"), "{svg}");
    assert!(svg.contains("r handles remote NIC interrupts: CPU 18-21"));
    // Four strokes with a head each.
    assert_eq!(svg.matches(" z\" fill").count(), 4, "{svg}");
    let near = map_svg(&server(2));
    assert!(!near.contains("REMOTE") && !near.contains(" z\" fill"));
}

#[test]
fn interrupts_are_solid_lines_rps_is_dashed_and_the_path_of_packets_is_thick() {
    let host = build::host().nodes(1, 8).nic("eth0", |nic| {
        nic.gbit(100).node(0).queues(&[0, 1]).rps("4-5")
    });
    let host = host.build();
    let irq = host.nics[0].queues[0].irq.get().expect("it was built");
    let hot = HotPath {
        packets: "0,4".parse().expect("CPUs"),
        interrupts: vec![(irq.0, CpuId(0), 1.0)],
    };
    let (senders, none) = (CpuSet::one(CpuId(2)), CpuSet::empty());
    let mut end = PathEnd {
        name: "here",
        host: &host,
        nic: None,
        sender_cpus: &senders,
        receiver_cpus: &none,
        hot: None,
    };
    let style_of = |svg: &str, about: &str| {
        let (before, _) = svg.split_once(about).expect("a line with this title");
        before.rsplit_once("<path").expect("it").1.to_owned()
    };
    let settings = path_svg(&end, None, Layout::Beside);
    assert!(!style_of(&settings, "irq 100-101: CPUs 0-1").contains("dasharray"));
    assert!(style_of(&settings, "RPS: CPUs 4-5").contains("stroke-dasharray=\"4 3\""));
    assert!(settings.contains("S sends: CPU 2") && !settings.contains("P processes"));
    end.hot = Some(&hot);
    let observed = path_svg(&end, None, Layout::Beside);
    assert!(observed.contains("P processes packets: CPU 0,4"));
    let packets = style_of(&observed, "packets of eth0 were processed on CPU 0");
    assert!(packets.contains("stroke-width=\"5.0\""), "{packets}");
    assert!(
        !observed.contains("processed on CPU 4"),
        "RPS moved them there"
    );
}

#[test]
fn the_narrowest_link_of_a_way_stands_out() {
    let mut host = server(1);
    host.nics[0].pcie = Known::Value(build::pcie_link((8_000, 4), (16_000, 16)));
    let svg = map_svg(&host);
    assert!(svg.contains("8.0 GT/s x4") && svg.contains("to the root"));
    if let Known::Value(pcie) = &mut host.nics[0].pcie {
        let mut upper = pcie.links[0].clone();
        upper.address = "0000:15:00.0".parse().expect("an address");
        upper.width = Known::Value(16);
        pcie.links.push(upper);
    }
    let svg = map_svg(&host);
    assert!(svg.contains("narrowest (filled): 31.50"), "{svg}");
}

#[test]
fn what_stands_on_what_is_drawn_with_arrows() {
    let svg = map_svg(&stacked_server());
    for words in [
        "bond 802.3ad, layer3+4",
        "VLAN 100",
        "vxlan 42",
        "standalone: docker0 (bridge)",
    ] {
        assert!(svg.contains(words), "{words}");
    }
    // Two to the cards, three to the bond, one each to the VLAN, the tunnel and the veth.
    assert_eq!(svg.matches(" z\" fill").count(), 8);
}

#[test]
fn a_ring_of_interfaces_is_drawn_and_nothing_that_a_host_says_leaves_its_text() {
    let mut host = stacked_server();
    host.nics[0].lower = vec![name("br0")].into();
    host.nics[0].driver = Known::Value("</text><script>alert(1)</script>".to_owned());
    host.identity.hostname = Known::Value("\"/><x>".to_owned());
    host.identity.cpu_model = Known::Value("\u{1b}[2J\0".to_owned());
    let svg = map_svg(&host);
    assert!(!svg.contains("<script") && !svg.contains("<x>") && !svg.contains('\u{1b}'));
    for tag in ["g", "title", "text", "tspan"] {
        let open =
            svg.matches(&format!("<{tag} ")).count() + svg.matches(&format!("<{tag}>")).count();
        assert_eq!(open, svg.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

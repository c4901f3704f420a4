//! The wire from a host to itself: packets from one end to the other cross it, and removing it restores the original
//! state.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use linerate_host::netlink::Rule;
use linerate_host::soft_roce::{SoftRoceError, Wire};

use crate::lab::{Lab, in_lab, name};

const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 9, 8, 4);
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 9, 8, 5);
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 9, 8, 6);

fn wire() -> Wire {
    Wire::new(NETWORK, 1500)
}

fn rules(lab: &Lab) -> Vec<Rule> {
    lab.netlink.rules().expect("the kernel has rules")
}

/// Sends a datagram and returns its source.
fn sent_from(from: Ipv4Addr, to: Ipv4Addr) -> SocketAddr {
    let receiver = UdpSocket::bind((to, 0)).expect("an address of this host");
    let sender = UdpSocket::bind((from, 0)).expect("an address of this host");
    let target = receiver.local_addr().expect("bound");
    sender.send_to(b"over the wire", target).expect("a route");
    let (bytes, peer) = receiver.recv_from(&mut [0; 64]).expect("it arrives");
    assert_eq!(bytes, 13);
    peer
}

/// The packets sent by an interface, in this thread's namespace.
fn packets(nic: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").expect("a namespace has it");
    let line = text.lines().find_map(|line| line.trim().strip_prefix(nic));
    let numbers = line
        .and_then(|line| line.strip_prefix(':'))
        .expect("it is there");
    // The eight receive fields come before the bytes and packets sent.
    let sent = numbers.split_whitespace().nth(9).expect("sixteen numbers");
    sent.parse().expect("a number")
}

#[test]
fn packets_between_two_addresses_of_one_host_cross_the_wire_both_ways() {
    in_lab(|lab| {
        wire().lay(&lab.netlink).expect("nothing is in the way");
        for (from, to, nic) in [(FIRST, SECOND, "lr-rxe-a"), (SECOND, FIRST, "lr-rxe-b")] {
            let before = packets(nic);
            assert_eq!(sent_from(from, to).ip(), from);
            assert!(packets(nic) > before, "{nic} sent nothing");
        }
        wire().take_up(&lab.netlink).expect("it was laid");
    });
}

#[test]
fn taking_it_up_leaves_the_rules_and_interfaces_that_were() {
    in_lab(|lab| {
        let before = rules(lab);
        wire().lay(&lab.netlink).expect("nothing is in the way");
        assert_eq!(rules(lab).len(), before.len() + 1);
        wire().take_up(&lab.netlink).expect("it was laid");
        assert_eq!(rules(lab), before);
        wire()
            .take_up(&lab.netlink)
            .expect("there is nothing to do");
        assert_eq!(rules(lab), before);
        wire().lay(&lab.netlink).expect("nothing is left of it");
    });
}

#[test]
fn one_that_was_left_half_done_is_taken_up() {
    in_lab(|lab| {
        let before = rules(lab);
        wire().lay(&lab.netlink).expect("nothing is in the way");
        // As after a crash between adding the second rule for local addresses and deleting the first.
        let own = Rule::own_addresses(0);
        lab.netlink.add_rule(&own).expect("a second one");
        lab.netlink
            .delete_link(&name("lr-rxe-b"))
            .expect("it is there");
        wire().take_up(&lab.netlink).expect("what there is");
        assert_eq!(rules(lab), before);
    });
}

#[test]
fn a_rule_of_the_same_priority_is_in_the_way() {
    in_lab(|lab| {
        let mut other = Rule::own_addresses(0);
        other.table = 77;
        other.input = Some("near0".to_owned());
        lab.netlink.add_rule(&other).expect("a rule");
        let before = rules(lab);
        let refused = wire().check_free(&lab.netlink);
        assert!(
            matches!(refused, Err(SoftRoceError::WireTaken { .. })),
            "{refused:?}"
        );
        assert_eq!(rules(lab), before);
    });
}

//! Counts the rules of nf_tables (`<linux/netfilter/nfnetlink.h>`, `<linux/netfilter/nf_tables.h>`); it does not
//! change them. Requires CAP_NET_ADMIN.

use super::error::Failure;
use super::message::Request;
use super::socket::{Answer, Connection};

/// `NFNL_SUBSYS_NFTABLES`.
const NF_TABLES: u16 = 10;
/// `NFT_MSG_NEWRULE` is the response to `NFT_MSG_GETRULE`.
const NEW_RULE: u16 = 6;
const GET_RULE: u16 = 7;
/// `struct nfgenmsg`: any family, version 0, no resource.
const OF_EVERY_FAMILY: [u8; 4] = [0; 4];

/// The rules of this network namespace, of all tables.
pub(super) fn count_rules(connection: &mut Connection) -> Result<u64, Failure> {
    let question = Request::new(NF_TABLES << 8 | GET_RULE, &OF_EVERY_FAMILY);
    connection.dump(&question).map(|answers| count(&answers))
}

fn count(answers: &[Answer]) -> u64 {
    let rules = answers.iter();
    let rules = rules.filter(|answer| answer.kind == NF_TABLES << 8 | NEW_RULE);
    rules.map(|_| 1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rules_are_counted() {
        let answer = |kind| Answer {
            kind,
            body: Vec::new(),
        };
        let answers = [0x0a06, 0x0a00, 0x0a06].map(answer);
        assert_eq!(count(&answers), 2);
    }
}

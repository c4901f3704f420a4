//! nf_tables (`<linux/netfilter/nfnetlink.h>`, `<linux/netfilter/nf_tables.h>`): counts the rules, and adds or removes
//! one table of linerate's own, whose only rule looks at the connection of each packet, so that the kernel tracks
//! connections. It changes no other table. Requires CAP_NET_ADMIN.

use super::error::Failure;
use super::message::{APPEND, Attributes, CREATE, EXCLUSIVE, Request};
use super::nf_tables::{
    BATCH_BEGIN, BATCH_END, CHAIN_HOOK, CHAIN_NAME, CHAIN_TYPE, DELETE_TABLE, FILTER, GET_RULE,
    GET_TABLE, HOOK_NUMBER, HOOK_PRIORITY, NEW_CHAIN, NEW_RULE, NEW_TABLE, OF_BATCH, OF_TABLE,
    RULE_CHAIN, RULE_EXPRESSIONS, TABLE_NAME,
};
use super::socket::{Answer, Connection};

/// `struct nfgenmsg`: any family, version 0, no resource.
const OF_EVERY_FAMILY: [u8; 4] = [0; 4];
/// The same of `NFPROTO_INET`: IPv4 and IPv6.
const OF_INET: [u8; 4] = [1, 0, 0, 0];

/// The table that makes the kernel track connections.
pub(super) const TABLE: &str = "linerate_conntrack";
const CHAIN: &str = "prerouting";
/// `NF_INET_PRE_ROUTING`.
const PREROUTING: u32 = 0;
/// `NFTA_LIST_ELEM`; `NFTA_EXPR_NAME`, `_DATA`.
const ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
/// `NFTA_CT_DREG`, `_KEY`; `NFT_REG32_00`; `NFT_CT_STATE`.
const CT_REGISTER: u16 = 1;
const CT_KEY: u16 = 2;
const REGISTER: u32 = 8;
const CT_STATE: u32 = 0;

/// The rules of this network namespace, of all tables.
pub(super) fn count_rules(connection: &mut Connection) -> Result<u64, Failure> {
    let question = Request::new(GET_RULE, &OF_EVERY_FAMILY);
    connection.dump(&question).map(|answers| count(&answers))
}

fn count(answers: &[Answer]) -> u64 {
    let rules = answers.iter();
    let rules = rules.filter(|answer| answer.kind == NEW_RULE);
    rules.map(|_| 1).sum()
}

/// Whether linerate's table is there.
pub(super) fn tracks_connections(connection: &mut Connection) -> Result<bool, Failure> {
    let question = Request::new(GET_TABLE, &OF_INET);
    let answers = connection.dump(&question)?;
    Ok(answers.iter().any(is_ours))
}

/// Whether an answer is linerate's table; the name ends with a NUL.
fn is_ours(answer: &Answer) -> bool {
    if answer.kind != NEW_TABLE {
        return false;
    }
    let named = Attributes::after(&answer.body, OF_INET.len());
    let name = named.and_then(|all| all.text(TABLE_NAME));
    name.is_ok_and(|name| name.as_deref() == Some(TABLE))
}

/// Adds linerate's table, or removes it with its rule.
pub(super) fn track_connections(connection: &mut Connection, on: bool) -> Result<(), Failure> {
    let begin = Request::new(BATCH_BEGIN, &OF_BATCH);
    let end = Request::new(BATCH_END, &OF_BATCH);
    let changes = if on { table() } else { vec![removal()] };
    connection.batch(&begin, &changes, &end)
}

/// `nft add table inet linerate_conntrack`, its chain, and the rule: `ct state` in every packet's way.
fn table() -> Vec<Request> {
    let of = |kind: u16, flags: u16| {
        let request = Request::new(kind, &OF_INET);
        request.with_flags(CREATE | flags)
    };
    let mut table = of(NEW_TABLE, EXCLUSIVE);
    table.put_text(TABLE_NAME, TABLE);
    let mut chain = of(NEW_CHAIN, EXCLUSIVE);
    chain.put_text(OF_TABLE, TABLE).put_text(CHAIN_NAME, CHAIN);
    chain.nest(CHAIN_HOOK, |hook| {
        hook.put(HOOK_NUMBER, &PREROUTING.to_be_bytes());
        hook.put(HOOK_PRIORITY, &FILTER.to_be_bytes());
    });
    chain.put_text(CHAIN_TYPE, "filter");
    let mut rule = of(NEW_RULE, APPEND);
    rule.put_text(OF_TABLE, TABLE).put_text(RULE_CHAIN, CHAIN);
    rule.nest(RULE_EXPRESSIONS, |all| {
        all.nest(ELEMENT, |one| {
            one.put_text(EXPRESSION_NAME, "ct");
            one.nest(EXPRESSION_DATA, |data| {
                data.put(CT_REGISTER, &REGISTER.to_be_bytes());
                data.put(CT_KEY, &CT_STATE.to_be_bytes());
            });
        });
    });
    vec![table, chain, rule]
}

fn removal() -> Request {
    let mut request = Request::new(DELETE_TABLE, &OF_INET);
    request.put_text(TABLE_NAME, TABLE);
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_linerates_own_table_counts_as_tracking() {
        let answer = |kind, name: &str| {
            let mut request = Request::new(kind, &OF_INET);
            request.put_text(TABLE_NAME, name);
            Answer {
                kind,
                body: request.into_body(),
            }
        };
        assert!(is_ours(&answer(0x0a00, TABLE)));
        assert!(!is_ours(&answer(0x0a00, "filter")));
        assert!(!is_ours(&answer(0x0a06, TABLE)));
        let cut = Answer {
            kind: 0x0a00,
            body: vec![1, 0],
        };
        assert!(!is_ours(&cut));
    }

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

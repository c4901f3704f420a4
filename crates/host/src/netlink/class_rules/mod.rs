//! The rules that send packets of an interface to a class of its root qdisc: one nf_tables table of linerate's own for
//! each interface, in family `netdev`, with a chain at the egress hook (`<linux/netfilter/nf_tables.h>`, since Linux 5.16
//! with `CONFIG_NETFILTER_EGRESS`). Each rule sets `meta priority` to the class, which `htb` looks at first
//! (`htb_classify`, net/sched/sch_htb.c), and accepts the packet, so that the first one that matches decides.
//!
//! The expressions are those that nft(8) makes of the same rules. They are read back from the kernel; a table with any
//! other rule is reported and not changed. Requires CAP_NET_ADMIN, for reading too.

mod expression;

use linerate_model::ids::NicName;
use linerate_model::setting::{ClassRule, Packets};

use self::expression::{Expression, KernelRule};
use super::error::Failure;
use super::message::{APPEND, Attributes, CREATE, EXCLUSIVE, Request};
use super::nf_tables::{
    BATCH_BEGIN, BATCH_END, CHAIN_HOOK, CHAIN_NAME, CHAIN_TYPE, DELETE_TABLE, FILTER, GET_RULE,
    GET_TABLE, HOOK_NUMBER, HOOK_PRIORITY, NEW_CHAIN, NEW_RULE, NEW_TABLE, OF_BATCH, OF_TABLE,
    RULE_CHAIN, RULE_EXPRESSIONS, TABLE_NAME,
};
use super::socket::Connection;

/// `struct nfgenmsg`: `NFPROTO_NETDEV`, version 0, no resource.
const NETDEV: [u8; 4] = [5, 0, 0, 0];
/// `NFTA_HOOK_DEV`, and `NF_NETDEV_EGRESS`.
const HOOK_DEVICE: u16 = 3;
const EGRESS: u32 = 1;
const CHAIN: &str = "egress";
const TABLE_PREFIX: &str = "linerate_qos_";
/// The start of the table's name of an interface whose name nft(8) does not take in one: its bytes follow.
const ENCODED: &str = "0x";

/// The name of the interface's table.
pub(super) fn table_of(nic: &NicName) -> String {
    let name = nic.as_str();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if name.bytes().all(is_plain) && !name.starts_with(ENCODED) {
        return format!("{TABLE_PREFIX}{name}");
    }
    let bytes: Vec<String> = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{TABLE_PREFIX}{ENCODED}{}", bytes.concat())
}

/// The rules of the interface's table; none without one.
pub(super) fn read(connection: &mut Connection, nic: &NicName) -> Result<Vec<ClassRule>, Failure> {
    let mut question = Request::new(GET_RULE, &NETDEV);
    let table = table_of(nic);
    question.put_text(OF_TABLE, &table);
    // Not every kernel filters by table.
    let mut rules = Vec::new();
    for answer in dump(connection, &question)? {
        if answer.kind == NEW_RULE {
            let own = Attributes::after(&answer.body, NETDEV.len())?;
            if own.text(OF_TABLE)?.as_deref() == Some(&table) {
                rules.push(KernelRule::parse(&own, RULE_EXPRESSIONS)?);
            }
        }
    }
    grouped(rules).ok_or(Failure::Malformed(
        "the table has rules that linerate did not make",
    ))
}

/// The rules of the kernel as those that they were made of.
fn grouped(rules: Vec<Option<KernelRule>>) -> Option<Vec<ClassRule>> {
    let rules: Vec<KernelRule> = rules.into_iter().collect::<Option<_>>()?;
    let mut rest = rules.as_slice();
    let mut found = Vec::new();
    while let Some(first) = rest.first() {
        let rule = first.of()?;
        let whole = KernelRule::all(rule);
        rest = rest.strip_prefix(whole.as_slice())?;
        found.push(rule);
    }
    Some(found)
}

fn dump(
    connection: &mut Connection,
    question: &Request,
) -> Result<Vec<super::socket::Answer>, Failure> {
    match connection.dump(question) {
        // No such table.
        Err(Failure::Kernel { errno, .. }) if errno == libc::ENOENT => Ok(Vec::new()),
        answers => answers,
    }
}

/// Replaces the interface's rules in one batch: the old or the new ones are in effect, never a part. Without rules there
/// is no table.
pub(super) fn set(
    connection: &mut Connection,
    nic: &NicName,
    rules: &[ClassRule],
) -> Result<(), Failure> {
    let table = table_of(nic);
    let mut changes = Vec::new();
    if has_table(connection, &table)? {
        let mut removal = Request::new(DELETE_TABLE, &NETDEV);
        removal.put_text(TABLE_NAME, &table);
        changes.push(removal);
    }
    if !rules.is_empty() {
        changes.extend(new_table(&table, nic, rules));
    }
    if changes.is_empty() {
        return Ok(());
    }
    let begin = Request::new(BATCH_BEGIN, &OF_BATCH);
    let end = Request::new(BATCH_END, &OF_BATCH);
    match connection.batch(&begin, &changes, &end) {
        Err(Failure::Kernel { errno, .. })
            if [libc::EOPNOTSUPP, libc::EAFNOSUPPORT].contains(&errno) =>
        {
            Err(Failure::NoEgress)
        }
        done => done,
    }
}

fn has_table(connection: &mut Connection, table: &str) -> Result<bool, Failure> {
    let question = Request::new(GET_TABLE, &NETDEV);
    for answer in dump(connection, &question)? {
        let own = Attributes::after(&answer.body, NETDEV.len())?;
        if answer.kind == NEW_TABLE && own.text(TABLE_NAME)?.as_deref() == Some(table) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `nft add table netdev NAME`, its chain, and the rules.
fn new_table(name: &str, nic: &NicName, rules: &[ClassRule]) -> Vec<Request> {
    let of = |kind: u16, flags: u16| Request::new(kind, &NETDEV).with_flags(CREATE | flags);
    let mut table = of(NEW_TABLE, EXCLUSIVE);
    table.put_text(TABLE_NAME, name);
    let mut chain = of(NEW_CHAIN, EXCLUSIVE);
    chain.put_text(OF_TABLE, name).put_text(CHAIN_NAME, CHAIN);
    chain.nest(CHAIN_HOOK, |hook| {
        hook.put(HOOK_NUMBER, &EGRESS.to_be_bytes());
        hook.put(HOOK_PRIORITY, &FILTER.to_be_bytes());
        hook.put_text(HOOK_DEVICE, nic.as_str());
    });
    chain.put_text(CHAIN_TYPE, "filter");
    let mut all = vec![table, chain];
    for rule in rules.iter().flat_map(|rule| KernelRule::all(*rule)) {
        let mut request = of(NEW_RULE, APPEND);
        request.put_text(OF_TABLE, name).put_text(RULE_CHAIN, CHAIN);
        request.nest(RULE_EXPRESSIONS, |list| {
            Expression::put_all(&rule.expressions(), list);
        });
        all.push(request);
    }
    all
}

#[cfg(test)]
mod tests;

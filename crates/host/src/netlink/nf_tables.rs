//! Numbers of nf_tables messages and attributes (`<linux/netfilter/nfnetlink.h>`, `<linux/netfilter/nf_tables.h>`).

/// `NFNL_SUBSYS_NFTABLES`, and its messages: `NFT_MSG_NEWTABLE` is the response to `NFT_MSG_GETTABLE`.
const SUBSYSTEM: u16 = 10 << 8;
pub(super) const NEW_TABLE: u16 = SUBSYSTEM;
pub(super) const GET_TABLE: u16 = SUBSYSTEM | 1;
pub(super) const DELETE_TABLE: u16 = SUBSYSTEM | 2;
pub(super) const NEW_CHAIN: u16 = SUBSYSTEM | 3;
pub(super) const NEW_RULE: u16 = SUBSYSTEM | 6;
pub(super) const GET_RULE: u16 = SUBSYSTEM | 7;
/// `NFNL_MSG_BATCH_BEGIN`, `NFNL_MSG_BATCH_END`: nf_tables changes only within a batch, all of it or nothing.
pub(super) const BATCH_BEGIN: u16 = 0x10;
pub(super) const BATCH_END: u16 = 0x11;
/// `struct nfgenmsg` that says whose batch it is: version 0, and the number in network byte order.
pub(super) const OF_BATCH: [u8; 4] = [0, 0, 0, 10];
/// `NFTA_TABLE_NAME`; `NFTA_CHAIN_TABLE` and `NFTA_RULE_TABLE`.
pub(super) const TABLE_NAME: u16 = 1;
pub(super) const OF_TABLE: u16 = 1;
/// `NFTA_CHAIN_NAME`, `_HOOK`, `_TYPE`.
pub(super) const CHAIN_NAME: u16 = 3;
pub(super) const CHAIN_HOOK: u16 = 4;
pub(super) const CHAIN_TYPE: u16 = 7;
/// `NFTA_HOOK_HOOKNUM`, `_PRIORITY`; the priority of filters.
pub(super) const HOOK_NUMBER: u16 = 1;
pub(super) const HOOK_PRIORITY: u16 = 2;
pub(super) const FILTER: u32 = 0;
/// `NFTA_RULE_CHAIN`, `_EXPRESSIONS`.
pub(super) const RULE_CHAIN: u16 = 2;
pub(super) const RULE_EXPRESSIONS: u16 = 4;

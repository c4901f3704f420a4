//! Everything that is a C function or meets raw memory: the library itself, and how a test reaches it.

#![expect(
    unsafe_code,
    reason = "C functions, raw objects and memory that programs register"
)]

mod buffer;
mod carry;
mod completion;
mod control;
mod device;
mod export;
mod hot;
mod manager;
mod queue_pair;
mod region;
mod world;

pub use buffer::Buffer;
pub use control::Fake;
pub(crate) use device::own_address;

/// What the headers of rdma-core name and `linerate_verbs` does not use.
mod number {
    use std::ffi::{c_int, c_uint};

    pub(super) const NODE_CA: c_int = 1;
    pub(super) const TRANSPORT_IB: c_int = 0;
    pub(super) const TRANSPORT_IWARP: c_int = 1;
    pub(super) const LINK_LAYER_INFINIBAND: u8 = 1;
    pub(super) const GID_TYPE_IB: u32 = 0;
    pub(super) const PORT_DOWN: c_int = 1;
    pub(super) const MTU_1024: c_int = 3;
    pub(super) const MTU_4096: c_int = 5;

    pub(super) const QPS_RESET: c_int = 0;

    pub(super) const QP_CUR_STATE: c_int = 1 << 1;
    pub(super) const QP_ALT_PATH: c_int = 1 << 14;
    pub(super) const QP_PATH_MIG_STATE: c_int = 1 << 18;

    pub(super) const WC_SUCCESS: c_int = 0;
    pub(super) const WC_LOC_LEN_ERR: c_int = 1;
    pub(super) const WC_LOC_PROT_ERR: c_int = 4;
    pub(super) const WC_WR_FLUSH_ERR: c_int = 5;
    pub(super) const WC_REM_INV_REQ_ERR: c_int = 9;
    pub(super) const WC_REM_ACCESS_ERR: c_int = 10;
    pub(super) const WC_REM_OP_ERR: c_int = 11;
    pub(super) const WC_RETRY_EXC_ERR: c_int = 12;
    pub(super) const WC_RNR_RETRY_EXC_ERR: c_int = 13;

    pub(super) const WC_SEND: c_int = 0;
    pub(super) const WC_RDMA_WRITE: c_int = 1;
    pub(super) const WC_RDMA_READ: c_int = 2;
    pub(super) const WC_FETCH_ADD: c_int = 4;
    pub(super) const WC_GRH: c_uint = 1;

    pub(super) const EVENT_CQ_ERR: c_int = 0;
    pub(super) const EVENT_QP_ACCESS_ERR: c_int = 3;
    pub(super) const EVENT_DEVICE_FATAL: c_int = 8;
    pub(super) const EVENT_PORT_ACTIVE: c_int = 9;
    pub(super) const EVENT_PORT_ERR: c_int = 10;
}

/// Bytes of the route header in front of a datagram.
const GRH: usize = 40;

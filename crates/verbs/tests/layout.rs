//! Every structure and number of `abi` matches the installed headers, as printed by a C program.

#![expect(clippy::print_stderr, reason = "a skip is said")]

use std::fmt::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::process::Command;

use linerate_verbs::sys::abi;

/// A line for each thing: what we have, and the statement of the C program that prints what it has.
#[derive(Default)]
struct Both {
    ours: String,
    program: String,
}

impl Both {
    fn add(&mut self, what: &str, ours: impl std::fmt::Display, format: &str, c: &str) {
        writeln!(self.ours, "{what} {ours}").expect("a string");
        writeln!(self.program, "printf(\"{what} {format}\\n\", {c});").expect("a string");
    }
}

/// Of structures whose end is the library's own only what comes before it is ours.
macro_rules! fields {
    ($both:ident: $($kind:ident { $($field:ident $(: $c:literal)?),* })+) => {$($(
        let name = [stringify!($field) $(, $c)?];
        let (first, last) = (name[0], name[name.len() - 1]);
        $both.add(
            &format!("{}.{first}", stringify!($kind)),
            offset_of!(abi::$kind, $field),
            "%zu",
            &format!("offsetof(struct {}, {last})", stringify!($kind)),
        );
    )*)+};
}

macro_rules! structures {
    ($both:ident: $($kind:ident { $($field:ident $(: $c:literal)?),* })+) => {$(
        $both.add(
            stringify!($kind),
            size_of::<abi::$kind>(),
            "%zu",
            concat!("sizeof(struct ", stringify!($kind), ")"),
        );
        $both.add(
            concat!("alignment of ", stringify!($kind)),
            align_of::<abi::$kind>(),
            "%zu",
            concat!("_Alignof(struct ", stringify!($kind), ")"),
        );
        fields!($both: $kind { $($field $(: $c)?),* });
    )+};
}

macro_rules! numbers {
    ($both:ident: $($name:ident),+ $(,)?) => {$(
        $both.add(stringify!($name), i64::from(abi::$name), "%lld", concat!("(long long)", stringify!($name)));
    )+};
}

fn verbs() -> Both {
    let mut both = Both::default();
    structures!(both:
        ibv_device { node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        ibv_context_ops { poll_cq, req_notify_cq, post_send, post_recv }
        ibv_device_attr {
            fw_ver, node_guid, max_mr_size, vendor_id, max_qp, max_qp_wr, max_cqe, max_qp_rd_atom,
            max_qp_init_rd_atom, atomic_cap, max_srq_sge, max_pkeys, phys_port_cnt
        }
        ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, max_msg_sz, lid, sm_lid, phys_state, link_layer, flags,
            port_cap_flags2
        }
        ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex }
        ibv_pd { context, handle }
        ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        ibv_comp_channel { context, fd, refcnt }
        ibv_ah { context, pd, handle }
        ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl,
            dlid_path_bits
        }
        ibv_sge { addr, length, lkey }
        ibv_recv_wr { wr_id, next, sg_list, num_sge }
        ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr,
            xrc_remote_srqn: "qp_type.xrc.remote_srqn", rest: "bind_mw"
        }
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags,
            cap, ah_attr, alt_ah_attr, pkey_index, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num,
            timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit
        }
        ibv_async_event { element, event_type }
    );
    fields!(both:
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors }
        ibv_cq { context, channel, cq_context, handle, cqe }
        ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type }
    );
    // The parts of the union in a work request are unnamed.
    for (ours, place) in [
        (offset_of!(abi::wr_rdma, rkey), "rdma.rkey"),
        (
            offset_of!(abi::wr_atomic, compare_add),
            "atomic.compare_add",
        ),
        (offset_of!(abi::wr_atomic, rkey), "atomic.rkey"),
        (offset_of!(abi::wr_ud, ah), "ud.ah"),
        (offset_of!(abi::wr_ud, remote_qpn), "ud.remote_qpn"),
        (offset_of!(abi::wr_ud, remote_qkey), "ud.remote_qkey"),
    ] {
        let start = "offsetof(struct ibv_send_wr, wr";
        both.add(place, ours, "%zu", &format!("{start}.{place}) - {start})"));
    }
    numbers!(both:
        IBV_NODE_RNIC, IBV_PORT_ACTIVE, IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2,
        IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC,
        IBV_ACCESS_ON_DEMAND, IBV_ACCESS_HUGETLB, IBV_ACCESS_RELAXED_ORDERING, IBV_QPT_RC, IBV_QPT_UD,
        IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR, IBV_QP_STATE, IBV_QP_ACCESS_FLAGS,
        IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_TIMEOUT,
        IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER,
        IBV_QP_SQ_PSN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_DEST_QPN, IBV_WR_RDMA_WRITE, IBV_WR_SEND,
        IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED,
        IBV_SEND_INLINE, IBV_WC_RECV, IBV_WC_WITH_IMM, IBV_LINK_LAYER_ETHERNET,
    );
    both
}

fn manager() -> Both {
    let mut both = Both::default();
    structures!(both:
        rdma_event_channel { fd }
        rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control, retry_count,
            rnr_retry_count, srq, qp_num
        }
        rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey }
        rdma_cm_event { id, listen_id, event, status, param }
    );
    fields!(both: rdma_cm_id { verbs, channel, context, qp });
    numbers!(both:
        RDMA_PS_TCP, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED,
        RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED,
        RDMA_OPTION_ID, RDMA_OPTION_ID_TOS,
    );
    both
}

/// Has a C compiler build and run a program that prints the header's values; `None` if that is not possible.
fn printed_by(header: &str, program: &str) -> Option<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, file) = (folder.path().join("says.c"), folder.path().join("says"));
    let compile = |statements: &str| {
        let text = format!(
            "#include <stddef.h>\n#include <stdio.h>\n#include <{header}>\nint main(void) {{\n{statements}}}\n"
        );
        std::fs::write(&source, text).expect("a file");
        let mut compiler = Command::new("cc");
        compiler.arg("-o").arg(&file).arg(&source).output()
    };
    match compile("") {
        Ok(tried) if tried.status.success() => {}
        Ok(_) => {
            eprintln!("SKIP: <{header}> is not installed (Debian: libibverbs-dev, librdmacm-dev)");
            return None;
        }
        Err(error) => {
            eprintln!("SKIP: no C compiler: {error}");
            return None;
        }
    }
    let built = compile(program).expect("it ran before");
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{errors}");
    let said = Command::new(&file).output().expect("what was just built");
    Some(String::from_utf8_lossy(&said.stdout).into_owned())
}

fn compare(header: &str, both: &Both) {
    if let Some(theirs) = printed_by(header, &both.program) {
        assert_eq!(theirs, both.ours);
    }
}

#[test]
fn structures_and_numbers_are_those_of_libibverbs() {
    compare("infiniband/verbs.h", &verbs());
}

#[test]
fn structures_and_numbers_are_those_of_librdmacm() {
    compare("rdma/rdma_cma.h", &manager());
}

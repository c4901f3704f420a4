//! The names of the `hw_counters` of mlx5, bnxt_re, irdma and rxe, by meaning.

/// Lost or out-of-order packets.
pub(crate) const LOSS: [&str; 13] = [
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "implied_nak_seq_err",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "to_retransmits",
    "seq_err_naks_rcvd",
    "tcpRetransSegs",
    "RetransSegs",
    "out_of_seq_request",
    "rcvd_seq_err",
    "retry_exceeded_err",
];
/// Receiver not ready: too few posted receives.
pub(crate) const RECEIVER: [&str; 6] = [
    "rnr_nak_retry_err",
    "out_of_buffer",
    "rnr_naks_rcvd",
    "rcvd_rnr_err",
    "send_rnr_err",
    "retry_rnr_exceeded_err",
];
/// Corrupted packets.
pub(crate) const CORRUPT: [&str; 1] = ["rx_icrc_encapsulated"];
/// Congestion notifications that slowed the sender down.
pub(crate) const CONGESTION: [&str; 3] = ["rp_cnp_handled", "rx_cnp_pkts", "cnpHandled"];

//! The status opcodes of NVIDIA's firmware: why a port has no link. `mlxlink` prints them, the kernel does not; mlx5 maps
//! some to the extended link states of ethtool and drops the others.
//!
//! Sources: NVIDIA, "Link Diagnostic Per Port" (user manuals of MLNX-OS and NVOS), the recommendations of `mlxlink`
//! (MFT user manual), and drivers/net/ethernet/mellanox/mlx5/core/en_ethtool.c (`mlx5e_link_ext_state_opcode_map`).

use serde::Serialize;

/// What a status opcode means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusOpcode {
    /// The opcode.
    pub opcode: u32,
    /// What it means.
    pub reason: &'static str,
    /// What to do.
    pub advice: &'static str,
    /// The kernel's extended link state for it; null if mlx5 reports none.
    pub kernel_state: Option<&'static str>,
}

/// Opcodes from the first to the last: reason, advice, and the kernel's state.
type Row = (u32, u32, &'static str, &'static str, Option<&'static str>);

const AUTONEG: Option<&str> = Some("Autoneg");
const TRAINING: Option<&str> = Some("Link training failure");
const MISMATCH: Option<&str> = Some("Logical mismatch");
const SIGNAL: Option<&str> = Some("Bad signal integrity");
const CABLE: Option<&str> = Some("Cable issue");

const SAME_MODES: &str = "Set the same speeds and FEC modes on both ends.";
const RESEAT: &str = "Reseat or replace the cable.";
const CLEAN: &str = "Clean or replace cable and module.";
const OTHER_CABLE: &str = "Use a module or cable that the NIC supports at the enabled speeds.";
const INTERNAL: &str = "Reset the NIC; update its firmware if it returns.";
const POWER: &str = "Use a module that needs less power.";

const ROWS: &[Row] = &[
    (
        0,
        0,
        "no issue was observed",
        "If there is no link, check the link partner.",
        None,
    ),
    (
        1,
        1,
        "a command closed the port",
        "Enable it: `ip link set IFACE up`.",
        None,
    ),
    (2, 4, "autonegotiation failed", SAME_MODES, AUTONEG),
    (5, 8, "link training failed", RESEAT, TRAINING),
    (
        9,
        13,
        "logical mismatch between the link partners",
        SAME_MODES,
        MISMATCH,
    ),
    (
        14,
        14,
        "remote fault received",
        "Check the link partner.",
        TRAINING,
    ),
    (15, 15, "bad signal integrity", CLEAN, SIGNAL),
    (
        16,
        16,
        "compliance code mismatch between cable and port",
        OTHER_CABLE,
        CABLE,
    ),
    (17, 17, "bad signal integrity", CLEAN, SIGNAL),
    (18, 19, "internal error", INTERNAL, None),
    (
        20,
        20,
        "module or cable of another vendor",
        OTHER_CABLE,
        CABLE,
    ),
    (22, 22, "internal error", INTERNAL, None),
    (
        23,
        23,
        "internal error: calibration failed",
        INTERNAL,
        Some("Calibration failure"),
    ),
    (
        24,
        28,
        "compliance code mismatch between cable and port",
        OTHER_CABLE,
        None,
    ),
    (
        29,
        29,
        "compliance code mismatch between cable and port",
        OTHER_CABLE,
        CABLE,
    ),
    (
        30,
        32,
        "compliance code mismatch between cable and port",
        OTHER_CABLE,
        None,
    ),
    (34, 35, "speed degradation", CLEAN, None),
    (36, 36, "no partner detected", SAME_MODES, AUTONEG),
    (38, 39, "autonegotiation failed", SAME_MODES, AUTONEG),
    (
        40,
        40,
        "the partner runs the other protocol (Ethernet or InfiniBand)",
        "Set the same port type on both ends.",
        None,
    ),
    (
        41,
        41,
        "the module cannot run at the enabled rate",
        OTHER_CABLE,
        None,
    ),
    (42, 42, "bad signal integrity", CLEAN, SIGNAL),
    (48, 49, "bad signal integrity", CLEAN, None),
    (50, 50, "internal error", INTERNAL, None),
    (52, 52, "bad signal integrity", CLEAN, None),
    (55, 55, "internal error", INTERNAL, None),
    (
        56,
        56,
        "the lanes of the module are not synchronized",
        CLEAN,
        None,
    ),
    (
        57,
        57,
        "no signal detected",
        "Check the link partner and the cable.",
        None,
    ),
    (
        60,
        60,
        "no partner detected for a long time",
        "Check the link partner and the cable.",
        None,
    ),
    (
        128,
        128,
        "troubleshooting is in progress",
        "Wait and read it again.",
        None,
    ),
    (
        1023,
        1023,
        "information is not available",
        "Wait and read it again.",
        None,
    ),
    (
        1024,
        1024,
        "no cable",
        "Plug in the cable.",
        Some("No cable"),
    ),
    (
        1025,
        1025,
        "long-range module or cable of another vendor",
        OTHER_CABLE,
        CABLE,
    ),
    (
        1026,
        1026,
        "the I2C bus to the module is stuck",
        "Reseat or replace the module.",
        None,
    ),
    (
        1027,
        1027,
        "bad or unsupported EEPROM",
        "Replace the module or cable: it cannot be read.",
        Some("EEPROM issue"),
    ),
    (
        1028,
        1028,
        "the part number is not on the NIC's list",
        OTHER_CABLE,
        None,
    ),
    (1029, 1029, "unsupported cable", OTHER_CABLE, CABLE),
    (
        1030,
        1030,
        "the module was shut down because of its temperature",
        "Cool the NIC or module.",
        Some("Overheat"),
    ),
    (1031, 1031, "shorted cable", RESEAT, CABLE),
    (
        1032,
        1032,
        "power budget exceeded",
        POWER,
        Some("Power budget exceeded"),
    ),
    (
        1033,
        1033,
        "management forced the port down",
        "Check the BMC and the settings of the port.",
        None,
    ),
    (
        1034,
        1034,
        "a command disabled the module",
        "Enable the module.",
        None,
    ),
    (
        1035,
        1035,
        "the module is off: the system's power budget is exceeded",
        POWER,
        None,
    ),
    (
        1036,
        1036,
        "wrong module type: the port does not enable this kind of module",
        "Use another type of module or cable, one that the NIC's vendor lists.",
        None,
    ),
    (
        1040,
        1040,
        "the power of the PCIe slot is exceeded",
        POWER,
        None,
    ),
    (
        1042,
        1042,
        "fault in the module's state machine",
        "Reseat or replace the module.",
        None,
    ),
];

/// What `opcode` means; none if the sources do not list it.
pub fn status_opcode(opcode: u32) -> Option<StatusOpcode> {
    let row = ROWS
        .iter()
        .find(|(first, last, ..)| (*first..=*last).contains(&opcode))?;
    let (_, _, reason, advice, kernel_state) = *row;
    Some(StatusOpcode {
        opcode,
        reason,
        advice,
        kernel_state,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_module_type_has_an_opcode_that_the_kernel_does_not_report() {
        let wrong = status_opcode(1036).expect("listed");
        assert!(wrong.reason.starts_with("wrong module type"));
        assert_eq!(wrong.kernel_state, None);
        assert_eq!(
            status_opcode(1024).and_then(|one| one.kernel_state),
            Some("No cable")
        );
    }

    #[test]
    fn an_opcode_that_the_sources_do_not_list_has_no_meaning() {
        for opcode in [21, 33, 100, 1037, u32::MAX] {
            assert_eq!(status_opcode(opcode), None, "{opcode}");
        }
    }

    #[test]
    fn the_opcodes_ascend_without_an_overlap() {
        assert!(ROWS.iter().all(|(first, last, ..)| first <= last));
        assert!(
            ROWS.windows(2)
                .all(|pair| matches!(pair, [(_, last, ..), (next, ..)] if last < next))
        );
    }
}

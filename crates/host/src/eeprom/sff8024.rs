//! The codes shared by all module standards (SFF-8024 rev 4.11: identifiers of table 4-1, connectors of table 4-3,
//! extended compliance codes of table 4-4, host interfaces of table 4-5).

/// The form factor of an identifier, table 4-1.
pub(super) fn form_factor(identifier: u8) -> String {
    match identifier {
        0x00 => "unspecified",
        0x01 => "GBIC",
        0x02 => "soldered to the board",
        0x03 => "SFP",
        0x06 => "XFP",
        0x0b => "DWDM-SFP",
        0x0c => "QSFP",
        0x0d => "QSFP+",
        0x0e => "CXP",
        0x11 => "QSFP28",
        0x12 => "CXP2",
        0x13 | 0x16 => "CDFP",
        0x17 => "microQSFP",
        0x18 => "QSFP-DD",
        0x19 => "OSFP",
        0x1a => "SFP-DD",
        0x1b => "DSFP",
        0x1e => "QSFP with CMIS",
        0x1f => "SFP-DD with CMIS",
        0x20 => "SFP with CMIS",
        0x21 => "OSFP-XD",
        other => return format!("identifier {other:#04x}"),
    }
    .to_owned()
}

/// The connector, table 4-3.
pub(super) fn connector(code: u8) -> Option<String> {
    Some(
        match code {
            0x00 => return None,
            0x01 => "SC",
            0x04 => "BNC/TNC",
            0x06 => "FibreJack",
            0x07 => "LC",
            0x08 => "MT-RJ",
            0x09 => "MU",
            0x0a => "SG",
            0x0b => "Optical pigtail",
            0x0c => "MPO 1x12",
            0x0d => "MPO 2x16",
            0x20 => "HSSDC II",
            0x21 => "Copper pigtail",
            0x22 => "RJ45",
            0x23 => "No separable connector",
            0x24 => "MXC 2x16",
            0x25 => "CS",
            0x26 => "SN",
            0x27 => "MPO 2x12",
            0x28 => "MPO 1x16",
            other => return Some(format!("connector {other:#04x}")),
        }
        .to_owned(),
    )
}

/// The code of "No separable connector": a cable assembly.
pub(super) const NO_SEPARABLE_CONNECTOR: u8 = 0x23;

/// The rate of a module by its extended compliance code, table 4-4, in Gb/s: of each lane, or of the whole.
pub(super) fn rate_of_compliance(code: u8, lanes: u64) -> Option<u64> {
    Some(match code {
        0x10..=0x12 | 0x1f => 10 * lanes,
        0x16 | 0x1c => 10,
        0x01..=0x04 | 0x06..=0x08 | 0x0b..=0x0d | 0x17..=0x19 | 0x20 | 0x22..=0x24 => 25 * lanes,
        0x05 | 0x1a | 0x1b | 0x21 | 0x25..=0x27 => 100,
        0x30..=0x33 | 0x40..=0x43 | 0x45 | 0x46 => 50 * lanes,
        0x3f => 100 * lanes,
        0x1d => 5,
        _ => return None,
    })
}

/// The rate of a host interface in Gb/s, table 4-5: what an application of a CMIS module runs at. None for InfiniBand,
/// Fibre Channel and OTN, and for codes of later revisions.
pub(super) fn rate_of_interface(code: u8) -> Option<u64> {
    Some(match code {
        0x01 => 1,
        0x03 | 0x04 | 0x13 => 10,
        0x05 | 0x14..=0x16 => 25,
        0x06 | 0x07 | 0x17 => 40,
        0x08..=0x0a | 0x18 | 0x43..=0x45 => 50,
        0x0b..=0x0d | 0x19..=0x1b | 0x41 | 0x42 | 0x46 | 0x4b | 0x4c => 100,
        0x0e | 0x0f | 0x1c | 0x1e | 0x47 | 0x4d | 0x4e | 0x80 => 200,
        0x10 | 0x11 | 0x1d | 0x1f | 0x48 | 0x4f | 0x50 | 0x81 => 400,
        0x49 | 0x51 | 0x52 | 0x82 => 800,
        0x55 | 0x56 | 0x83 => 1_600,
        _ => return None,
    })
}

/// The transmission medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Technology {
    Optical,
    PassiveCopper,
    ActiveCopper,
    /// Twisted pair.
    BaseT,
}

impl Technology {
    /// As text.
    pub(super) fn words(self) -> String {
        match self {
            Self::Optical => "Optical",
            Self::PassiveCopper => "Passive copper",
            Self::ActiveCopper => "Active copper",
            Self::BaseT => "BASE-T",
        }
        .to_owned()
    }

    /// From a transmitter code, shared by SFF-8636 (byte 147) and CMIS (byte 212).
    pub(super) fn of_transmitter(code: u8) -> Self {
        match code {
            0x0a | 0x0b => Self::PassiveCopper,
            0x0c..=0x0f | 0x12..=0x14 => Self::ActiveCopper,
            _ => Self::Optical,
        }
    }

    /// From an extended compliance code, table 4-4, as far as it shows it.
    pub(super) fn of_compliance(code: u8) -> Option<Self> {
        match code {
            0x08 | 0x19 => Some(Self::ActiveCopper),
            0x0b..=0x0d => Some(Self::PassiveCopper),
            0x16 | 0x1c..=0x1e => Some(Self::BaseT),
            0x01..=0x07 | 0x09 | 0x10..=0x12 | 0x17 | 0x18 => Some(Self::Optical),
            _ => None,
        }
    }
}

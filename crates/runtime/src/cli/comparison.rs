//! The options of `measure stream` that compare many trials: `--ladder` and `--nic`.

use std::net::IpAddr;
use std::str::FromStr;

use clap::Args;
use linerate_model::ids::{IdError, NicName};

/// The heading of these options.
pub(super) const COMPARISON: &str = "Comparisons";

/// All send and receive modes side by side, or several NICs alone and together.
#[derive(Debug, Args)]
#[command(next_help_heading = COMPARISON)]
pub struct ComparisonArgs {
    /// Compare all send modes (each with plain `read`) and all receive modes (each with plain `write`), in rounds of
    /// random order. Trials last 2 s by default. With `--until-ci`, repeats until each mode's ratio to `write`/`read`
    /// is that precise.
    #[arg(long, group = "comparison", conflicts_with_all = ["send", "receive", "iperf3", "interval", "perf"])]
    pub ladder: bool,
    /// Measure over several NICs of this host, each alone and all at once, in rounds of random order, and name the bound
    /// that they share. The peer's address is one in the NIC's subnet, or the given one: `eth2,eth3=10.2.0.9`. Trials last
    /// 2 s by default.
    #[arg(long, value_name = "NIC[=ADDRESS]", value_delimiter = ',', group = "comparison", conflicts_with_all = ["iperf3", "address", "port", "bytes", "interval", "perf", "no_record", "per_flow", "until_ci", "require", "preload", "why"])]
    pub nic: Vec<NicArg>,
    /// Number of rounds: one trial of every mode, or of each NIC alone and all together. A confidence interval needs
    /// three [default: 3; with `--nic`: 5].
    #[arg(long, value_name = "N", requires = "comparison", conflicts_with = "until_ci", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Seed of the trial order [default: random, printed].
    #[arg(long, requires = "comparison")]
    pub seed: Option<u64>,
}

impl ComparisonArgs {
    /// The option that asks for a comparison.
    pub fn asked(&self) -> Option<&'static str> {
        let nics = (!self.nic.is_empty()).then_some("--nic");
        self.ladder.then_some("--ladder").or(nics)
    }
}

/// A value of `--nic`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicArg {
    /// The interface of this host.
    pub nic: NicName,
    /// The address of the peer that is reached over it; by default one in a common subnet.
    pub address: Option<IpAddr>,
}

impl FromStr for NicArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, address) = match text.split_once('=') {
            Some((name, address)) => (name, Some(address)),
            None => (text, None),
        };
        let nic = name.parse().map_err(|error: IdError| error.to_string())?;
        let address = address.map(str::parse).transpose();
        let address = address.map_err(|_| {
            "expected NIC or NIC=ADDRESS, such as `eth2` or `eth2=10.2.0.9`".to_owned()
        })?;
        Ok(Self { nic, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_may_have_the_address_that_it_reaches() {
        let parsed = |text: &str| text.parse::<NicArg>();
        let plain = parsed("eth2").expect("a name");
        assert_eq!((plain.nic.as_str(), plain.address), ("eth2", None));
        let six = parsed("eth2=fd00::1").expect("a name and an address");
        assert_eq!(six.address, "fd00::1".parse().ok());
        for wrong in ["", "=10.0.0.1", "eth2=", "eth2=peer", "a/b"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}

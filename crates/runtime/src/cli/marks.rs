//! Options that mark the packets of a trial.

use clap::Args;
use linerate_model::qos::parse_dscp;
use linerate_model::workload::Marks;

use super::measure::TRIAL;

/// How the packets of a trial are marked.
#[derive(Debug, Args)]
#[command(next_help_heading = TRIAL)]
pub struct MarkArgs {
    /// Socket priority of the sent packets (SO_PRIORITY), which a VLAN's egress map turns into a PCP.
    ///
    /// Above 6 it needs CAP_NET_ADMIN.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub priority: Option<u32>,
    /// DSCP of the sent packets (IP_TOS, IPV6_TCLASS): `af21`, `ef`, `cs1` or a number.
    #[arg(long, value_name = "NAME", hide_short_help = true, value_parser = parse_dscp_arg)]
    pub dscp: Option<u8>,
    /// Firewall mark of the sent packets (SO_MARK). Needs CAP_NET_ADMIN.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub mark: Option<u32>,
}

impl MarkArgs {
    /// As a trial has them.
    pub fn marks(&self) -> Marks {
        Marks {
            priority: self.priority,
            dscp: self.dscp,
            mark: self.mark,
            udp_port: None,
        }
    }
}

fn parse_dscp_arg(text: &str) -> Result<u8, String> {
    parse_dscp(text).ok_or_else(|| "a DSCP is 0 to 63, or a name such as `af21`, `ef`".to_owned())
}

//! Where a trial runs, in words.

use std::str::FromStr;

use linerate_model::workload::{Placement, TrialSpec};

use crate::cli::{Placing, TrialArgs};
use crate::exit::Outcome;
use crate::trial::Path;

/// The placement that the arguments ask for on a path.
pub fn placement(args: &TrialArgs, _spec: &TrialSpec, _path: &Path) -> Outcome<Placement> {
    Ok(match &args.place {
        Some(Placing::Roles(sender, receiver)) => Placement {
            sender_cpus: sender.clone(),
            receiver_cpus: receiver.clone(),
            ..Placement::default()
        },
        _ => Placement::default(),
    })
}

/// Where threads run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Where(String);

impl FromStr for Where {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }
}

/// Where buffers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryAt(String);

impl FromStr for MemoryAt {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }
}

//! This host, where the other end is nothing that linerate can read or change: a server or a device.

use std::path::Path;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::plan::{End, Plan};
use linerate_model::setting::{SettingKey, Value};

use crate::endpoint::local::LocalEndpoint;

/// This host, and the name of what is at the other end.
#[derive(Debug)]
pub struct OneHost {
    /// This end.
    pub endpoint: LocalEndpoint,
    /// This host, as it was read last.
    pub local: Host,
    /// The other end, of which nothing is known.
    pub remote: Host,
    /// The interface of the other end.
    pub remote_nic: NicName,
    what: &'static str,
}

impl OneHost {
    /// Reads this host; `what` is at the other end. `includes_way_in` permits changes that may disrupt the management path.
    pub fn open(state: &Path, includes_way_in: bool, what: &'static str) -> Outcome<Self> {
        let mut endpoint = LocalEndpoint::open(state)?;
        endpoint.disturb_way_in(includes_way_in);
        Ok(Self {
            local: endpoint.read_host(),
            endpoint,
            remote: Host::unheard(what),
            remote_nic: NicName::unheard(),
            what,
        })
    }

    /// A host.
    pub fn host(&self, end: End) -> &Host {
        match end {
            End::Local => &self.local,
            End::Remote => &self.remote,
        }
    }

    /// Reads this host again.
    pub fn read_again(&mut self) {
        self.local = self.endpoint.read_host();
    }

    /// The values that settings have.
    pub fn settings(&self, end: End, keys: &[SettingKey]) -> Outcome<Vec<Known<Value>>> {
        self.only_here(end)?;
        let read = keys.iter().map(|key| self.endpoint.read_setting(key));
        Ok(read.collect())
    }

    /// Makes the changes of a plan, all or none.
    pub fn apply(&mut self, end: End, plan: &Plan) -> Outcome<()> {
        self.only_here(end)?;
        // The settings of an experiment are not known in advance.
        self.endpoint.expect_any();
        Ok(self.endpoint.apply(plan)?)
    }

    /// Undoes the newest open plan.
    pub fn undo(&mut self, end: End) -> Outcome<()> {
        self.only_here(end)?;
        Ok(self.endpoint.undo()?)
    }

    /// Keeps what is open; at the other end nothing can be.
    pub fn commit(&mut self, end: End) -> Outcome<()> {
        match end {
            End::Local => Ok(self.endpoint.commit()?),
            End::Remote => Ok(()),
        }
    }

    fn only_here(&self, end: End) -> Outcome<()> {
        match end {
            End::Local => Ok(()),
            End::Remote => {
                let what = self.what;
                let why = format!("{what} is at the other end: its settings cannot be changed");
                Err(Stop::new(Code::NotSupported, why))
            }
        }
    }
}

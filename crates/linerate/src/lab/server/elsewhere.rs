//! A server on a host that linerate does not run on, loaded from this one: `lab run --url URL` without a peer. Nothing of
//! the other host is known, and nothing of it is changed.

use std::net::IpAddr;
use std::path::Path;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::lab::LoadedServer;
use linerate_model::plan::{End, Plan};
use linerate_model::sample::{Flag, Sample, SideSample};
use linerate_model::setting::{SettingKey, Value};
use linerate_model::workload::TrialSpec;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::endpoint::ends::Ends;
use linerate_runtime::endpoint::local::LocalEndpoint;
use linerate_runtime::endpoint::record::record;
use linerate_runtime::endpoint::trial::{outgoing_nic, source_towards};
use linerate_traffic::http::Target;

/// What runs at the other end.
pub(in crate::lab) const HTTP_SERVER: &str = "an HTTP server";

/// This host, and a server that it loads.
#[derive(Debug)]
pub(in crate::lab) struct UrlPath {
    endpoint: LocalEndpoint,
    target: Target,
    local: Host,
    remote: Host,
    local_nic: NicName,
    remote_nic: NicName,
    interrupt: Interrupt,
}

impl UrlPath {
    /// The path to the server. `includes_way_in` permits changes that may disrupt the management path.
    pub(in crate::lab) fn open(
        server: &LoadedServer,
        includes_way_in: bool,
        state: &Path,
        interrupt: &Interrupt,
    ) -> Outcome<Self> {
        let mut endpoint = LocalEndpoint::open(state)?;
        endpoint.disturb_way_in(includes_way_in);
        let local = endpoint.read_host();
        Ok(Self {
            local_nic: outgoing_nic(&local, server.address.ip())?,
            remote_nic: NicName::unheard(),
            target: Target {
                address: server.address,
                host: server.host.clone(),
            },
            remote: Host::unheard(HTTP_SERVER),
            local,
            endpoint,
            interrupt: interrupt.clone(),
        })
    }

    fn not_there() -> Stop {
        let why = format!("{HTTP_SERVER} is at the other end: its settings cannot be changed");
        Stop::new(Code::NotSupported, why)
    }
}

impl Ends for UrlPath {
    fn host(&self, end: End) -> &Host {
        match end {
            End::Local => &self.local,
            End::Remote => &self.remote,
        }
    }

    fn nic(&self, end: End) -> &NicName {
        match end {
            End::Local => &self.local_nic,
            End::Remote => &self.remote_nic,
        }
    }

    fn address(&self) -> IpAddr {
        self.target.address.ip()
    }

    fn read_again(&mut self) -> Outcome<()> {
        self.local = self.endpoint.read_host();
        Ok(())
    }

    fn settings(&mut self, end: End, keys: &[SettingKey]) -> Outcome<Vec<Known<Value>>> {
        match end {
            End::Local => {
                let read = keys.iter().map(|key| self.endpoint.read_setting(key));
                Ok(read.collect())
            }
            End::Remote => Err(Self::not_there()),
        }
    }

    fn trial(&mut self, spec: &TrialSpec) -> Outcome<Sample> {
        self.interrupt.check()?;
        let source = source_towards(self.address()).ok();
        let local = record(spec, source, None, || {
            linerate_traffic::http::load(spec, &self.target, self.interrupt.abort())
        });
        self.interrupt.check()?;
        Ok(Sample {
            spec: spec.clone(),
            local: local?,
            remote: SideSample::unheard(HTTP_SERVER),
            shared_kernel: false,
            flags: vec![Flag::ForeignPeer],
        })
    }

    fn apply(&mut self, end: End, plan: &Plan) -> Outcome<()> {
        match end {
            End::Local => {
                // The settings of an experiment are not known in advance.
                self.endpoint.expect_any();
                Ok(self.endpoint.apply(plan)?)
            }
            End::Remote => Err(Self::not_there()),
        }
    }

    fn undo(&mut self, end: End) -> Outcome<()> {
        match end {
            End::Local => Ok(self.endpoint.undo()?),
            End::Remote => Err(Self::not_there()),
        }
    }

    fn commit(&mut self, end: End) -> Outcome<()> {
        match end {
            End::Local => Ok(self.endpoint.commit()?),
            End::Remote => Err(Self::not_there()),
        }
    }
}

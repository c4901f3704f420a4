//! A server on a host that linerate does not run on, loaded from this one: `lab run --url URL` without a peer. Nothing of
//! the other host is known, and nothing of it is changed.

use std::net::IpAddr;
use std::path::Path;

use linerate_model::exit::Outcome;
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
use linerate_runtime::endpoint::one_host::OneHost;
use linerate_runtime::endpoint::record::record;
use linerate_runtime::endpoint::trial::{outgoing_nic, source_towards};
use linerate_traffic::http::Target;

/// What runs at the other end.
pub(in crate::lab) const HTTP_SERVER: &str = "an HTTP server";

/// This host, and a server that it loads.
#[derive(Debug)]
pub(in crate::lab) struct UrlPath {
    here: OneHost,
    target: Target,
    local_nic: NicName,
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
        let here = OneHost::open(state, includes_way_in, HTTP_SERVER)?;
        Ok(Self {
            local_nic: outgoing_nic(&here.local, server.address.ip())?,
            target: Target {
                address: server.address,
                host: server.host.clone(),
            },
            here,
            interrupt: interrupt.clone(),
        })
    }
}

impl Ends for UrlPath {
    fn host(&self, end: End) -> &Host {
        self.here.host(end)
    }

    fn nic(&self, end: End) -> &NicName {
        match end {
            End::Local => &self.local_nic,
            End::Remote => &self.here.remote_nic,
        }
    }

    fn address(&self) -> IpAddr {
        self.target.address.ip()
    }

    fn read_again(&mut self) -> Outcome<()> {
        self.here.read_again();
        Ok(())
    }

    fn settings(&mut self, end: End, keys: &[SettingKey]) -> Outcome<Vec<Known<Value>>> {
        self.here.settings(end, keys)
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
        self.here.apply(end, plan)
    }

    fn undo(&mut self, end: End) -> Outcome<()> {
        self.here.undo(end)
    }

    fn commit(&mut self, end: End) -> Outcome<()> {
        self.here.commit(end)
    }
}

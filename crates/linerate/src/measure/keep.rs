//! Stores every result, for `runs`, `report`, `compare` and `export`. A store that cannot be written never fails a
//! measurement.

use std::net::IpAddr;
use std::path::Path as FilePath;

use linerate_analysis::record::{Header, Measurement, Record, SCHEMA};
use linerate_analysis::trial::figure::{Figures, own_response};
use linerate_host::block_device::Device;
use linerate_model::exit::Outcome;
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::limit::why::Tried;
use linerate_model::sample::Sample;
use linerate_model::units::BitRate;
use linerate_runtime::cli::{PeerArgs, StoreArgs};
use linerate_runtime::console::command_line::command_line;
use linerate_runtime::console::random::fresh_seed;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::host_source::host_from;
use linerate_runtime::endpoint::trial::{PeerPath, outgoing_nic};
use linerate_store::measured::{SAMPLE_BYTES_MAX, store};

use super::block::ends::BLOCK_DEVICE;
use super::measured::Measured;

/// Stores the results of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keeper<'a> {
    pub(super) args: &'a StoreArgs,
    pub(super) state: &'a FilePath,
    pub(super) say: &'a Say,
}

/// The path that was measured, as far as it is known.
#[derive(Debug)]
pub(super) struct Between {
    peer: String,
    address: String,
    nics: (NicName, NicName),
    hosts: (Box<Host>, Box<Host>),
    copy: Option<BitRate>,
}

impl Between {
    /// The path to a linerate peer.
    pub(super) fn ends(path: &PeerPath, peer: &PeerArgs, copy: Option<BitRate>) -> Self {
        Self {
            peer: peer.peer.to_string(),
            address: path.address.to_string(),
            nics: (path.local_nic.clone(), path.remote_nic.clone()),
            hosts: (Box::new(path.local.clone()), Box::new(path.remote.clone())),
            copy,
        }
    }
}

impl Between {
    /// A block device of this host.
    pub(super) fn device(device: &Device, host: &Host) -> Self {
        let nic = device.disk.parse();
        Self {
            peer: BLOCK_DEVICE.to_owned(),
            address: device.path.display().to_string(),
            nics: (
                nic.unwrap_or_else(|_| NicName::unheard()),
                NicName::unheard(),
            ),
            hosts: (
                Box::new(host.clone()),
                Box::new(Host::unheard(BLOCK_DEVICE)),
            ),
            copy: None,
        }
    }
}

impl Keeper<'_> {
    /// Stores `results` of a path between two linerate ends, of which interventions showed `tried`.
    pub(super) fn keep(
        &self,
        began_unix_s: u64,
        between: impl FnOnce() -> Between,
        results: Vec<Measurement>,
        tried: &[Tried],
    ) {
        if self.args.no_store || results.is_empty() {
            return;
        }
        let kept = self.store(began_unix_s, || Ok(between()), results, tried);
        self.report(kept);
    }

    /// Stores a result of a server of others, which `who` describes.
    pub(super) fn keep_foreign(
        &self,
        began_unix_s: u64,
        (who, address): (&str, IpAddr),
        result: Measurement,
    ) {
        if self.args.no_store {
            return;
        }
        let between = || {
            let local = host_from(None)?;
            Ok(Between {
                peer: who.to_owned(),
                address: address.to_string(),
                nics: (outgoing_nic(&local, address)?, NicName::unheard()),
                hosts: (Box::new(local), Box::new(Host::unheard(who))),
                copy: None,
            })
        };
        let kept = self.store(began_unix_s, between, vec![result], &[]);
        self.report(kept);
    }

    fn store(
        &self,
        began_unix_s: u64,
        between: impl FnOnce() -> Outcome<Between>,
        results: Vec<Measurement>,
        tried: &[Tried],
    ) -> Outcome<()> {
        let Between {
            peer,
            address,
            nics: (local_nic, remote_nic),
            hosts: (local, remote),
            copy,
        } = between()?;
        let trials = results
            .iter()
            .map(|result| result.figures.of(result.response).len());
        let header = Header {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            created_unix_s: began_unix_s,
            command: command_line(),
            seed: fresh_seed()?,
            trials: u32::try_from(trials.max().unwrap_or(0).max(1)).unwrap_or(u32::MAX),
            peer,
            local_nic,
            remote_nic,
            address,
            copy_bit_per_s: copy.map(BitRate::as_bit_per_s),
        };
        let mut records = vec![Record::Hosts { local, remote }];
        if !tried.is_empty() {
            records.push(Record::Interventions {
                after: false,
                tried: tried.to_vec(),
            });
        }
        let results = results.into_iter().map(|result| Measurement {
            sample: result.sample.filter(is_small),
            ..result
        });
        records.extend(results.map(|result| Record::Measured(Box::new(result))));
        records.push(Record::Ended {
            restored: true,
            kept: false,
        });
        let args = self.args;
        let stored = store(
            self.state,
            args.name.as_deref(),
            &header,
            records,
            args.store_limit,
        )?;
        if let Some(removed) = stored.first_removal {
            let say = format!(
                "the stored measurements exceed {}: the oldest are removed from now on ({removed} now); \
                 `--name` keeps one for good, `--store-limit` sets another limit",
                args.store_limit
            );
            self.say.note(&say);
        }
        if let Some(name) = &args.name {
            self.say.note(&format!("stored as `{name}`"));
        }
        Ok(())
    }

    /// What was measured has been shown: only a message.
    fn report(&self, kept: Outcome<()>) {
        if let Err(stop) = kept {
            let why = stop.to_string();
            let lines: Vec<&str> = why
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .collect();
            self.say
                .note(&format!("the result is not stored: {}", lines.join("; ")));
        }
    }
}

/// Whether the raw counters of a trial are few enough to be stored with every measurement.
fn is_small(sample: &Sample) -> bool {
    let mut size = Size(0);
    serde_json::to_writer(&mut size, sample).is_ok() && size.0 <= SAMPLE_BYTES_MAX
}

/// Counts what is written.
struct Size(usize);

impl std::io::Write for Size {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What is kept of a result, with the `figures` of all of its whole trials.
pub(super) fn measurement(
    label: Option<String>,
    measured: Measured<'_>,
    figures: Figures,
) -> Measurement {
    let limit = measured.limit.as_ref();
    let limit = limit.map(|limit| limit.status.qualified(&limit.what.to_string()));
    of_sample(label, measured.sample, figures, limit, measured.foreign)
}

/// The same of a trial whose limit was not sought.
pub(super) fn of_sample(
    label: Option<String>,
    sample: Sample,
    mut figures: Figures,
    limit: Option<String>,
    foreign: Option<serde_json::Value>,
) -> Measurement {
    // A trial that was ended early is all there is of its command.
    if figures.is_empty() {
        figures.add(&sample);
    }
    Measurement {
        label,
        workload: sample.spec.workload.name().to_owned(),
        response: own_response(&sample),
        figures,
        limit,
        sample: Some(sample),
        foreign,
    }
}

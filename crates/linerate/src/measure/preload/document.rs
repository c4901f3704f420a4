//! The trials over the kernel's TCP and with the library, as JSON, as text, and as what is stored of them.

use linerate_analysis::record::Measurement;
use linerate_analysis::trial::figure::Figures;
use linerate_model::lab::Response;
use linerate_model::latency::Histogram;
use linerate_model::sample::SizeRecord;
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{TrialSpec, Workload};
use linerate_runtime::cli::PreloadArg;
use linerate_traffic::mover::Carried;
use serde::Serialize;

use super::account::{Accounts, AccountsDocument, CarriedBy, Payload};
use crate::measure::document::{Latency, SizeFigures};
use crate::measure::text::{per_second, time};

/// One trial.
pub(super) struct Trial {
    /// `tcp`, or the library.
    pub(super) name: String,
    pub(super) is_stream: bool,
    pub(super) near: Carried,
    pub(super) far: Carried,
    pub(super) payload: Payload,
    pub(super) accounts: Accounts,
    pub(super) carried_by: CarriedBy,
}

#[expect(
    clippy::cast_precision_loss,
    reason = "an amount has no 53 bits that count"
)]
fn real(amount: u64) -> f64 {
    amount as f64
}

impl Trial {
    /// The requesting end's, which times every operation; of a stream the receiver's.
    pub(super) fn seconds(&self) -> f64 {
        if self.is_stream {
            self.far.seconds
        } else {
            self.near.seconds
        }
    }

    /// None of a stream.
    fn operations(&self) -> Option<u64> {
        (!self.is_stream).then_some(self.payload.messages / 2)
    }

    fn rate_bit_per_s(&self) -> f64 {
        real(self.far.bytes) * 8.0 / self.seconds()
    }

    /// The times of all operations; of ping-pong one way, over all sizes.
    fn times(&self) -> Option<Histogram> {
        if let Some(latency) = &self.near.latency {
            return Some(latency.clone());
        }
        let (first, rest) = self.near.sizes.split_first()?;
        let mut all = first.one_way.clone();
        for size in rest {
            all.add(&size.one_way);
        }
        Some(all)
    }

    /// What is kept of it: its process has no other counters.
    pub(super) fn measurement(&self, asked: &TrialSpec) -> Measurement {
        let mut values = Vec::new();
        match self.operations() {
            None => {
                let gb = real(self.far.bytes) / 1e9;
                values.push((Response::Rate, self.rate_bit_per_s()));
                values.push((Response::CpuLocal, self.near.cpu_s / gb));
                values.push((Response::CpuPeer, self.far.cpu_s / gb));
            }
            Some(operations) => {
                let us = |cpu_s: f64| cpu_s / real(operations) * 1e6;
                values.push((Response::Operations, real(operations) / self.seconds()));
                values.push((Response::CpuOpLocal, us(self.near.cpu_s)));
                values.push((Response::CpuOpPeer, us(self.far.cpu_s)));
            }
        }
        if let Some(times) = self.times() {
            let at = |quantile| times.quantile(quantile).map(Nanoseconds::as_secs_f64);
            let figures = [
                (Response::Mean, times.mean_ns().map(|ns| ns / 1e9)),
                (Response::P50, at(0.5)),
                (Response::P99, at(0.99)),
            ];
            values.extend(figures.map(|(response, value)| (response, value.unwrap_or(0.0))));
        }
        let mut figures = Figures::default();
        for (response, value) in values {
            if value.is_finite() && value > 0.0 {
                figures.push(response, value);
            }
        }
        Measurement {
            label: Some(self.name.clone()),
            workload: asked.workload.name().to_owned(),
            response: match &asked.workload {
                Workload::Rr(_) => Response::Operations,
                Workload::Pingpong(_) => Response::Mean,
                _ => Response::Rate,
            },
            figures,
            sample: None,
            limit: None,
            foreign: None,
        }
    }
}

/// What `linerate measure stream|rr|pingpong PEER --preload LIBRARY --format json` prints: the same program over the
/// kernel's TCP and with a preloaded library.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PreloadDocument {
    schema: &'static str,
    #[cfg_attr(test, schemars(extend("enum" = ["stream", "rr", "pingpong"])))]
    workload: &'static str,
    peer: String,
    address: String,
    flows: u32,
    /// As it was requested: `rsocket`, or a path.
    library: String,
    /// The size of a request of `rr`.
    request_bytes: Option<Bytes>,
    /// The size of a response of `rr`.
    response_bytes: Option<Bytes>,
    /// The kernel's TCP first. Only that if it was interrupted before the library carried anything.
    #[cfg_attr(test, schemars(length(min = 1, max = 2)))]
    carriers: Vec<Carrier>,
    /// The rate with the library over the rate of the kernel's TCP, one trial of each; null if there is only one.
    ratio: Option<f64>,
    /// The same of the times of `rr`; null for other workloads.
    latency_ratio: Option<LatencyRatio>,
    /// Whether Ctrl-C or SIGTERM ended the last trial early.
    interrupted: bool,
}

/// The time with the library over the time of the kernel's TCP.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LatencyRatio {
    p50: f64,
    p99: f64,
}

/// What carried the payload, and how fast.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Carrier {
    /// `tcp`; then `rsocket`, or the file name of the library.
    #[serde(rename = "carrier")]
    name: String,
    /// Payload towards the peer, as the peer counted.
    bytes: u64,
    /// Payload from the peer; 0 for `stream`.
    bytes_back: u64,
    /// Of `stream` the receiver's, until the last connection ends; of `rr` and `pingpong` the requesting end's.
    seconds: f64,
    /// Payload towards the peer, over `seconds`.
    rate_bit_per_s: f64,
    /// CPU seconds of the sender's process; work of the kernel outside of it is not included.
    cpu_local_s: f64,
    /// The same for the receiver.
    cpu_remote_s: f64,
    /// Round trips that were timed; null for `stream`.
    operations: Option<u64>,
    operations_per_s: Option<f64>,
    /// The time of a request until its whole response has come; only of `rr`.
    latency_ns: Option<Latency>,
    /// Each size of `pingpong`; empty for other workloads.
    sizes: Vec<SizeFigures>,
    /// Which counters account for most of the payload. A library that left it to the kernel is an error instead.
    carried_by: CarriedBy,
    counters: AccountsDocument,
}

impl Carrier {
    fn of(trial: &Trial) -> Self {
        let operations = trial.operations();
        Self {
            name: trial.name.clone(),
            bytes: trial.far.bytes,
            bytes_back: trial.far.bytes_back,
            seconds: trial.seconds(),
            rate_bit_per_s: trial.rate_bit_per_s(),
            cpu_local_s: trial.near.cpu_s,
            cpu_remote_s: trial.far.cpu_s,
            operations,
            operations_per_s: operations.map(|some| real(some) / trial.seconds()),
            latency_ns: trial.near.latency.as_ref().map(Latency::of),
            sizes: trial.near.sizes.iter().map(size_figures).collect(),
            carried_by: trial.carried_by,
            counters: trial.accounts.document(),
        }
    }
}

fn size_figures(size: &SizeRecord) -> SizeFigures {
    let mean = size.one_way.mean_ns().filter(|ns| *ns > 0.0);
    SizeFigures {
        bytes: size.bytes,
        repetitions: size.repetitions,
        latency_ns: Some(Latency::of(&size.one_way)),
        rate_bit_per_s: mean.map(|ns| real(size.bytes.as_u64()) * 8e9 / ns),
        of_verbs: None,
    }
}

/// The quotient of a quantile of two histograms.
fn ratio_at(quantile: f64, library: &Histogram, tcp: &Histogram) -> Option<f64> {
    let ns = |of: &Histogram| of.quantile(quantile).map(|time| real(time.as_u64()));
    let (library, tcp) = (ns(library)?, ns(tcp)?);
    (tcp > 0.0).then(|| library / tcp)
}

fn rate_ratio(trials: &[Trial]) -> Option<f64> {
    let [tcp, library] = trials else { return None };
    let ratio = library.rate_bit_per_s() / tcp.rate_bit_per_s();
    ratio.is_finite().then_some(ratio)
}

fn latency_ratio(trials: &[Trial]) -> Option<LatencyRatio> {
    let [tcp, library] = trials else { return None };
    let (tcp, library) = (tcp.near.latency.as_ref()?, library.near.latency.as_ref()?);
    Some(LatencyRatio {
        p50: ratio_at(0.5, library, tcp)?,
        p99: ratio_at(0.99, library, tcp)?,
    })
}

impl PreloadDocument {
    pub(super) fn of(
        trials: &[Trial],
        asked: &TrialSpec,
        preload: &PreloadArg,
        (peer, address): (String, String),
        interrupted: bool,
    ) -> Self {
        let messages = match &asked.workload {
            Workload::Rr(rr) => Some((rr.request_bytes, rr.response_bytes)),
            _ => None,
        };
        Self {
            schema: "linerate.preload/1",
            workload: asked.workload.name(),
            peer,
            address,
            flows: asked.flows,
            library: preload.to_string(),
            request_bytes: messages.map(|(request, _)| request),
            response_bytes: messages.map(|(_, response)| response),
            carriers: trials.iter().map(Carrier::of).collect(),
            ratio: rate_ratio(trials),
            latency_ratio: latency_ratio(trials),
            interrupted,
        }
    }
}

/// The text of a result.
pub(super) fn in_words(trials: &[Trial], interrupted: bool) -> String {
    let names = trials.iter().map(|trial| trial.name.len());
    let width = names.max().unwrap_or(0).max("ratio".len());
    let mut lines = Vec::new();
    for trial in trials {
        lines.push(format!("{:<width$}  {}", trial.name, result(trial)));
    }
    let how = if interrupted {
        "one trial of each, the second one ended early"
    } else {
        "one trial of each"
    };
    if let ([tcp, library], Some(ratio)) = (trials, ratio_in_words(trials)) {
        let over = format!("{} over {}", library.name, tcp.name);
        lines.push(format!("{:<width$}  {ratio}   ({over}, {how})", "ratio"));
    }
    lines.extend(sizes_in_words(trials));
    lines.push(String::new());
    for trial in trials {
        lines.push(format!("{:<width$}  {}", trial.name, carried(trial)));
    }
    lines.join("\n")
}

fn result(trial: &Trial) -> String {
    let cpu = format!(
        "({:.1} s; CPU of the programs: local {:.2} s, remote {:.2} s)",
        trial.seconds(),
        trial.near.cpu_s,
        trial.far.cpu_s
    );
    let per_s = trial.operations().map(|some| real(some) / trial.seconds());
    match (&trial.near.latency, per_s) {
        (Some(latency), Some(per_s)) => {
            let at = |quantile| at(quantile, latency);
            format!(
                "p50 {}, p99 {}, {}/s   {cpu}",
                at(0.5),
                at(0.99),
                per_second(per_s)
            )
        }
        (None, Some(_)) => format!("{} sizes   {cpu}", trial.near.sizes.len()),
        _ => {
            let rate = BitRate::from_f64(trial.rate_bit_per_s());
            let rate = rate.map_or_else(|| "no rate".to_owned(), |rate| rate.to_string());
            format!("{rate}   {cpu}")
        }
    }
}

fn at(quantile: f64, histogram: &Histogram) -> String {
    let found = histogram.quantile(quantile);
    found.map_or_else(|| "-".to_owned(), |found| time(real(found.as_u64())))
}

/// None of ping-pong: each size has its own.
fn ratio_in_words(trials: &[Trial]) -> Option<String> {
    if let Some(of) = latency_ratio(trials) {
        return Some(format!("p50 {:.3}, p99 {:.3}", of.p50, of.p99));
    }
    let is_pingpong = trials.iter().any(|trial| !trial.near.sizes.is_empty());
    rate_ratio(trials)
        .filter(|_| !is_pingpong)
        .map(|ratio| format!("{ratio:.3}"))
}

/// A row for each size of ping-pong: the time one way.
fn sizes_in_words(trials: &[Trial]) -> Vec<String> {
    let [tcp, ..] = trials else { return Vec::new() };
    if tcp.near.sizes.is_empty() {
        return Vec::new();
    }
    let names = trials.iter().map(|trial| trial.name.len() + " p50".len());
    let width = names.max().unwrap_or(0).max(12);
    let right = |text: &str| format!("{text:>width$}");
    let mut header = vec![format!("{:>10}", "size")];
    for trial in trials {
        header.extend(["p50", "p99"].map(|quantile| right(&format!("{} {quantile}", trial.name))));
    }
    if trials.len() > 1 {
        header.push("ratio of p50".to_owned());
    }
    let mut lines = vec![String::new(), header.join("  ")];
    for size in &tcp.near.sizes {
        let mut row = vec![format!("{:>10}", size.bytes.to_string())];
        let mut found = Vec::new();
        for trial in trials {
            let own = trial.near.sizes.iter().find(|own| own.bytes == size.bytes);
            let of =
                |quantile| own.map_or_else(|| "-".to_owned(), |own| at(quantile, &own.one_way));
            row.extend([0.5, 0.99].map(|quantile| right(&of(quantile))));
            found.extend(own);
        }
        if let [tcp, library] = found[..]
            && let Some(ratio) = ratio_at(0.5, &library.one_way, &tcp.one_way)
        {
            row.push(format!("{ratio:>12.3}"));
        }
        lines.push(row.join("  "));
    }
    lines
}

/// Which counters account for the payload of a trial.
fn carried(trial: &Trial) -> String {
    let by = match trial.carried_by {
        CarriedBy::Kernel => "carried by the kernel's TCP",
        CarriedBy::Rdma => "carried by RDMA",
        CarriedBy::Neither => "accounted for by neither kernel nor RDMA counters",
    };
    let payload = Bytes::new(trial.payload.bytes);
    format!("{by} ({payload} both ways; {})", trial.accounts.in_words())
}

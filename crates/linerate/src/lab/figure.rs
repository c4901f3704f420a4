//! The figures of a trial that an experiment can judge.

use linerate_model::analysis::{cost_of_local, cost_of_remote, s_per_gb};
use linerate_model::lab::Response;
use linerate_model::latency::Histogram;
use linerate_model::sample::Sample;
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::Workload;

use crate::analysis::rate_of;
use crate::measure::{askers, exchanged_rate, ops_per_s, real};

/// What a workload is about.
pub(super) fn own_response(sample: &Sample) -> Response {
    match &sample.spec.workload {
        workload if workload.is_bulk() => Response::Rate,
        Workload::Pingpong(_) | Workload::Rdma(_) => Response::Mean,
        _ => Response::Operations,
    }
}

/// A figure of a trial; none where it does not tell it, or nothing came of it.
pub(crate) fn figure(response: Response, sample: &Sample) -> Option<f64> {
    let figure = match response {
        Response::Rate => rate(sample)?.as_f64(),
        Response::Operations => ops_per_s(sample)?,
        Response::Cpu => s_per_gb(sample)?,
        Response::CpuLocal => cost_of_local(sample).s_per_gb?,
        Response::CpuPeer => cost_of_remote(sample).s_per_gb?,
        Response::Mean => times(sample).mean_ns()? / 1e9,
        Response::P50 => seconds(times(sample).quantile(0.5)?),
        Response::P99 => seconds(times(sample).quantile(0.99)?),
    };
    (figure.is_finite() && figure > 0.0).then_some(figure)
}

fn seconds(time: Nanoseconds) -> f64 {
    time.as_secs_f64()
}

/// Of messages to and fro one way; of all sizes together where there are several.
pub(crate) fn rate(sample: &Sample) -> Option<BitRate> {
    if sample.spec.workload.is_bulk() {
        return rate_of(sample);
    }
    if !matches!(sample.spec.workload, Workload::Pingpong(_)) {
        return exchanged_rate(sample);
    }
    let sizes: Vec<_> = askers(sample)
        .flat_map(|(_, operations)| &operations.sizes)
        .collect();
    // Half of each round trip is one way: as many bytes in half of the time.
    let bits: f64 = (sizes.iter())
        .map(|size| real(size.bytes.as_u64()) * real(size.repetitions) * 16.0)
        .sum();
    let time: f64 = sizes.iter().map(|size| size.elapsed_ns.as_secs_f64()).sum();
    (time > 0.0)
        .then(|| BitRate::from_f64(bits / time))
        .flatten()
}

/// How long operations took, or one way of messages.
pub(crate) fn times(sample: &Sample) -> Histogram {
    let mut whole = Histogram::default();
    for (_, operations) in askers(sample) {
        if operations.sizes.is_empty() {
            whole.add(&operations.latency);
        }
        for size in &operations.sizes {
            whole.add(&size.one_way);
        }
    }
    whole
}

/// A figure for a person.
pub(crate) fn in_words(response: Response, value: f64) -> String {
    match response {
        Response::Rate => {
            BitRate::from_f64(value).map_or_else(|| "-".to_owned(), |rate| rate.to_string())
        }
        Response::Operations => format!("{value:.0}/s"),
        Response::Cpu | Response::CpuLocal | Response::CpuPeer => format!("{value:.3} s/GB"),
        Response::Mean | Response::P50 | Response::P99 => match value {
            small if small < 1e-3 => format!("{:.2} us", small * 1e6),
            middle if middle < 1.0 => format!("{:.2} ms", middle * 1e3),
            large => format!("{large:.2} s"),
        },
    }
}

/// The unit of a figure, as it stands at the end of a key.
pub(super) fn unit(response: Response) -> &'static str {
    match response {
        Response::Rate => "bit_per_s",
        Response::Operations => "per_s",
        Response::Cpu | Response::CpuLocal | Response::CpuPeer => "s_per_gb",
        Response::Mean | Response::P50 | Response::P99 => "s",
    }
}

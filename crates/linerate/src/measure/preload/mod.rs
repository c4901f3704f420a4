//! `measure stream|rr|pingpong PEER --preload LIBRARY`: the same plain program twice, over the kernel's TCP and with a
//! library preloaded at both ends (librspreload of rsocket(7), libvma), to show the effect of kernel bypass on an
//! unmodified program.
//!
//! linerate's own workloads call the kernel without the C library, so such a library would never see the calls; and
//! some support neither epoll nor io_uring. So both ends are movers ([`mover`]), one process each, which [`process`]
//! starts and reads. What the kernel's TCP would report is unknown: no record, no limit, no ceiling. Whether the library
//! carried the payload is decided by counters ([`account`]).

mod account;
mod document;
pub(crate) mod mover;
mod process;

use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::time::Duration;

use account::{Meter, Payload};
pub(crate) use document::PreloadDocument;
use document::{Trial, in_words};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::peer_address::PeerAddress;
use linerate_model::workload::{Rr, Stream, TrialSpec, Workload};
use linerate_runtime::cli::{MeasureStream, PeerArgs, PreloadArg};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_token;
use linerate_runtime::console::say::Format;
use linerate_runtime::endpoint::trial::{PeerPath, open_path};
use linerate_traffic::mover::{Order, Turn, Work};
use mover::{MoverReport, Role};
use process::Mover;

use super::keep::{Between, Keeper};
use super::live::confirm_early_end;
use super::{EarlyEnd, OutputOptions};

/// How much longer than its time a trial may take.
const GRACE: Duration = Duration::from_secs(30);
/// How long a mover may take until it listens.
const LISTENS: Duration = Duration::from_secs(20);

/// Refuses what neither `--preload` nor `--ladder` print.
pub(super) fn check_output(
    option: &str,
    is_by_interval: bool,
    output: OutputOptions<'_>,
) -> Outcome<()> {
    let usage = |why: String| Err(Stop::new(Code::Usage, why));
    let is_set = [
        ("--verbose", output.verbose),
        ("--interval", is_by_interval),
        ("--metrics-file", output.metrics.has_file()),
    ];
    if let Some((other, _)) = is_set.iter().find(|(_, is_set)| *is_set) {
        return usage(format!("`{option}` does not support `{other}`"));
    }
    let is_other = output.as_iperf3 || output.as_junit;
    if is_other || output.say.format == Format::OpenMetrics {
        return usage(format!("`{option}` supports only text and json"));
    }
    Ok(())
}

/// The peer of `measure stream --preload`.
pub(super) fn peer_of(args: &MeasureStream) -> Outcome<PeerArgs> {
    args.peer.peer().ok_or_else(|| {
        let why = "`--preload` needs a linerate PEER, not `--iperf3`";
        Stop::new(Code::Usage, why)
    })
}

/// Carries out `measure ... --preload`; `asked` is what the other options ask for.
pub(super) fn run(
    peer: &PeerArgs,
    asked: &TrialSpec,
    preload: &PreloadArg,
    output: OutputOptions<'_>,
) -> Outcome<()> {
    check_output("--preload", false, output)?;
    let work = work_of(asked)?;
    if matches!(peer.peer, PeerAddress::Exec(_)) {
        let why =
            "`--preload` does not work with `exec:` peers: it must start another program there";
        return Err(Stop::new(Code::NotSupported, why).hint("use an ssh or netns peer"));
    }
    if let PreloadArg::Library(_) = preload {
        mover::library(preload)?;
    }
    let Keeper { state, say, .. } = output.keep;
    let interrupt = Interrupt::listen()?;
    let path = open_path(peer, state, &interrupt, say)?;
    say.note(&announced(&path, peer, asked, preload));
    let began_unix_s = now_unix_s();
    confirm_early_end(&interrupt, say, None);
    let mut trials: Vec<Trial> = Vec::new();
    for preload in [None, Some(preload)] {
        if !interrupt.is_ending_early() {
            let ends = Ends {
                peer: &peer.peer,
                push: peer.reach.push,
                state,
                preload,
                interrupt: &interrupt,
            };
            trials.extend(ends.trial(&path, asked, &work)?);
        }
    }
    let results = trials.iter().map(|trial| trial.measurement(asked));
    output.keep.keep(
        began_unix_s,
        || Between::ends(&path, peer, None),
        results.collect(),
        &[],
    );
    let address = path.address;
    path.peer.leave_after_result(say)?;
    let Some(last) = trials.last() else {
        return Err(Stop::interrupted());
    };
    let end = if interrupt.is_ending_early() {
        EarlyEnd::at(format!("{:.1} s of {}", last.seconds(), last.name))
    } else {
        EarlyEnd(None)
    };
    if say.format == Format::Json {
        let peer = (peer.peer.to_string(), address.to_string());
        let document = PreloadDocument::of(&trials, asked, preload, peer, !end.is_none());
        say.json(&document)?;
    } else {
        say.lines(&in_words(&trials, !end.is_none()))?;
    }
    end.or(say, || Ok(()))
}

/// What will be measured, and for how long.
fn announced(path: &PeerPath, peer: &PeerArgs, asked: &TrialSpec, preload: &PreloadArg) -> String {
    let time = if asked.workload.ends_by_itself() {
        "until done"
    } else {
        &asked.duration_ns.to_string()
    };
    format!(
        "measuring {} to {} ({}), {time} each over plain TCP and {}; Ctrl-C ends it early",
        asked.workload.name(),
        path.address,
        peer.peer,
        preload.name()
    )
}

/// The work of the movers. Only what a mover does can be requested.
fn work_of(asked: &TrialSpec) -> Outcome<Work> {
    let plain = TrialSpec {
        workload: plain_workload(&asked.workload),
        flows: asked.flows,
        duration_ns: asked.duration_ns,
        interval_ns: asked.interval_ns,
        buffer_bytes: asked.buffer_bytes,
        unrecorded: asked.unrecorded,
        ..TrialSpec::default()
    };
    let options = match &asked.workload {
        Workload::Rr(_) => "`--request`, `--response`",
        Workload::Pingpong(_) => "`--sizes`, `--repetitions`, `--volume`",
        _ => "`--buffer`",
    };
    if *asked != plain {
        let why = format!(
            "`--preload` runs forward with plain blocking calls, one message at a time: only `--time`, `--flows`, \
             {options}, `--address` and `--port` apply"
        );
        return Err(Stop::new(Code::Usage, why));
    }
    Ok(match &asked.workload {
        Workload::Rr(rr) => Work::Requests {
            request_bytes: rr.request_bytes,
            response_bytes: rr.response_bytes,
        },
        Workload::Pingpong(pingpong) => Work::Pingpong {
            turns: (pingpong.sizes.iter())
                .map(|&bytes| Turn {
                    bytes,
                    repetitions: pingpong.repetitions_of(bytes),
                })
                .collect(),
        },
        _ => Work::Stream {
            buffer_bytes: asked.buffer_bytes,
        },
    })
}

/// The workload without the options that a mover does not have.
fn plain_workload(asked: &Workload) -> Workload {
    match asked {
        Workload::Rr(rr) => Workload::Rr(Rr {
            request_bytes: rr.request_bytes,
            response_bytes: rr.response_bytes,
            depth: 1,
            connect_each: false,
            rate_per_s: None,
        }),
        Workload::Pingpong(pingpong) => {
            let mut pingpong = pingpong.clone();
            pingpong.data_check = false;
            Workload::Pingpong(pingpong)
        }
        _ => Workload::Stream(Stream::default()),
    }
}

/// Both ends of one trial.
struct Ends<'a> {
    peer: &'a PeerAddress,
    push: bool,
    state: &'a FilePath,
    preload: Option<&'a PreloadArg>,
    interrupt: &'a Interrupt,
}

impl Ends<'_> {
    /// What both ends and the counters between them did; none if it was ended early before anything was carried.
    fn trial(&self, path: &PeerPath, asked: &TrialSpec, work: &Work) -> Outcome<Option<Trial>> {
        let address = SocketAddr::new(path.address, path.port.unwrap_or(0));
        let order = Order {
            flows: asked.flows,
            work: work.clone(),
            duration_ns: asked.duration_ns,
            token: fresh_token()?,
        };
        let mut far = Mover::start(self, self.peer, address, Role::Receives, &order)?;
        let MoverReport::Listens(port) = far.hear(LISTENS, self.interrupt)? else {
            return Err(far.nonsense());
        };
        let meter = Meter::of(path);
        let before = meter.read();
        let target = SocketAddr::new(address.ip(), port);
        let mut near = Mover::start(self, &PeerAddress::Local, target, Role::Sends, &order)?;
        let limit = Duration::from(order.duration_ns) + GRACE;
        let ends_early = self.interrupt.during_trial(near.early_end());
        let near = near.carried(limit, self.interrupt)?;
        let far = far.carried(limit, self.interrupt)?;
        drop(ends_early);
        let payload = Payload::of(&near, work);
        let is_stream = matches!(work, Work::Stream { .. });
        let has_result = payload.bytes > 0 && (is_stream || payload.messages > 0);
        if !has_result && self.interrupt.is_ending_early() {
            return Ok(None);
        }
        let accounts = meter.accounts(&before, (&near, &far));
        let name = self.preload.map_or("tcp".to_owned(), PreloadArg::name);
        if let Some(preload) = self.preload {
            let is_any_kernels = near.by_kernel.is_some() || far.by_kernel.is_some();
            if is_any_kernels && *preload == PreloadArg::Rsocket {
                return Err(fell_back());
            }
            if let Some(left) = accounts.left(payload) {
                let hint = if accounts.is_left_to_tcp(payload) {
                    "check with the library's own log that it takes over these sockets"
                } else {
                    "stop other traffic on the interface, which counts too, and measure again"
                };
                let why = format!("the library {name} {left}");
                return Err(Stop::new(Code::NotSupported, why).hint(hint));
            }
        }
        Ok(Some(Trial {
            name,
            is_stream,
            carried_by: accounts.carried_by(payload),
            payload,
            accounts,
            near,
            far,
        }))
    }
}

/// rsocket leaves a socket of the kernel only when it falls back.
fn fell_back() -> Stop {
    let why = "librspreload fell back to kernel TCP: no RDMA path between the ends at this address, or \
        the module rdma_ucm is not loaded";
    Stop::new(Code::NotSupported, why)
        .hint("create a device with `linerate testbed rxe`; check rdma_cm with `rping`")
}

#[cfg(test)]
mod tests {
    use linerate_model::units::Bytes;
    use linerate_model::workload::{Direction, Pingpong};

    use super::*;

    #[test]
    fn a_mover_gets_the_repetitions_that_ping_pong_computes_and_nothing_that_it_cannot_do() {
        let pingpong = |data_check| TrialSpec {
            workload: Workload::Pingpong(Pingpong {
                sizes: vec![Bytes::new(1), Bytes::mib(4)],
                repetitions: 1_000,
                volume_bytes: Pingpong::imb_volume(),
                data_check,
            }),
            ..TrialSpec::default()
        };
        let turns = [(1, 1_000), (4 << 20, 10)].map(|(bytes, repetitions)| Turn {
            bytes: Bytes::new(bytes),
            repetitions,
        });
        let work = work_of(&pingpong(false)).expect("plain");
        assert_eq!(
            work,
            Work::Pingpong {
                turns: turns.to_vec()
            }
        );
        let reverse = TrialSpec {
            direction: Direction::Reverse,
            ..pingpong(false)
        };
        for refused in [pingpong(true), reverse] {
            let stop = work_of(&refused).expect_err("not plain");
            assert!(stop.to_string().contains("`--sizes`"), "{stop}");
            assert_eq!(stop.code, Code::Usage);
        }
    }
}

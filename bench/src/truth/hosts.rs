//! Two hosts joined by a virtual Ethernet pair, and linerate measuring between them.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_bench_shared::{child_of, pause};
use linerate_model::ids::NicName;
use linerate_model::sample::Sample;
use linerate_testbed::{Impairment, LinkEnd, Netns, Relay, RelayOptions, Stage, join};
use serde::Deserialize;

use crate::Trouble;

const NEAR: &str = "10.81.0.1";
const FAR: &str = "10.81.0.2";
/// The near host's interface.
pub(crate) const NEAR_NIC: &str = "near0";
/// The far host's.
pub(crate) const FAR_NIC: &str = "far0";
/// In the folder that the stage covers with its own tmpfs: it vanishes with it.
const STATE: &str = "/run/netns/.truth";
/// How long a measurement may take altogether.
const OVERALL_MAX: Duration = Duration::from_secs(90);
/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(2);

/// What all parts share.
pub(crate) struct Bench {
    stage: Stage,
    pub(crate) linerate: PathBuf,
    pub(crate) seed: u64,
    pub(crate) pairs: u16,
    /// Measurements of a gate on its limit.
    pub(crate) verdicts: u16,
    /// No two parts share a host.
    hosts: Cell<u32>,
}

impl Bench {
    pub(crate) fn new(
        stage: Stage,
        linerate: PathBuf,
        seed: u64,
        (pairs, verdicts): (u16, u16),
    ) -> Result<Self, Trouble> {
        fs::create_dir_all(STATE)
            .map_err(|error| Trouble(format!("make a folder for the journals: {error}")))?;
        Ok(Self {
            stage,
            linerate,
            seed,
            pairs,
            verdicts,
            hosts: Cell::new(0),
        })
    }

    /// Two new hosts, joined by virtual Ethernet.
    pub(crate) fn hosts(&self) -> Result<Hosts<'_>, Trouble> {
        self.joined(|near, far| join(near, far).map(|()| None))
    }

    /// Two new hosts with a relay between them that loses this share of what the near one sends.
    pub(crate) fn hosts_that_lose(&self, share: f64) -> Result<Hosts<'_>, Trouble> {
        let options = RelayOptions {
            there: Impairment {
                loss: share,
                ..Impairment::default()
            },
            back: Impairment::default(),
            seed: self.seed,
            large_packets: false,
        };
        self.joined(|near, far| Relay::join(near, far, options).map(Some))
    }

    fn joined(
        &self,
        join: impl FnOnce(LinkEnd<'_>, LinkEnd<'_>) -> std::io::Result<Option<Relay>>,
    ) -> Result<Hosts<'_>, Trouble> {
        self.hosts.set(self.hosts.get() + 1);
        let host = |end: &str| {
            let made = self.stage.add_host(&format!("{end}{}", self.hosts.get()));
            made.map_err(|error| Trouble(error.to_string()))
        };
        let (near, far) = (host("near")?, host("far")?);
        let nic = |name: &str| {
            name.parse::<NicName>()
                .map_err(|error| Trouble(error.to_string()))
        };
        let relay = join(
            (&near, &nic(NEAR_NIC)?, &format!("{NEAR}/24")),
            (&far, &nic(FAR_NIC)?, &format!("{FAR}/24")),
        )
        .map_err(|error| Trouble(format!("join the hosts: {error}")))?;
        Ok(Hosts {
            bench: self,
            near,
            far,
            _relay: relay,
        })
    }
}

/// The hosts of one part.
pub(crate) struct Hosts<'a> {
    bench: &'a Bench,
    pub(crate) near: Netns,
    pub(crate) far: Netns,
    /// It relays as long as it lives.
    _relay: Option<Relay>,
}

/// What linerate printed.
#[derive(Debug, Deserialize)]
pub(crate) struct Measured {
    pub(crate) total: Total,
    pub(crate) latency_ns: Option<Latency>,
    pub(crate) raw: Sample,
    pub(crate) repeats: Option<Repeats>,
    pub(crate) requirements: Vec<Interval>,
}

/// The results of all trials of a repeated measurement.
#[derive(Debug, Deserialize)]
pub(crate) struct Repeats {
    pub(crate) results: Vec<f64>,
}

/// The interval that a requirement was judged by.
#[derive(Debug, Deserialize)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) valid: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Total {
    pub(crate) rate_bit_per_s: Option<f64>,
    pub(crate) warmup_s: f64,
}

/// The figures that a person reads, in nanoseconds.
#[derive(Debug, Deserialize)]
pub(crate) struct Latency {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    pub(crate) count: u64,
}

impl Hosts<'_> {
    /// How linerate in the near host names the far one.
    pub(crate) fn peer(&self) -> String {
        format!("netns:{}", self.far.name())
    }

    /// `linerate measure` in the near host, to its end.
    pub(crate) fn measure(&self, words: &str) -> Result<Measured, Trouble> {
        self.start(words)?.finish()
    }

    /// The same, started: it has announced what it does, and is about to do it.
    pub(crate) fn start(&self, words: &str) -> Result<Running, Trouble> {
        let printed = PathBuf::from(format!("{STATE}.json"));
        let out = fs::File::create(&printed)
            .map_err(|error| Trouble(format!("make a file for the result: {error}")))?;
        let mut command = Command::new(&self.bench.linerate);
        command
            .args([
                "--format",
                "json",
                "--state",
                STATE,
                "measure",
                "--no-store",
            ])
            .args(words.split_whitespace())
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(Stdio::piped());
        self.near
            .enter_in_child(&mut command)
            .map_err(|error| Trouble(format!("enter a namespace: {error}")))?;
        let mut child = command
            .spawn()
            .map_err(|error| Trouble(format!("start linerate: {error}")))?;
        let said = child.stderr.take().map(BufReader::new);
        let mut said = said.ok_or_else(|| Trouble("read linerate's output".to_owned()))?;
        let mut first = String::new();
        said.read_line(&mut first)
            .map_err(|error| Trouble(format!("read linerate's output: {error}")))?;
        Ok(Running {
            child,
            said,
            first,
            printed,
        })
    }
}

/// A linerate that measures; killed when it is dropped before its end.
pub(crate) struct Running {
    child: Child,
    said: BufReader<ChildStderr>,
    first: String,
    printed: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already in the usual case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// The near process, and the far one when it is there.
    pub(crate) fn processes(&self) -> (u32, Option<u32>) {
        let near = self.child.id();
        (near, child_of(near))
    }

    pub(crate) fn finish(self) -> Result<Measured, Trouble> {
        self.finish_beside(|| {})
    }

    /// Waits for its end, and calls `look` again and again until then.
    pub(crate) fn finish_beside(mut self, mut look: impl FnMut()) -> Result<Measured, Trouble> {
        let until = Instant::now() + OVERALL_MAX;
        let ended = loop {
            look();
            let ended = self.child.try_wait();
            if let Some(ended) =
                ended.map_err(|error| Trouble(format!("wait for linerate: {error}")))?
            {
                break ended;
            }
            if Instant::now() > until {
                return Err(Trouble(format!("measure within {OVERALL_MAX:?}")));
            }
            pause(LOOK);
        };
        // 11 and 12: a requirement is violated, or inconclusive.
        if !matches!(ended.code(), Some(0 | 11 | 12)) {
            let mut said = std::mem::take(&mut self.first);
            // What cannot be read is missing in a message only.
            let _ = self.said.read_to_string(&mut said);
            return Err(Trouble(format!("measure: {}", said.trim())));
        }
        let file = fs::File::open(&self.printed)
            .map_err(|error| Trouble(format!("read the result: {error}")))?;
        serde_json::from_reader(BufReader::new(file))
            .map_err(|error| Trouble(format!("understand the result: {error}")))
    }
}

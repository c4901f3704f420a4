//! The combined results of one mode's trials.

use linerate_analysis::trial::operations::real;
use linerate_model::analysis::{SideCost, cost_of_local, cost_of_remote, s_per_gb_of_role};
use linerate_model::sample::{Flag, Role, Sample, SideSample};
use linerate_model::units::BitRate;
use linerate_model::workload::{ReceiveMode, SendMode};
use linerate_stats::Seed;
use linerate_stats::effect::paired_relative;
use linerate_stats::summary::{mean, median};
use serde::Serialize;

use super::{PLAIN, PayloadMode};

/// At least this share uncopied, and the copy was avoided: the first sends of a connection may be copied
/// while its socket is being set up.
const AVOIDED: f64 = 0.99;
/// At most this share uncopied, and it was copied after all.
const COPIED: f64 = 0.01;

/// One trial, in the order they were made.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Trial {
    pub(super) round: u32,
    #[serde(flatten)]
    pub(super) way: PayloadMode,
    /// After the warm-up, as the receivers counted.
    pub(super) rate_bit_per_s: Option<f64>,
    /// How long it ran.
    #[serde(skip)]
    pub(super) seconds: f64,
    cpu_s_per_gb: Cpu,
    #[serde(skip)]
    crossing: Crossing,
    pub(super) flags: Vec<Flag>,
    /// The record as stored: only counters and times. A missing value is an object with `unknown`, `path` and `reason`
    /// here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        test,
        schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")
    )]
    raw: Option<Sample>,
}

/// CPU seconds per gigabyte.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Cpu {
    /// User and system seconds of the sending data threads, at either end.
    pub(super) sender: Option<f64>,
    /// The same for the receiving data threads.
    pub(super) receiver: Option<f64>,
    /// Busy seconds of all CPUs here, including interrupts and other programs. Ends on one kernel share it.
    local_machine: Option<f64>,
    /// The same for the peer.
    remote_machine: Option<f64>,
}

/// What the kernel reported of copies.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Crossing {
    zerocopy_sends: u64,
    copied_after_all: u64,
    mapped_bytes: u64,
    received_bytes: u64,
}

impl Trial {
    pub(super) fn new(
        round: u32,
        way: PayloadMode,
        rate: Option<BitRate>,
        sample: Sample,
        keeps_raw: bool,
    ) -> Self {
        Self {
            round,
            way,
            rate_bit_per_s: rate.map(BitRate::as_f64),
            cpu_s_per_gb: Cpu {
                sender: s_per_gb_of_role(&sample, Role::Sender),
                receiver: s_per_gb_of_role(&sample, Role::Receiver),
                local_machine: machine(&cost_of_local(&sample)),
                remote_machine: machine(&cost_of_remote(&sample)),
            },
            seconds: sample.local.elapsed_ns.as_secs_f64(),
            crossing: Crossing::of(&sample),
            flags: sample.flags.clone(),
            raw: keeps_raw.then_some(sample),
        }
    }
}

fn machine(cost: &SideCost) -> Option<f64> {
    cost.machine_s_per_gb.get().flatten()
}

impl Crossing {
    fn of(sample: &Sample) -> Self {
        let mut all = Self::default();
        let sides = [&sample.local, &sample.remote];
        for flow in sides.into_iter().flat_map(SideSample::senders) {
            if let Some(copies) = flow.copies {
                all.zerocopy_sends = all.zerocopy_sends.saturating_add(copies.zerocopy_sends);
                all.copied_after_all = all.copied_after_all.saturating_add(copies.copied_after_all);
            }
        }
        for flow in sides.into_iter().flat_map(SideSample::receivers) {
            all.received_bytes = all.received_bytes.saturating_add(flow.total().as_u64());
            if let Some(copies) = flow.copies {
                all.mapped_bytes = all
                    .mapped_bytes
                    .saturating_add(copies.mapped_bytes.as_u64());
            }
        }
        all
    }

    fn and(self, other: &Self) -> Self {
        Self {
            zerocopy_sends: self.zerocopy_sends.saturating_add(other.zerocopy_sends),
            copied_after_all: self.copied_after_all.saturating_add(other.copied_after_all),
            mapped_bytes: self.mapped_bytes.saturating_add(other.mapped_bytes),
            received_bytes: self.received_bytes.saturating_add(other.received_bytes),
        }
    }
}

/// Whether the copy of a mode was really avoided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// The mode copies.
    Made,
    /// By the kernel's own account it was avoided.
    Avoided,
    /// By the kernel's own account it was avoided in part.
    Partly,
    /// By the kernel's own account it was made all the same.
    AfterAll,
    /// The mode asks for none, and the kernel does not report it.
    NotTold,
    /// The payload never left the kernel.
    ThrownAway,
}

/// The copies of one mode.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Copied {
    /// made: this mode copies by design. avoided, partly, after-all: as the kernel reports, the copy was avoided,
    /// partly avoided, or made anyway. not-told: this mode requests no copy and the kernel does not report it.
    /// thrown-away: the payload never left the kernel.
    pub(super) answer: Answer,
    /// The share without a copy: of zero-copy sends whose completion was received, or of the bytes received; null if
    /// the kernel does not report it.
    pub(super) avoided_share: Option<f64>,
}

impl Copied {
    fn of(way: PayloadMode, told: Crossing) -> Self {
        let share = match way {
            PayloadMode {
                send: SendMode::Zerocopy | SendMode::UringZerocopy,
                ..
            } => {
                let sends = told.zerocopy_sends;
                let kept = sends.saturating_sub(told.copied_after_all);
                (sends > 0).then(|| real(kept) / real(sends))
            }
            PayloadMode {
                receive: ReceiveMode::Zerocopy,
                ..
            } => (told.received_bytes > 0)
                .then(|| real(told.mapped_bytes) / real(told.received_bytes)),
            PayloadMode {
                receive: ReceiveMode::Trunc,
                ..
            } => return Self::without_share(Answer::ThrownAway),
            PayloadMode {
                send: SendMode::Sendfile | SendMode::Splice,
                ..
            } => None,
            PayloadMode {
                send: SendMode::Write | SendMode::Uring,
                receive: ReceiveMode::Read | ReceiveMode::Uring,
            } => return Self::without_share(Answer::Made),
        };
        let answer = match share {
            None => Answer::NotTold,
            Some(share) if share >= AVOIDED => Answer::Avoided,
            Some(share) if share <= COPIED => Answer::AfterAll,
            Some(_) => Answer::Partly,
        };
        Self {
            answer,
            avoided_share: share,
        }
    }

    fn without_share(answer: Answer) -> Self {
        Self {
            answer,
            avoided_share: None,
        }
    }
}

/// The ratio to the plain mode's rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RatioToPlain {
    /// The geometric mean of the rounds' ratios to plain write and read.
    pub(super) ratio: f64,
    /// The lower end of its 95 % interval, with `--until-ci` at the time of stopping; null with fewer than three rounds.
    pub(super) low: Option<f64>,
    /// The upper end.
    pub(super) high: Option<f64>,
    /// The rounds that have both trials.
    rounds: usize,
}

impl RatioToPlain {
    fn of(pairs: &[(f64, f64)], level: f64, seed: Seed) -> Option<Self> {
        if let Ok(effect) = paired_relative(pairs, level, seed) {
            return Some(Self {
                ratio: 1.0 + effect.relative,
                low: Some(1.0 + effect.interval.low),
                high: Some(1.0 + effect.interval.high),
                rounds: pairs.len(),
            });
        }
        let logs: Vec<f64> = pairs
            .iter()
            .map(|(plain, way)| (way / plain).ln())
            .collect();
        let ratio = mean(&logs).ok()?.exp();
        (ratio.is_finite() && ratio > 0.0).then_some(Self {
            ratio,
            low: None,
            high: None,
            rounds: pairs.len(),
        })
    }

    /// Half the interval, as a part of the ratio.
    pub(super) fn half_width(self) -> Option<f64> {
        Some((self.high? - self.low?) / 2.0 / self.ratio)
    }
}

/// One mode, from all its trials.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Rung {
    #[serde(flatten)]
    pub(super) way: PayloadMode,
    /// Why the kernel, the device or the system refused this mode; null if it was measured completely.
    pub(super) refused: Option<String>,
    pub(super) trials: usize,
    /// The median of its trials.
    pub(super) rate_bit_per_s: Option<f64>,
    /// Relative to the rate of plain write and read; null for that mode itself, and where it is not known.
    pub(super) ratio: Option<RatioToPlain>,
    /// The medians of its trials.
    pub(super) cpu_s_per_gb: Cpu,
    /// Whether the copy of this mode was avoided; null if it was never measured.
    pub(super) copy: Option<Copied>,
    /// The flags of any of its trials.
    pub(super) flags: Vec<Flag>,
}

impl Rung {
    pub(super) fn new(
        way: PayloadMode,
        trials: &[Trial],
        refused: Option<String>,
        level: f64,
        seed: Seed,
    ) -> Self {
        let own: Vec<&Trial> = trials.iter().filter(|trial| trial.way == way).collect();
        let middle = |pick: fn(&Trial) -> Option<f64>| {
            let known: Vec<f64> = own.iter().filter_map(|trial| pick(trial)).collect();
            median(&known).ok()
        };
        let pairs: Vec<(f64, f64)> = own
            .iter()
            .filter_map(|trial| {
                let mut plain = trials.iter();
                let plain = plain.find(|one| one.way == PLAIN && one.round == trial.round)?;
                Some((plain.rate_bit_per_s?, trial.rate_bit_per_s?))
            })
            .collect();
        let mut flags: Vec<Flag> = Vec::new();
        for flag in own.iter().flat_map(|trial| &trial.flags) {
            if !flags.contains(flag) {
                flags.push(*flag);
            }
        }
        let told = own
            .iter()
            .fold(Crossing::default(), |sum, trial| sum.and(&trial.crossing));
        Self {
            way,
            refused,
            trials: own.len(),
            rate_bit_per_s: middle(|trial| trial.rate_bit_per_s),
            ratio: (way != PLAIN)
                .then(|| RatioToPlain::of(&pairs, level, seed))
                .flatten(),
            cpu_s_per_gb: Cpu {
                sender: middle(|trial| trial.cpu_s_per_gb.sender),
                receiver: middle(|trial| trial.cpu_s_per_gb.receiver),
                local_machine: middle(|trial| trial.cpu_s_per_gb.local_machine),
                remote_machine: middle(|trial| trial.cpu_s_per_gb.remote_machine),
            },
            copy: (!own.is_empty()).then(|| Copied::of(way, told)),
            flags,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use linerate_analysis::trial::LEVEL;

    use super::*;

    fn way(send: SendMode, receive: ReceiveMode) -> PayloadMode {
        PayloadMode { send, receive }
    }

    /// A trial that nothing but its rate is known of.
    pub(in super::super) fn trial(round: u32, way: PayloadMode, gbit_per_s: f64) -> Trial {
        Trial {
            round,
            way,
            rate_bit_per_s: Some(gbit_per_s * 1e9),
            seconds: 1.0,
            cpu_s_per_gb: Cpu {
                sender: Some(0.123),
                receiver: Some(0.05),
                local_machine: None,
                remote_machine: None,
            },
            crossing: Crossing::default(),
            flags: vec![Flag::SharedKernel],
            raw: None,
        }
    }

    #[test]
    fn the_kernels_own_account_says_whether_a_copy_was_avoided() {
        let told = |copied_after_all, mapped_bytes| Crossing {
            zerocopy_sends: 1_000,
            copied_after_all,
            mapped_bytes,
            received_bytes: 1_000,
        };
        let zerocopy = way(SendMode::Zerocopy, ReceiveMode::Read);
        for (copied, answer) in [
            (0, Answer::Avoided),
            (10, Answer::Avoided),
            (500, Answer::Partly),
            (1_000, Answer::AfterAll),
        ] {
            assert_eq!(Copied::of(zerocopy, told(copied, 0)).answer, answer);
        }
        let unheard = Copied::of(zerocopy, Crossing::default());
        assert_eq!(
            (unheard.answer, unheard.avoided_share),
            (Answer::NotTold, None)
        );
        let mapping = way(SendMode::Write, ReceiveMode::Zerocopy);
        assert_eq!(Copied::of(mapping, told(0, 995)).answer, Answer::Avoided);
        let spliced = way(SendMode::Splice, ReceiveMode::Read);
        assert_eq!(Copied::of(spliced, told(0, 0)).answer, Answer::NotTold);
        assert_eq!(Copied::of(PLAIN, told(0, 0)).answer, Answer::Made);
    }

    #[test]
    fn a_ratio_is_of_rounds_that_have_both_and_has_an_interval_from_three_on() {
        let other = way(SendMode::Splice, ReceiveMode::Read);
        let mut trials = Vec::new();
        for (round, plain) in [(0, 10.0), (1, 20.0), (2, 12.0)] {
            trials.push(trial(round, PLAIN, plain));
            trials.push(trial(
                round,
                other,
                plain * (1.5 + f64::from(round) / 100.0),
            ));
            let rung = Rung::new(other, &trials, None, LEVEL, Seed(7));
            let ratio = rung.ratio.expect("both were measured");
            assert!((1.49..1.53).contains(&ratio.ratio), "{ratio:?}");
            assert_eq!(ratio.low.is_some(), round == 2, "{ratio:?}");
        }
        trials.push(trial(3, other, 1.0));
        let rung = Rung::new(other, &trials, None, LEVEL, Seed(7));
        assert_eq!(
            (rung.trials, rung.ratio.map(|ratio| ratio.rounds)),
            (4, Some(3))
        );
        let plain = Rung::new(PLAIN, &trials, None, LEVEL, Seed(7));
        assert_eq!((plain.ratio, plain.rate_bit_per_s), (None, Some(12e9)));
    }
}

//! Limits from the connections' own counters: loss, windows, buffers, programs, the congestion control.

use super::drops::{Drops, Lost, refused_by_own_host, refused_by_own_qdiscs, waits_for_own_qdiscs};
use super::{LimitKind, Named, Trial};
use crate::analysis::OneWay;
use crate::analysis::figures::{self, Figures, Turns};
use crate::buffers::{self, Buffer};
use crate::finding::Evidence;
use crate::plan::End;
use crate::threshold;
use crate::units::{Bytes, Ratio, real};

/// What the flows of one direction may have waited for, the best explanation first; CPUs were checked before.
pub(super) fn by_flow(trial: &Trial<'_>, way: &OneWay<'_>, figures: &Figures) -> Vec<Named> {
    let flow = Flow {
        trial,
        way,
        figures,
    };
    let suggested = [
        flow.by_loss(),
        flow.by_window(),
        flow.by_dry_pipe(),
        flow.by_late_reader(),
        flow.by_full_send_buffer(),
        flow.by_congestion_control(),
        flow.by_queue(),
        flow.by_waits_for_a_rate(),
    ];
    suggested.into_iter().flatten().collect()
}

/// What lost bytes or datagrams, and where.
pub(super) fn by_loss(trial: &Trial<'_>, way: &OneWay<'_>, figures: &Figures) -> Option<Named> {
    let flow = Flow {
        trial,
        way,
        figures,
    };
    flow.by_loss()
}

struct Flow<'a> {
    trial: &'a Trial<'a>,
    way: &'a OneWay<'a>,
    figures: &'a Figures,
}

impl Flow<'_> {
    fn named(
        &self,
        what: LimitKind,
        rule: Option<(&'static str, End)>,
        first: impl IntoIterator<Item = Evidence>,
        threshold: String,
    ) -> Named {
        let evidence = first.into_iter().chain(self.figures.evidence()).collect();
        Named {
            what,
            rule,
            evidence,
            threshold,
        }
    }

    fn by_loss(&self) -> Option<Named> {
        let lost = Lost::of(self.trial, self.way, self.figures)?;
        let mut drops = Drops::of(self.trial, self.way, &lost);
        if drops.kind == LimitKind::ReceiveBuffer && self.figures.receiver.used_up() {
            // The socket buffers overflow because the thread that reads them has no time left.
            drops.kind = LimitKind::ReceiverCpu;
        }
        let mut words = match lost.leaves() {
            Some(_) => format!(
                "loss that leaves the congestion control at most {} times the rate seen",
                threshold::LOSS_FACTOR
            ),
            None => format!("more than {} of the bytes lost", threshold::LOSS_SHARE),
        };
        if drops.kind != LimitKind::Loss {
            let share = threshold::EXPLAINED_SHARE;
            words = format!("{words}, and drops that may account for at least {share} of them");
        }
        let rule = Some(("qdisc-shaper", self.way.from));
        let rule = rule.filter(|_| drops.kind == LimitKind::Shaper);
        let leaves = lost.leaves().cloned();
        let evidence = leaves.into_iter().chain(drops.evidence);
        Some(self.named(drops.kind, rule, evidence, words))
    }

    /// The largest buffer that a connection can have at the sending or the receiving end.
    fn largest(&self, buffer: Buffer) -> Option<(Bytes, Evidence)> {
        let end = self.end_of(buffer);
        let host = match end {
            End::Local => self.trial.local,
            End::Remote => self.trial.remote,
        };
        let asked = self.trial.sample.spec.socket_buffer_bytes;
        let size = buffers::largest(host, buffer, asked).get()?;
        let path = buffers::path(buffer.sysctl());
        Some((
            size,
            Evidence::new(format!("{end} {buffer} maximum"), size, path),
        ))
    }

    fn end_of(&self, buffer: Buffer) -> End {
        match buffer {
            Buffer::Send => self.way.from,
            Buffer::Receive => self.way.from.other(),
        }
    }

    /// A window or buffer that the sender waited for, as reported by the kernel.
    fn by_window(&self) -> Option<Named> {
        // A connection that has nothing to send for most of the time waits for something else.
        let busy = self.figures.busy.map_or(1.0, |busy| busy.as_f64().min(1.0));
        let over = |share: Option<Ratio>| {
            share.filter(|share| share.as_f64() * busy > threshold::LIMITED_SHARE.as_f64())
        };
        let mut limited = format!("more than {} of the time", threshold::LIMITED_SHARE);
        let buffer = match (
            over(self.figures.sndbuf_limited),
            over(self.figures.rwnd_limited),
        ) {
            (None, None) => {
                self.figures
                    .fills_receive_window(self.way)
                    .filter(|full| *full && !self.figures.queue_on_the_path())?;
                limited = format!(
                    "at least {} of the peer's window per RTT, with room in the congestion window",
                    threshold::FILLED_WINDOW_SHARE
                );
                Buffer::Receive
            }
            (Some(send), receive) if receive.is_none_or(|receive| send >= receive) => Buffer::Send,
            _ => Buffer::Receive,
        };
        let rule = Some(("tcp-buffer-below-bdp", self.end_of(buffer)));
        let largest = self.largest(buffer);
        if let Some(away) = self
            .by_pausing_reader()
            .filter(|_| buffer == Buffer::Receive)
        {
            return Some(away);
        }
        if self.figures.round_trip_is_the_paths() {
            let words = format!(
                "{limited}; RTT of at least {}, smoothed RTT at most {} times the minimum",
                threshold::PATH_RTT,
                threshold::QUEUE_FACTOR
            );
            let evidence = largest.map(|(_, evidence)| evidence);
            return Some(self.named(LimitKind::WindowRtt, rule, evidence, words));
        }
        let ample = largest
            .as_ref()
            .and_then(|(size, _)| self.figures.is_ample(*size));
        let evidence = largest.map(|(_, evidence)| evidence);
        let idle_reader = self.figures.sleeps_long(self.figures.receiver) == Some(true);
        match (buffer, ample) {
            // The reader was there whenever data arrived: the window is small for another reason than the largest buffer,
            // such as a router that rewrites it, or it was not full, as where acknowledgments are lost.
            (Buffer::Receive, Some(true)) if self.keeps_pace_with_the_path() => self
                .fills_peers_window()
                .then(|| self.named(LimitKind::ReceiveWindow, rule, evidence, limited)),
            // A full buffer that is large enough was not emptied.
            (Buffer::Receive, ample) if ample == Some(true) || idle_reader => {
                self.by_sleeping_reader(evidence)
            }
            (Buffer::Receive, _) => {
                Some(self.named(LimitKind::ReceiveWindow, rule, evidence, limited))
            }
            (Buffer::Send, _) => Some(self.named(LimitKind::SendBuffer, rule, evidence, limited)),
        }
    }

    /// Whether so little was lost that loss is not the limit; `None` if that is not known.
    fn has_little_loss(&self) -> Option<bool> {
        let lost = self.figures.lost?;
        Some(lost <= threshold::LOSS_SHARE)
    }

    /// What is lost comes late, and what follows it fills the window until then, as a late reader does.
    fn may_be_late(&self) -> bool {
        self.has_little_loss() != Some(false)
    }

    /// A window that closes because its reader reads nothing for a while, again and again.
    fn by_pausing_reader(&self) -> Option<Named> {
        let away = self.figures.reader_paused?;
        let is_away = self.figures.reader_pauses()
            && self
                .figures
                .rwnd_limited
                .is_some_and(|share| share > threshold::LIMITED_SHARE)
            && self.slept(self.figures.receiver)
            && self.may_be_late();
        is_away.then(|| {
            let evidence = Evidence::new(
                "receiving threads that read nothing at a stretch, share of the time",
                away,
                "times of their byte counters",
            );
            let words = format!(
                "limited by the receive window for more than {}, while the reading thread read nothing for at least {} \
                 of the time, each time for {} intervals and {} RTTs or longer",
                threshold::LIMITED_SHARE,
                threshold::SLEPT_SHARE,
                threshold::PAUSE_INTERVALS,
                threshold::LONG_SLEEP_FACTOR
            );
            self.named(LimitKind::ReceiverProgram, None, Some(evidence), words)
        })
    }

    /// Whether the reader of a path with an RTT of its own sleeps no longer than its data is on the way.
    fn keeps_pace_with_the_path(&self) -> bool {
        let is_long = self
            .figures
            .rtt_min
            .is_some_and(|least| least >= threshold::PATH_RTT);
        is_long
            && self.figures.sleeps_long(self.figures.receiver) == Some(false)
            && !self.figures.reader_pauses()
    }

    /// Whether one RTT of a flow's data is about the window that its peer announced last.
    fn fills_peers_window(&self) -> bool {
        let moved = self.figures.per_round_trip.map_or(0, Bytes::as_u64);
        let fills = |window: Bytes| {
            real(moved) >= threshold::FILLED_WINDOW_SHARE.as_f64() * real(window.as_u64())
        };
        let mut windows = self
            .way
            .sender
            .senders()
            .map(|flow| flow.tcp.value()?.snd_wnd_bytes);
        windows.all(|window| window.is_some_and(fills))
    }

    fn by_sleeping_reader(&self, buffer: Option<Evidence>) -> Option<Named> {
        (self.slept(self.figures.receiver) && self.may_be_late()).then(|| {
            let words = format!(
                "limited by the receive window for more than {} with a buffer of at least {} RTTs \
                 of data, while the reading thread slept for at least {} of the time",
                threshold::LIMITED_SHARE,
                threshold::AMPLE_FACTOR,
                threshold::SLEPT_SHARE
            );
            self.named(LimitKind::ReceiverProgram, None, buffer, words)
        })
    }

    /// Whether a thread waited for something other than a CPU. If its CPU wait time is unknown, a busy machine may
    /// have kept it from running.
    fn slept(&self, turns: Turns) -> bool {
        let free = match turns.waited {
            Some(waited) => turns.slept().is_some_and(|slept| slept > waited),
            None => !self.crowded(),
        };
        free && turns
            .slept()
            .is_some_and(|slept| slept >= threshold::SLEPT_SHARE)
    }

    fn crowded(&self) -> bool {
        [self.way.sender, self.way.receiver]
            .into_iter()
            .any(|side| {
                figures::machine_busy(side).is_none_or(|busy| busy > threshold::CROWDED_SHARE)
            })
    }

    /// A connection that had nothing to send for a part of the time: its program did not supply data, or it filled
    /// the send buffer, which was drained before the program ran again.
    fn by_dry_pipe(&self) -> Option<Named> {
        let busy = self.figures.busy?;
        if busy >= threshold::CONGESTION_SHARE || !self.slept(self.figures.sender) {
            return None;
        }
        let largest = self.largest(Buffer::Send);
        let ample = largest
            .as_ref()
            .and_then(|(size, _)| self.figures.is_ample(*size));
        let evidence = largest.map(|(_, evidence)| evidence);
        let long = self.figures.sleeps_long(self.figures.sender);
        // A writer that has filled the buffer sleeps until the next acknowledgment.
        let until_acknowledged = self.figures.sender.each_sleep.zip(self.figures.rtt);
        let filled = (self.figures.sndbuf_limited)
            .is_none_or(|share| share >= threshold::WHY_CLOSED)
            || until_acknowledged.is_none_or(|(sleep, rtt)| sleep <= rtt);
        let for_buffer = ample == Some(false) && long != Some(true) && filled;
        if for_buffer {
            let rule = Some(("tcp-buffer-below-bdp", self.way.from));
            let words = format!(
                "idle for part of the time, with a send buffer below {} RTTs of data",
                threshold::AMPLE_FACTOR
            );
            return Some(self.named(LimitKind::SendBuffer, rule, evidence, words));
        }
        (busy < threshold::PROGRAM_SHARE && self.is_idle_program()).then(|| {
            let words = format!(
                "data to send for less than {} of the time, and the program slept",
                threshold::PROGRAM_SHARE
            );
            self.named(LimitKind::SenderProgram, None, evidence, words)
        })
    }

    /// A reader that comes back late, although the sender always had data: one that waits for data is woken by the
    /// first packet. One whose window never closed had read everything: it slept because nothing came.
    fn by_late_reader(&self) -> Option<Named> {
        let late = self.figures.busy? >= threshold::CONGESTION_SHARE
            && self.may_be_late()
            && self.figures.rwnd_limited? >= threshold::WHY_CLOSED
            && self.figures.sleeps_long(self.figures.receiver) == Some(true)
            && self.slept(self.figures.receiver);
        late.then(|| {
            let words = format!(
                "data always in flight, a receive window that limited for at least {}, and a reading thread whose \
                 sleeps last at least {} RTTs",
                threshold::WHY_CLOSED,
                threshold::LONG_SLEEP_FACTOR
            );
            self.named(LimitKind::ReceiverProgram, None, None, words)
        })
    }

    /// A send buffer that is filled by one RTT of data, although the congestion window is larger. The kernel does not
    /// count that as limited by the buffer while all of it is in flight.
    fn by_full_send_buffer(&self) -> Option<Named> {
        let (size, evidence) = self.largest(Buffer::Send)?;
        let full = self.figures.busy? >= threshold::CONGESTION_SHARE
            && self.figures.fills(size)
            && self.congestion_window_has_room()
            && !self.figures.queue_on_the_path();
        full.then(|| {
            let what = if self.figures.round_trip_is_the_paths() {
                LimitKind::WindowRtt
            } else {
                LimitKind::SendBuffer
            };
            let words = format!(
                "at least {} of the maximum send buffer per RTT, with room in the congestion \
                 window",
                threshold::FILLED_SHARE
            );
            let rule = Some(("tcp-buffer-below-bdp", self.way.from));
            self.named(what, rule, Some(evidence), words)
        })
    }

    /// Whether the data per RTT is below every flow's congestion window.
    fn congestion_window_has_room(&self) -> bool {
        let moved = self.figures.per_round_trip.map_or(0, Bytes::as_u64);
        self.every_window(|window| window >= moved.saturating_add(moved / 4))
    }

    /// Whether every flow's congestion window is about the data per RTT. (BBR's is twice that: it limits by pacing.)
    fn congestion_window_is_full(&self) -> bool {
        let moved = self.figures.per_round_trip.map_or(0, Bytes::as_u64);
        self.every_window(|window| window <= moved.saturating_mul(threshold::WINDOW_FACTOR))
    }

    fn every_window(&self, holds: impl Fn(u64) -> bool) -> bool {
        self.way.sender.senders().all(|flow| {
            flow.tcp.value().is_some_and(|tcp| {
                let segments = u64::from(tcp.cwnd_segments);
                holds(segments.saturating_mul(tcp.snd_mss_bytes.as_u64()))
            })
        })
    }

    /// Whether no window or buffer held the sender back.
    fn windows_are_open(&self) -> bool {
        [self.figures.rwnd_limited, self.figures.sndbuf_limited]
            .iter()
            .all(|share| share.is_some_and(|share| share <= threshold::LIMITED_SHARE))
    }

    fn is_idle_program(&self) -> bool {
        let on_cpu = self.figures.sender.on_cpu;
        on_cpu.is_some_and(|share| share < threshold::PROGRAM_CPU_SHARE)
    }

    /// To rule out every other limit, everything else must be known.
    fn by_congestion_control(&self) -> Option<Named> {
        let figures = self.figures;
        let waited_for_nothing = self.windows_are_open();
        let turns = [figures.sender, figures.receiver];
        let cpus_known = turns.iter().all(|turns| turns.wanted().is_some());
        // A thread that also waited for a CPU, on a busy machine, may be the limit.
        let free = turns.iter().all(|turns| match turns.waited {
            Some(waited) => waited < threshold::WAITED_SHARE,
            None => !self.crowded(),
        });
        let held = figures.busy? >= threshold::CONGESTION_SHARE;
        // It reacts to what its own host refuses: that is the limit then.
        let refused = refused_by_own_host(self.way.sender) + refused_by_own_qdiscs(self.way.sender);
        let window = self.congestion_window_is_full() && refused <= threshold::REFUSED_FEW;
        let cpus_have_time = free && !turns.iter().any(Turns::used_up);
        (held
            && self.has_little_loss()?
            && waited_for_nothing
            && cpus_known
            && cpus_have_time
            && window
            && !self.figures.queue_on_the_path())
        .then(|| {
            let words = format!(
                "data to send for at least {} of the time, no buffer, window or CPU exhausted, no \
                 queue on the path, and a congestion window of at most {} times the bytes per RTT",
                threshold::CONGESTION_SHARE,
                threshold::WINDOW_FACTOR
            );
            let rule = Some(("tcp-cc-qdisc", self.way.from));
            self.named(
                LimitKind::CongestionControl,
                rule,
                self.congestion_window(),
                words,
            )
        })
    }

    /// Packets that wait on a path whose ends have CPU time left: it carries no more.
    fn by_queue(&self) -> Option<Named> {
        let figures = self.figures;
        let is_idle = [figures.sender, figures.receiver].into_iter().all(|turns| {
            turns
                .wanted()
                .is_some_and(|share| share < threshold::WHY_IDLE)
        });
        // Softirqs that fill a CPU queue packets too.
        let has_time = [self.way.sender, self.way.receiver]
            .into_iter()
            .all(|side| {
                figures::interrupts_most(side).is_some_and(|share| share < threshold::WHY_IDLE)
            });
        let held = figures.busy? >= threshold::CONGESTION_SHARE;
        let waits =
            figures.queue_on_the_path() && self.has_little_loss()? && self.windows_are_open();
        (held && waits && is_idle && has_time && !self.crowded()).then(|| {
            let words = format!(
                "data to send for at least {} of the time, a smoothed RTT above {} times the minimum, no loss, and \
                 threads and interrupts that want a CPU for less than {}",
                threshold::CONGESTION_SHARE,
                threshold::QUEUE_FACTOR,
                threshold::WHY_IDLE
            );
            let rule = Some(("qdisc-shaper", self.way.from));
            self.named(LimitKind::Shaper, rule, None, words)
        })
    }

    /// A qdisc of the sender's host delayed most of the bytes (`overlimits`), although its rate was not reached: a bucket
    /// that holds few packets waits for a timer after each of them (tc-tbf(8), `burst`).
    fn by_waits_for_a_rate(&self) -> Option<Named> {
        let waits = waits_for_own_qdiscs(self.way.sender);
        let sent = self
            .way
            .sender
            .senders()
            .filter_map(|flow| flow.tcp.value());
        let sent: u64 = sent.map(|tcp| tcp.bytes_sent.as_u64()).sum();
        let passed = waits.saturating_mul(threshold::DROPPED_MAX.as_u64());
        let least = threshold::EXPLAINED_SHARE.as_f64() * real(sent);
        (waits > 0 && real(passed) >= least).then(|| {
            let evidence = Evidence::new(
                "packets that had to wait for the rate of a qdisc",
                waits,
                "netlink RTM_GETQDISC, overlimits",
            );
            let share = threshold::EXPLAINED_SHARE;
            let words = format!("waits that may account for at least {share} of the bytes sent");
            let rule = Some(("qdisc-shaper", self.way.from));
            self.named(LimitKind::Shaper, rule, Some(evidence), words)
        })
    }

    fn congestion_window(&self) -> Option<Evidence> {
        let tcp = self.way.first_tcp()?;
        let window = u64::from(tcp.cwnd_segments).saturating_mul(tcp.snd_mss_bytes.as_u64());
        let control = tcp.congestion_control.as_deref().unwrap_or("not named");
        let words = format!(
            "{} segments, {} ({control})",
            tcp.cwnd_segments,
            Bytes::new(window)
        );
        Some(Evidence::new(
            "congestion window of the first flow",
            words,
            "TCP_INFO tcpi_snd_cwnd",
        ))
    }
}

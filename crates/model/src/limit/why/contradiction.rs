//! What the trials without an intervention say against limits.

use super::{Intervention, TrialFigures, Tried};
use crate::analysis::figures::{self, Figures, Turns};
use crate::analysis::{self, OneWay};
use crate::limit::LimitKind;
use crate::limit::drops::{carried_with_loss, window_with_loss};
use crate::sample::Sample;
use crate::units::real;
use crate::{rules, threshold};

/// Whether trials without an intervention had about the rate of the measured one, and lost far less.
pub(super) fn loss_without_effect(sample: &Sample, tried: &[Tried]) -> Option<String> {
    let rate = analysis::rate_after(sample, 0)?;
    let (sent, lost) = TrialFigures::of(sample, rate).segments?;
    let alike = 1.0 / threshold::WHY_LIKE..=threshold::WHY_SAME;
    // Each is beside every intervention of its batch.
    let mut plain: Vec<TrialFigures> = Vec::new();
    for round in tried.iter().flat_map(|one| &one.rounds) {
        let ratio = round.without.rate.as_f64() / rate.as_f64();
        if alike.contains(&ratio) && !plain.contains(&round.without) {
            plain.push(round.without);
        }
    }
    let (again, of_it) = (plain.iter())
        .filter_map(|trial| trial.segments)
        .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let expected = again * lost / sent.max(1.0);
    let is_gone = expected >= threshold::WHY_LOST_LEAST
        && of_it <= expected * threshold::WHY_LOSS_GONE.as_f64();
    is_gone
        .then(|| format!("{of_it:.0} of {again:.0} segments lost in trials of about the same rate"))
}

/// Whether losses at random leave the congestion control about the rate that was measured. Losses that come together,
/// as where a queue overflows, leave it far more.
pub(super) fn loss_explains_rate(sample: &Sample, way: &OneWay<'_>) -> bool {
    let figures = Figures::of(way, &sample.spec);
    let seen = figures.per_round_trip.map(|seen| real(seen.as_u64()));
    let ratio = carried_with_loss(way, &figures)
        .zip(seen)
        .map(|(carried, seen)| carried / seen);
    ratio.is_some_and(|ratio| {
        (1.0 / threshold::LOSS_FACTOR_SEEN..=threshold::LOSS_FACTOR).contains(&ratio)
    })
}

/// Whether paced trials lost so little that the congestion control could carry more than was measured with as much.
pub(super) fn loss_too_small(sample: &Sample, way: &OneWay<'_>, tried: &[Tried]) -> Option<String> {
    /// If none of N is lost, the share is below this / N (95 %, the rule of three) ...
    const NONE_OF: f64 = 3.0;
    /// ... and if K are, K + 1.645 sqrt(K) + 3 is close to the exact bound (Poisson).
    const NORMAL: f64 = 1.645;
    /// BBR does not slow down for less.
    const BBR_SHARE: f64 = 0.01;
    let paced = tried
        .iter()
        .find(|one| one.intervention == Intervention::Paced)?;
    let mut trials = paced.rounds.iter().map(|round| round.with.segments);
    let (sent, lost) = trials.try_fold((0.0, 0.0), |sum, one| {
        let (sent, lost) = one?;
        Some((sum.0 + sent, sum.1 + lost))
    })?;
    let most = (lost + NORMAL * lost.sqrt() + NONE_OF) / sent;
    let figures = Figures::of(way, &sample.spec);
    let tcp = way.first_tcp()?;
    let control = tcp.congestion_control.as_deref()?;
    let is_little = match window_with_loss(control, most, figures.rtt?) {
        Some(segments) => {
            let bytes = segments * real(tcp.snd_mss_bytes.as_u64());
            bytes > threshold::LOSS_FACTOR * real(figures.per_round_trip?.as_u64())
        }
        None => control.starts_with("bbr") && most < BBR_SHARE,
    };
    is_little.then(|| {
        format!("{lost:.0} of {sent:.0} segments lost when paced: {control} can carry at least twice the rate with that")
    })
}

/// Whether the peer's window held every flow back, and no queue on the path.
pub(super) fn is_window_full(sample: &Sample, way: &OneWay<'_>) -> bool {
    let figures = Figures::of(way, &sample.spec);
    figures.fills_receive_window(way) == Some(true) && figures.round_trip_is_the_paths()
}

/// What the trial itself says against a limit that it does not suggest.
pub(super) fn contradicted_by(
    what: LimitKind,
    sample: &Sample,
    way: &OneWay<'_>,
) -> Option<String> {
    let figures = Figures::of(way, &sample.spec);
    let wanted = |turns: Turns| {
        let wanted = turns.wanted()?;
        (wanted < threshold::WHY_IDLE).then_some(wanted)
    };
    if let Some(reason) = no_time_to_wait(what, &figures) {
        return Some(reason);
    }
    // What is lost makes a connection slower than its windows and its reader do.
    let is_lossy = figures.lost.filter(|lost| *lost > threshold::LOSS_SHARE);
    match what {
        LimitKind::SenderProgram => no_idle_sender(&figures),
        LimitKind::ReceiveWindow
        | LimitKind::SendBuffer
        | LimitKind::WindowRtt
        | LimitKind::ReceiverProgram
        | LimitKind::CongestionControl
            if is_lossy.is_some() =>
        {
            is_lossy.map(|lost| format!("{lost} of the bytes lost"))
        }
        LimitKind::ReceiveWindow => window_with_room(&figures, way),
        LimitKind::ReceiverProgram => no_late_reader(&figures, way),
        LimitKind::SenderCpu | LimitKind::ReceiverCpu
            if matches!(rules::shared_cpu(sample), Ok(Some(_))) =>
        {
            Some("both ends share one CPU".to_owned())
        }
        LimitKind::SenderCpu => {
            let share = wanted(figures.sender)?;
            Some(format!(
                "the sending thread running or runnable for {share} of the time"
            ))
        }
        LimitKind::ReceiverCpu => {
            let share = wanted(figures.receiver)?;
            Some(format!(
                "the receiving thread running or runnable for {share} of the time"
            ))
        }
        LimitKind::SharedCpu => match rules::shared_cpu(sample) {
            Ok(None) => Some("the ends do not share one CPU".to_owned()),
            Ok(Some(cpu)) => {
                let busy = figures::cpu_busy(way.sender, cpu)?;
                (busy < threshold::CPU_SHARE).then(|| format!("CPU {cpu} busy for {busy}"))
            }
            Err(_) => None,
        },
        LimitKind::Machine => not_busy(way).or_else(|| none_waited(way, &figures)),
        LimitKind::CongestionControl | LimitKind::Loss if is_window_full(sample, way) => {
            Some("the peer's window is smaller than the congestion window, and full".to_owned())
        }
        LimitKind::Loss => {
            let lost = figures.lost.filter(|lost| lost.as_f64() <= 0.0)?;
            Some(format!("{lost} of the bytes lost"))
        }
        LimitKind::CongestionControl if figures.queue_on_the_path() => {
            Some("packets wait on the path: the RTT is far above its minimum".to_owned())
        }
        LimitKind::Wire | LimitKind::Pcie => Some("the rate is not at its ceiling".to_owned()),
        _ => None,
    }
}

/// A thread that always runs, or waits for a CPU, does not wait for the path, a window or the other program.
fn no_time_to_wait(what: LimitKind, figures: &Figures) -> Option<String> {
    let is_of_cpus = matches!(
        what,
        LimitKind::SenderCpu | LimitKind::ReceiverCpu | LimitKind::SharedCpu | LimitKind::Machine
    );
    let ends = [(figures.sender, "sending"), (figures.receiver, "receiving")];
    let busy = ends.into_iter().find(|(turns, _)| turns.used_up())?;
    (!is_of_cpus).then(|| format!("the {} thread had no time left", busy.1))
}

fn no_idle_sender(figures: &Figures) -> Option<String> {
    if figures.sleeps_long(figures.sender) == Some(false) {
        return Some("the sender sleeps no longer than a connection waits".to_owned());
    }
    let busy = figures
        .busy
        .filter(|busy| *busy >= threshold::CONGESTION_SHARE)?;
    Some(format!("data to send for {busy} of the time"))
}

/// A window with room is not what a connection waits for.
fn window_with_room(figures: &Figures, way: &OneWay<'_>) -> Option<String> {
    let has_room = figures.fills_receive_window(way) == Some(false);
    has_room.then(|| "the peer's window has room".to_owned())
}

fn no_late_reader(figures: &Figures, way: &OneWay<'_>) -> Option<String> {
    if figures.reader_pauses() {
        return None;
    }
    if figures.sleeps_long(figures.receiver) == Some(false) {
        return Some("the reader sleeps no longer than a connection waits".to_owned());
    }
    let closed = figures.rwnd_limited;
    let closed = closed.filter(|share| *share < threshold::WHY_CLOSED)?;
    // BBR's pacing hides a closed window.
    let control = way.first_tcp()?.congestion_control.as_deref()?;
    (!control.starts_with("bbr"))
        .then(|| format!("limited by the receive window for {closed} of the time"))
}

fn not_busy(way: &OneWay<'_>) -> Option<String> {
    let busy = [way.sender, way.receiver].map(figures::machine_busy);
    let [Some(one), Some(other)] = busy else {
        return None;
    };
    let busy = if one > other { one } else { other };
    (busy < threshold::MACHINE_SHARE).then(|| format!("the CPUs busy for {busy}"))
}

/// CPUs that others keep busy do not limit threads that did not wait for them, nor softirqs, which go first.
fn none_waited(way: &OneWay<'_>, figures: &Figures) -> Option<String> {
    let waited = [figures.sender.waited?, figures.receiver.waited?];
    let interrupts = [way.sender, way.receiver].map(figures::interrupts_most);
    let is_free = waited.iter().all(|share| *share < threshold::WAITED_SHARE)
        && interrupts
            .iter()
            .all(|share| share.is_some_and(|share| share < threshold::WHY_IDLE));
    let [one, other] = waited;
    is_free.then(|| format!("the ends' threads waited for a CPU for {one} and {other} of the time"))
}

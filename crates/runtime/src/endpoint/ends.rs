//! The two ends of a path, as the session needs them: a trait, so that the loop is proved against
//! simulated ends with planned faults, and what is the same for every pair of ends: making a change on
//! both or on none, and asking the rules about both.

use std::fmt;
use std::net::IpAddr;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::finding::{Context, Diagnosis, Profile, Undetermined};
use linerate_model::host::Host;
use linerate_model::ids::{CpuSet, NicName};
use linerate_model::known::Known;
use linerate_model::path::PathView;
use linerate_model::plan::{Change, End, Plan};
use linerate_model::prove::EndChange;
use linerate_model::rules::UNWATCHED;
use linerate_model::sample::Sample;
use linerate_model::setting::{SettingKey, TrialKnob, Value, current};
use linerate_model::workload::TrialSpec;

/// Two hosts with a path between them. Transactions of an end are a stack: [`Ends::apply`] opens one on
/// top, [`Ends::undo`] rolls back the newest, [`Ends::commit`] keeps all of them.
pub trait Ends: fmt::Debug {
    /// A host, as it was read last.
    fn host(&self, end: End) -> &Host;

    /// The interface that a host reaches the other one by.
    fn nic(&self, end: End) -> &NicName;

    /// The remote address that data is sent to when no trial uses another.
    fn address(&self) -> IpAddr;

    /// The facts by which trials are laid out.
    fn view(&self) -> PathView<'_> {
        PathView {
            local: self.host(End::Local),
            remote: self.host(End::Remote),
            local_nic: self.nic(End::Local),
            remote_nic: self.nic(End::Remote),
            ipv6: self.address().is_ipv6(),
        }
    }

    /// Reads both hosts again.
    fn read_again(&mut self) -> Outcome<()>;

    /// The findings of the rules for both ends.
    fn diagnosis(&self, sample: Option<&Sample>, owns_shapers: bool) -> Diagnosis {
        diagnose(self, sample, owns_shapers)
    }

    /// Runs one trial.
    fn trial(&mut self, spec: &TrialSpec) -> Outcome<Sample>;

    /// The values that settings have on one end.
    fn settings(&mut self, end: End, keys: &[SettingKey]) -> Outcome<Vec<Known<Value>>> {
        let host = self.host(end);
        Ok(keys.iter().map(|key| current(host, key)).collect())
    }

    /// Switches to another peer, by the name that an experiment gives it, or back to its own: from now on that is the
    /// remote end. Nothing may be open on the one before.
    fn turn(&mut self, peer: Option<&str>) -> Outcome<()> {
        peer.map_or(Ok(()), |peer| {
            let why = format!("these ends have no path to {peer}");
            Err(Stop::new(Code::NotSupported, why))
        })
    }

    /// Sends the data of the next trials to another address of the peer, to that on interfaces of a kind (`@tunnel`),
    /// or where it went at first.
    fn aim(&mut self, address: Option<&str>) -> Outcome<()> {
        address.map_or(Ok(()), |address| {
            let why = format!("these ends have one path between them, not {address}");
            Err(Stop::new(Code::NotSupported, why))
        })
    }

    /// Runs one trial, and others at the same time.
    fn trials(&mut self, specs: &[TrialSpec]) -> Outcome<Vec<Sample>> {
        match specs {
            [spec] => Ok(vec![self.trial(spec)?]),
            _ => Err(Stop::new(
                Code::NotSupported,
                "these ends run one trial at a time",
            )),
        }
    }

    /// Makes the changes of a plan on one end, all or none.
    fn apply(&mut self, end: End, plan: &Plan) -> Outcome<()>;

    /// Undoes the newest plan that is open on one end. Ctrl-C does not keep it from doing so.
    fn undo(&mut self, end: End) -> Outcome<()>;

    /// Keeps every plan that is open on one end.
    fn commit(&mut self, end: End) -> Outcome<()>;

    /// Whether both ends run on one kernel.
    fn shared_kernel(&self) -> bool {
        let boot = |end| self.host(end).identity.boot_id.value();
        boot(End::Local).is_some_and(|id| boot(End::Remote) == Some(id))
    }
}

/// Why changes were not made, and what must be feared of it.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub stop: Stop,
    /// Whether an end may have been left changed: it could not undo, or went away before it answered.
    pub in_doubt: bool,
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        refused.stop
    }
}

/// Makes changes on both ends, or none of them. Changes of the trial are not a host's: they are left out.
pub fn apply_changes(ends: &mut dyn Ends, changes: &[EndChange]) -> Result<(), Refused> {
    let unplanned = |stop| Refused {
        stop,
        in_doubt: false,
    };
    let mut done = Vec::new();
    for (end, plan) in plans(changes).map_err(unplanned)? {
        if let Err(stop) = ends.apply(end, &plan) {
            let mut in_doubt = !refuses_cleanly(stop.code);
            for end in done {
                in_doubt |= ends.undo(end).is_err();
            }
            return Err(Refused { stop, in_doubt });
        }
        done.push(end);
    }
    Ok(())
}

/// Whether the code of a refused plan means that the end is unchanged.
fn refuses_cleanly(code: Code) -> bool {
    matches!(
        code,
        Code::PermissionMissing
            | Code::NotSupported
            | Code::BadInput
            | Code::Resource
            | Code::FailedRestored
    )
}

/// Rolls back what the last [`apply_changes`] did. Both ends are tried, whatever the first one returns.
pub fn undo_changes(ends: &mut dyn Ends, changes: &[EndChange]) -> Outcome<()> {
    let mut result = Ok(());
    for (end, _) in plans(changes)?.into_iter().rev() {
        result = result.and(ends.undo(end));
    }
    result
}

/// Keeps every applied change, on both ends. The remote end comes first: it is the one that may
/// be gone, and then this end can still be restored.
pub fn keep_changes(ends: &mut dyn Ends) -> Outcome<()> {
    ends.commit(End::Remote)?;
    ends.commit(End::Local)
}

/// The findings of the rules for both ends.
pub fn diagnose<E: Ends + ?Sized>(
    ends: &E,
    sample: Option<&Sample>,
    owns_shapers: bool,
) -> Diagnosis {
    let mut whole = Diagnosis::default();
    for (end, other) in [(End::Local, End::Remote), (End::Remote, End::Local)] {
        let diagnosis = linerate_model::rules::diagnose(&Context {
            end,
            host: ends.host(end),
            nic: Some(ends.nic(end)),
            other: Some(ends.host(other)),
            sample,
            watch: None,
            profile: Profile::Throughput,
            owns_shapers,
        });
        whole.findings.extend(diagnosis.findings);
        // The counters of a remote end cannot be watched yet: that is not specific to this path.
        let news = |unsure: &Undetermined| unsure.missing.iter().any(|gap| gap.path != UNWATCHED);
        let unsure = diagnosis.undetermined.into_iter().filter(news);
        whole.undetermined.extend(unsure);
    }
    linerate_model::rules::sort(&mut whole.findings);
    whole
}

/// What each host must do of some changes, in the order in which the ends are changed.
fn plans(changes: &[EndChange]) -> Outcome<Vec<(End, Plan)>> {
    let mut plans = Vec::new();
    for end in [End::Local, End::Remote] {
        let of_end = changes.iter().filter(|change| change.end == end);
        let of_host = of_end
            .map(|change| &change.change)
            .filter(|change| !matches!(change.setting, SettingKey::Trial(_)));
        let plan = Plan::new(of_host.cloned().collect())
            .map_err(|error| Stop::new(Code::Bug, error.to_string()))?;
        if !plan.changes.is_empty() {
            plans.push((end, plan));
        }
    }
    Ok(plans)
}

/// Takes those changes that are of the trial into the next ones.
pub fn change_trial(spec: &mut TrialSpec, changes: &[EndChange]) -> Outcome<()> {
    for EndChange { change, .. } in changes {
        let (SettingKey::Trial(knob), Value::Text(text)) = (&change.setting, &change.to) else {
            continue;
        };
        match knob {
            TrialKnob::SenderCpus => spec.placement.sender_cpus = cpus(change, text)?,
            TrialKnob::ReceiverCpus => spec.placement.receiver_cpus = cpus(change, text)?,
            TrialKnob::CongestionControl => spec.congestion_control = Some(text.clone()),
        }
    }
    Ok(())
}

fn cpus(change: &Change, text: &str) -> Outcome<CpuSet> {
    text.parse().map_err(|error| {
        let setting = &change.setting;
        Stop::new(
            Code::Bug,
            format!("a rule proposed `{text}` for {setting}: {error}"),
        )
    })
}

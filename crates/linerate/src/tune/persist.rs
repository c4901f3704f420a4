//! Persistent settings: `tune persist` keeps what was applied, `tune boot` applies it at every boot.
//!
//! A boot's changes are protected like any others: reverter, deadline, and no user to confirm, so that the
//! machine itself must be as healthy with them as without. Changes that made it worse, or during which it
//! twice went down, are not applied again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, absolute};
use std::time::Duration;

use linerate_host::apply::{
    self, BootAttempts, BootFiles, Boottime, JournalOptions, Lock, NotForBoot, PersistentSet,
    Scope, Verdict, device_of,
};
use linerate_host::root::HostRoot;
use linerate_host::trust::{Trust, Untrusted};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};
use linerate_model::plan::{Change, Plan};
use linerate_model::setting::{Keeping, SettingKey};
use linerate_model::shell::quoted;
use linerate_runtime::cli::PersistArgs;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::crash;
use linerate_runtime::endpoint::guard::EARLIER;
use linerate_runtime::endpoint::local::LocalEndpoint;
use linerate_runtime::endpoint::transactions::{self, Entry, kept_stop, not_locked};

use crate::tune::probe::reach;

/// How long a boot waits for interfaces and addresses that were there when the changes were made persistent.
const BEFORE: Duration = Duration::from_secs(30);
/// Interval between two checks of the machine: it must be fine twice, as a NIC may lose its link a little late.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The maximum number of boots in a row that may end before their changes are confirmed.
const UNFINISHED_MAX: u32 = 2;

fn beside() -> JournalOptions {
    JournalOptions {
        guard: None,
        faults: crash::faults(crash::Role::Maker, None),
    }
}

/// Makes a transaction persistent, or no longer.
pub(crate) fn persist(args: &PersistArgs, state: &Path) -> Outcome<Vec<Entry>> {
    let path = |path: &Path| {
        absolute(path).map_err(|error| Stop::io(format!("find {}", path.display()), error))
    };
    let (state, etc) = (path(state)?, path(&args.etc)?);
    let program = std::env::current_exe().map_err(|error| Stop::io("find this program", error))?;
    let files = BootFiles {
        etc: &etc,
        program: &program,
    };
    if !args.remove {
        let user = rustix::process::geteuid().as_raw();
        check(files, &state, &Trust::for_later(user))?;
    }
    let _lock = Lock::take(Scope::Netns, &state).map_err(|error| Stop::from(not_locked(&error)))?;
    if args.remove {
        return remove(args.id.as_deref(), &state);
    }
    let set = apply::kept_set(&state).map_err(|error| kept_stop(&error))?;
    let known = set.and_then(|(set, _)| {
        let mut kept = set.kept.into_iter();
        kept.find(|kept| Some(&kept.id) == args.id.as_ref())
    });
    let (id, changes) = match known {
        Some(kept) => (kept.id, kept.changes),
        None => transactions::applied(&state, args.id.as_deref())?,
    };
    can_be_kept(&changes)?;
    for address in &args.probe {
        reach(address).map_err(|stop| {
            stop.hint(
                "every probe must succeed now; nothing was made \
            persistent",
            )
        })?;
    }
    let endpoint = LocalEndpoint::open(&state)?;
    let root = endpoint.root();
    let of_nic = |change: &Change| match &change.setting {
        SettingKey::Nic(nic, _) => Some(nic.clone()),
        _ => None,
    };
    let mut nics: BTreeSet<NicName> = changes.iter().filter_map(of_nic).collect();
    nics.extend(endpoint.way_in());
    let device = |nic: &NicName| Some((nic.clone(), device_of(root, nic)?));
    let kept = PersistentSet {
        id: id.clone(),
        devices: nics.iter().filter_map(device).collect::<BTreeMap<_, _>>(),
        up: nics.into_iter().filter(|nic| is_up(root, nic)).collect(),
        changes,
        probes: args.probe.clone(),
        deadline_s: args.deadline,
    };
    apply::keep(&state, files, kept, &beside()).map_err(|error| kept_stop(&error))?;
    let by = files.unit().map_or_else(
        || {
            let script = files.script();
            format!("by {}, which must be run at boot", script.display())
        },
        |unit| format!("by {}", unit.display()),
    );
    Ok(vec![Entry {
        id,
        name: None,
        state: "kept",
        about: format!("its changes are applied at every boot, {by}"),
        kept: true,
    }])
}

/// Refuses changes that cannot be applied at boot.
fn can_be_kept(changes: &[Change]) -> Outcome<()> {
    let of_this_boot = |change: &Change| match change.setting.spec().keeping {
        Keeping::Never(why) => Some((change.setting.clone(), why)),
        Keeping::Persist | Keeping::CommandLine => None,
    };
    if let Some((setting, why)) = changes.iter().find_map(of_this_boot) {
        let stop = Stop::new(
            Code::BadInput,
            format!("cannot make {setting} persistent: {why}"),
        );
        return Err(match setting {
            SettingKey::IrqCpus(_) => stop.hint(
                "use `nic/NAME/queue/QUEUE/irq-cpus`, which can \
                be persistent",
            ),
            _ => stop,
        });
    }
    Ok(())
}

/// Refuses what another user could replace before a boot runs it.
fn check(files: BootFiles<'_>, state: &Path, trust: &Trust) -> Outcome<()> {
    files.check(state, trust).map_err(|error| {
        let (what, error, hint) = match error {
            NotForBoot::Program(error) => {
                let program = quoted(&files.program.display().to_string());
                let hint = format!(
                    "install it below /usr/local as root and run that copy: `install -o root -g \
                     root -m 755 {program} /usr/local/bin/linerate`"
                );
                let what = format!("run {} at boot", files.program.display());
                (what, error, hint)
            }
            NotForBoot::File(error) => {
                let hint = "make it owned by root and writable by root only".to_owned();
                let what = format!("write boot files below {}", files.etc.display());
                (what, error, hint)
            }
        };
        match Untrusted::of(&error) {
            Some(why) => Stop::new(Code::BadInput, format!("cannot {what}: {why}")).hint(hint),
            None => Stop::io(what, error),
        }
    })
}

fn remove(id: Option<&str>, state: &Path) -> Outcome<Vec<Entry>> {
    let gone = apply::forget(state, id, &beside()).map_err(|error| kept_stop(&error))?;
    if let (Some(id), true) = (id, gone.is_empty()) {
        let stop = Stop::new(
            Code::BadInput,
            format!("transaction `{id}` is not persistent"),
        );
        return Err(stop.hint("`linerate tune status` lists them"));
    }
    let entry = |id| Entry {
        id,
        name: None,
        state: "not persistent",
        about: "its changes are no longer applied at boot".to_owned(),
        kept: false,
    };
    Ok(gone.into_iter().map(entry).collect())
}

/// Whether an interface has a carrier, or is of a kind that does not report it (RFC 2863, as `operstate` prints it).
fn is_up(root: &HostRoot, nic: &NicName) -> bool {
    let state = root.read(&format!("sys/class/net/{nic}/operstate"));
    matches!(
        state.value().map(|text| text.trim()),
        Some("up" | "unknown")
    )
}

/// What must work after the changes as well as before them.
#[derive(Debug, Default)]
struct Conditions {
    up: BTreeSet<NicName>,
    probes: BTreeSet<String>,
}

impl Conditions {
    /// Those that do not hold, in words.
    fn broken(&self, root: &HostRoot) -> Vec<String> {
        let down = self.up.iter().filter(|nic| !is_up(root, nic));
        let lost = self.probes.iter().filter(|address| reach(address).is_err());
        down.map(|nic| format!("{nic} has no carrier"))
            .chain(lost.map(|address| format!("{address} is unreachable")))
            .collect()
    }

    /// Only those that hold.
    fn that_hold(mut self, root: &HostRoot) -> Self {
        self.up.retain(|nic| is_up(root, nic));
        self.probes.retain(|address| reach(address).is_ok());
        self
    }

    /// Checks until everything holds in `looks` checks in a row, or the time is over: returns what is broken then.
    fn wait(
        &self,
        root: &HostRoot,
        looks: u32,
        until: Boottime,
        interrupt: &Interrupt,
    ) -> Vec<String> {
        let mut well = 0;
        loop {
            let broken = self.broken(root);
            well = if broken.is_empty() { well + 1 } else { 0 };
            let is_over = well >= looks || until.remaining().is_zero();
            if is_over || interrupt.comes_within(LOOK_EVERY.min(until.remaining())) {
                return broken;
            }
        }
    }
}

/// How a boot's changes ended.
enum End {
    /// They are kept; contains what could not be applied.
    Made(Vec<String>),
    /// By a signal, after `made` of `all` changes.
    Stopped {
        made: usize,
        all: usize,
    },
    Worse(String),
}

/// An attempt to apply a persistent set at this boot, as recorded on disk.
struct Attempt<'a> {
    state: &'a Path,
    set: String,
    boot_id: String,
    unfinished: u32,
}

impl<'a> Attempt<'a> {
    /// Begins one, unless the set is disabled.
    fn begin(state: &'a Path, set: String) -> Outcome<Self> {
        let tried = apply::tried(state, &set).map_err(|error| kept_stop(&error))?;
        let unfinished = match tried.map(|tried| (tried.verdict, tried.unfinished)) {
            Some((Verdict::Bad { why }, _)) => return Err(not_again(&why)),
            Some((Verdict::Trying, before)) => before + 1,
            Some((Verdict::Good | Verdict::Stopped, _)) | None => 0,
        };
        let boot_id =
            apply::boot_id().map_err(|error| Stop::new(Code::NotSupported, error.to_string()))?;
        let attempt = Self {
            state,
            set,
            boot_id,
            unfinished,
        };
        if unfinished >= UNFINISHED_MAX {
            let why = format!("{unfinished} boots in a row ended before the changes were verified");
            return Err(attempt.end_badly(why)?);
        }
        attempt.note(Verdict::Trying)?;
        Ok(attempt)
    }

    fn note(&self, verdict: Verdict) -> Outcome<()> {
        let tried = BootAttempts {
            set: self.set.clone(),
            boot_id: self.boot_id.clone(),
            unfinished: self.unfinished,
            verdict,
        };
        apply::note_try(self.state, &tried, &beside()).map_err(|error| kept_stop(&error))
    }

    /// It is not tried again; returns the message.
    fn end_badly(&self, why: String) -> Outcome<Stop> {
        let stop = not_again(&why);
        self.note(Verdict::Bad { why })?;
        Ok(stop)
    }
}

fn not_again(why: &str) -> Stop {
    let what = format!("persistent changes are disabled at boot: {why}");
    Stop::new(Code::FailedRestored, what).hint(
        "run `linerate tune persist ID` to try again, or `linerate tune persist --remove` to drop \
         it",
    )
}

/// A boot that a signal ended. What was applied is rolled back by then.
fn stopped(made: usize, all: usize) -> Stop {
    let what = match made {
        0 => format!("interrupted before any of the {all} persistent changes was applied"),
        made => format!(
            "interrupted before the persistent changes were verified; {made} of {all} had been applied and were rolled back"
        ),
    };
    Stop::new(Code::Interrupted, what)
        .hint("they are applied at the next boot; to apply them now: `linerate tune boot`")
}

/// Applies the persistent changes.
pub(crate) fn boot(state: &Path, say: &Say) -> Outcome<()> {
    let interrupt = Interrupt::listen()?;
    let state = &absolute(state).map_err(|error| Stop::io("find the state directory", error))?;
    transactions::recover(state)?;
    let Some((set, name)) = apply::kept_set(state).map_err(|error| kept_stop(&error))? else {
        say.note("no persistent transactions");
        return Ok(());
    };
    let attempt = Attempt::begin(state, name)?;
    let mut endpoint = LocalEndpoint::open(state)?;
    let end = make(&set.kept, &mut endpoint, &interrupt, say);
    if !matches!(end, Ok(End::Made(_))) {
        // What cannot be restored is reported before the cause.
        endpoint.undo_all().map_err(Stop::from)?;
    }
    match end {
        Ok(End::Made(left_out)) => {
            attempt.note(Verdict::Good)?;
            if left_out.is_empty() {
                return Ok(());
            }
            let why = left_out.join("; ");
            let what = format!("not all persistent changes could be applied: {why}");
            Err(Stop::new(Code::NotSupported, what))
        }
        Ok(End::Stopped { made, all }) => {
            attempt.note(Verdict::Stopped)?;
            Err(stopped(made, all))
        }
        Ok(End::Worse(why)) => Err(attempt.end_badly(why)?),
        // Another running linerate, or a full disk, may be different at the next boot.
        Err(stop) if stop.code == Code::Resource => {
            attempt.note(Verdict::Stopped)?;
            Err(stop)
        }
        Err(stop) => {
            attempt.end_badly(stop.message.clone())?;
            Err(stop)
        }
    }
}

fn make(
    kept: &[PersistentSet],
    endpoint: &mut LocalEndpoint,
    interrupt: &Interrupt,
    say: &Say,
) -> Outcome<End> {
    let here: Vec<_> = kept.iter().map(|kept| kept.here(endpoint.root())).collect();
    let wanted = Conditions {
        up: here.iter().flat_map(|here| here.up.clone()).collect(),
        probes: kept.iter().flat_map(|kept| kept.probes.clone()).collect(),
    };
    let absent = wanted.wait(endpoint.root(), 1, Boottime::now().plus(BEFORE), interrupt);
    for absent in absent {
        say.note(&format!(
            "{absent}, before any change: not checked afterwards"
        ));
    }
    let conditions = wanted.that_hold(endpoint.root());
    let longest = kept.iter().map(|kept| kept.deadline_s).max().unwrap_or(60);
    let deadline = Boottime::now().plus(Duration::from_secs(longest.into()));
    endpoint.allow_until(deadline);
    for here in &here {
        endpoint.expect(&here.changes);
    }
    let mut left_out: Vec<String> = Vec::new();
    let all = here.iter().map(|here| here.changes.len()).sum();
    let mut made = 0;
    for (kept, here) in kept.iter().zip(here) {
        if interrupt.asked() {
            return Ok(End::Stopped { made, all });
        }
        let gone = here.gone.iter();
        left_out.extend(gone.map(|nic| format!("the NIC that was {nic} is missing")));
        let mut changes = Vec::new();
        for change in here.changes.clone() {
            let now = endpoint.read_setting(&change.setting);
            let made = here.changes.iter().map(|one| (&one.setting, &one.to));
            match (now, change.setting.when_made(made)) {
                (Known::Value(from), _) if change.to.is_met_by(&from) => {}
                (Known::Value(from), _) => changes.push(Change { from, ..change }),
                (Known::Unknown(gap), Some(from)) if gap.cause == Cause::Absent => {
                    changes.push(Change { from, ..change });
                }
                (Known::Unknown(gap), _) => left_out.push(format!("{}: {gap}", change.setting)),
            }
        }
        let plan = Plan::new(changes).map_err(|error| Stop::new(Code::Bug, error.to_string()))?;
        if !plan.changes.is_empty() {
            endpoint.apply_as(&plan, Some(&kept.id))?;
            made += plan.changes.len();
        }
    }
    let broken = conditions.wait(endpoint.root(), 2, deadline.before(EARLIER), interrupt);
    if interrupt.asked() {
        return Ok(End::Stopped { made, all });
    }
    if !broken.is_empty() {
        let why = format!("with its changes {}", broken.join(", "));
        return Ok(End::Worse(why));
    }
    endpoint.commit().map_err(Stop::from)?;
    say.note(&match made {
        0 => "all persistent settings already have their values".to_owned(),
        1 => "applied 1 persistent change".to_owned(),
        all => format!("applied {all} persistent changes"),
    });
    Ok(End::Made(left_out))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("our own");
    }

    #[test]
    fn an_interrupted_boot_says_what_was_applied_and_what_happens_next() {
        let none = stopped(0, 3);
        assert!(
            none.message
                .contains("before any of the 3 persistent changes"),
            "{none}"
        );
        let some = stopped(2, 3);
        assert!(
            some.message
                .contains("2 of 3 had been applied and were rolled back"),
            "{some}"
        );
        for stop in [none, some] {
            assert_eq!(stop.code, Code::Interrupted);
            assert!(stop.to_string().contains("linerate tune boot"), "{stop}");
        }
    }

    #[test]
    fn a_boot_runs_nothing_that_another_user_may_replace() {
        let all = tempfile::tempdir().expect("a folder");
        let (etc, bin) = (all.path().join("etc"), all.path().join("bin"));
        let (units, own) = (etc.join("systemd/system"), etc.join("linerate"));
        for folder in [&units, &own, &bin] {
            fs::create_dir_all(folder).expect("a folder");
        }
        let program = bin.join("linerate");
        for file in [&program, &own.join("boot"), &units.join("linerate.service")] {
            fs::write(file, "").expect("written");
        }
        for path in [&etc, &units, &own, &bin, &program] {
            set_mode(path, 0o755);
        }
        let files = BootFiles {
            etc: &etc,
            program: &program,
        };
        let refused = |trust: &Trust| -> Option<Stop> {
            let refused = check(files, Path::new("/state"), trust).err()?;
            assert_eq!(refused.code, Code::BadInput);
            Some(refused)
        };
        // Users who may replace what is in the temporary folder are ignored here.
        let trust = Trust::of_this_process().expect("/");
        assert!(refused(&trust).is_none());
        let of_program = [&bin, &program];
        let of_files = [
            &etc,
            &units,
            &own,
            &own.join("boot"),
            &units.join("linerate.service"),
        ];
        let is_root = rustix::process::geteuid().is_root();
        for (paths, hint) in [
            (&of_program[..], "/usr/local"),
            (&of_files[..], "owned by root"),
        ] {
            for path in paths {
                set_mode(path, 0o777);
                let stop = refused(&trust).expect("others may write to it");
                let why = format!("other users may write to {} (mode 0777)", path.display());
                assert!(stop.message.ends_with(&why), "{stop}");
                assert!(stop.hint.is_some_and(|found| found.contains(hint)));
                set_mode(path, 0o755);
                if !is_root {
                    continue;
                }
                chown(path, Some(1), None).expect("given away");
                let stop = refused(&trust).expect("another user's");
                assert!(
                    stop.message.ends_with("belongs to another user (uid 1)"),
                    "{stop}"
                );
                chown(path, Some(0), None).expect("taken again");
            }
        }
        // What is in a shared folder now may belong to another user after the next boot.
        set_mode(all.path(), 0o1777);
        assert!(refused(&trust).is_none());
        assert!(refused(&Trust::for_later(0)).is_some());
    }
}

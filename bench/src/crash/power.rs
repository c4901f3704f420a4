//! Power cuts, in the virtual machine (`testbed/vm`): the guest resets itself at a step of the writer, with
//! everything that was not synced to its disk. After the next boot, the persistent state is old or new, and whole.

use std::path::Path;

use linerate_bench_shared::{Trouble, markdown};

use crate::Score;
use crate::guest::{Guest, INSTALLED, OFF};

/// What of the guest outlives its power.
pub(crate) const DISK: &str = "/run/disk";

/// A plan, and how other tools show what it changes.
const PLAN: &str = "printf '[settings]\\n\"nic/n0/ring/rx\" = 512\\n\"nic/n0/coalesce/rx-usecs\" = 64\\n\
    \"sysctl/net.ipv4.tcp_sack\" = 0\\n' >/run/plan.toml";
const RUNTIME: &str = "ethtool -g n0 | sed -n '/^Current/,$ s/^RX:[[:space:]]*/ring /p'
    ethtool -c n0 | sed -n 's/^rx-usecs:[[:space:]]*/usecs /p'; sysctl -n net.ipv4.tcp_sack";
/// What is kept, whatever the transaction is called, and by which files; how its last try went is no part of it.
const KEPT: &str = "cd /run/disk; find etc state/boot -printf '%M %p %l\\n' 2>/dev/null | grep -v 'tried\\.json' | sort
    find etc state/boot -type f ! -name '*tried.json*' -exec cat {} + 2>/dev/null | sed 's/[0-9]\\{13\\}-[0-9]*-[0-9]*/ID/'; true";

/// What the power is cut in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Apply,
    Persist,
    Boot,
    Undo,
}

const PHASES: [(Phase, &str); 4] = [
    (Phase::Apply, "apply and commit"),
    (Phase::Persist, "persist"),
    (Phase::Boot, "changes at boot"),
    (Phase::Undo, "undo of persistent settings"),
];

impl Phase {
    /// What is done, and who of linerate's processes does it.
    fn command(self, linerate: &str) -> (String, &'static str) {
        match self {
            Self::Apply => (
                format!("{linerate} tune apply --no-confirm --from /run/plan.toml"),
                "maker",
            ),
            Self::Persist => (format!("{linerate} tune persist --etc {DISK}/etc"), "maker"),
            Self::Boot => (format!("{DISK}/etc/linerate/boot"), "maker"),
            Self::Undo => (format!("{linerate} tune undo"), "recovery"),
        }
    }

    /// Whether the changes are made before it, and whether they are kept.
    fn start(self) -> (bool, bool) {
        match self {
            Self::Apply => (false, false),
            Self::Persist => (true, false),
            Self::Boot => (false, true),
            Self::Undo => (true, true),
        }
    }

    /// Whether they are kept after it.
    fn ends_kept(self) -> bool {
        matches!(self, Self::Persist | Self::Boot)
    }
}

/// A guest that is cut off from its power again and again.
struct Victim {
    guest: Guest,
    linerate: String,
    mutant: String,
}

impl Victim {
    /// What is kept, and what is set now.
    fn look(&mut self) -> Result<(String, String), Trouble> {
        Ok((self.guest.must(KEPT)?, self.guest.must(RUNTIME)?))
    }

    /// A guest on which nothing is kept and nothing set, brought to where a phase starts.
    fn bring(&mut self, phase: Phase) -> Result<(), Trouble> {
        let (is_made, is_kept) = phase.start();
        let linerate = self.linerate.clone();
        self.guest
            .must(&format!("mkdir -p {DISK}/etc/systemd/system; {PLAN}"))?;
        if is_made || is_kept {
            let apply = format!("{linerate} tune apply --no-confirm --from /run/plan.toml");
            self.guest.must(&apply)?;
        }
        if is_kept {
            self.guest
                .must(&format!("{linerate} tune persist --etc {DISK}/etc"))?;
        }
        if is_kept && !is_made {
            self.guest.cut_power()?;
        }
        Ok(())
    }

    /// Nothing is kept, nothing is set.
    fn clean(&mut self) -> Result<(), Trouble> {
        // The newest that is applied, and what is kept of it.
        let undo = format!("{} tune undo >&2; sync", self.linerate);
        self.guest.must(&undo).map(drop)
    }
}

/// Cuts the power at `cuts` steps, spread over all phases. A guest that cannot be is an error.
pub(crate) fn cuts(linerate: &Path, mutant: &str, cuts: u32) -> Result<Score, Trouble> {
    let mut victim = Victim {
        guest: Guest::boot(linerate)?,
        linerate: format!("{INSTALLED} --state {DISK}/state"),
        mutant: mutant.to_owned(),
    };
    victim
        .guest
        .must(&format!("mkdir -p {DISK}/etc/systemd/system; {PLAN}; sync"))?;
    let without = victim.look()?;
    victim.bring(Phase::Undo)?;
    let with = victim.look()?;
    if with.0 == without.0 || with.1 == without.1 {
        return Err(Trouble("change and keep anything".to_owned()));
    }
    victim.clean()?;
    let columns = ["power cut in", ">steps", ">tried", ">old", ">new", ">mixed"];
    print!("{}", markdown::head(&columns));
    let mut whole = Score::default();
    let each = cuts.div_ceil(4).max(2);
    for (phase, name) in PHASES {
        let mut score = Score::default();
        let steps = count_steps(&mut victim, phase)?;
        for cut in 0..each {
            // The last one comes after its end: what was reported as done must hold.
            let step = 1 + cut * steps / (each - 1);
            let state = try_one(&mut victim, phase, step, (&without, &with))?;
            score.tried += 1;
            match state {
                Some(false) => score.old += 1,
                Some(true) => score.new += 1,
                None => score.mixed += 1,
            }
            if score.mixed > 0 {
                break;
            }
        }
        let cells = [name.to_owned(), steps.to_string()];
        print!("{}", markdown::row(cells.into_iter().chain(score.counts())));
        whole.add(score);
        if whole.mixed > 0 {
            break;
        }
    }
    Ok(whole)
}

/// How many steps a phase has.
fn count_steps(victim: &mut Victim, phase: Phase) -> Result<u32, Trouble> {
    victim.bring(phase)?;
    let (command, who) = phase.command(&victim.linerate);
    let counted = victim.guest.must(&format!(
        "LINERATE_COUNT_STEPS={who}:/run/steps {command} >&2 && cat /run/steps"
    ))?;
    victim.clean()?;
    let steps = counted.trim().parse();
    steps.map_err(|_| Trouble(format!("count the steps of {phase:?}: {counted}")))
}

/// The power is cut at `step`: whether the changes are persistent afterwards; none for a mix.
fn try_one(
    victim: &mut Victim,
    phase: Phase,
    step: u32,
    (without, with): (&(String, String), &(String, String)),
) -> Result<Option<bool>, Trouble> {
    victim.bring(phase)?;
    let (command, who) = phase.command(&victim.linerate);
    let (code, said) = victim.guest.run(&format!(
        "LINERATE_MUTANT={} LINERATE_CRASH={who}:{step}:power exec {command}",
        victim.mutant
    ))?;
    let is_done = code == 0;
    if !is_done && code != OFF {
        return Err(Trouble(format!(
            "cut the power in {phase:?}: {code}: {said}"
        )));
    }
    victim.guest.cut_power()?;
    let mix = |what: &str, (files, runtime): &(String, String)| {
        eprintln!("{phase:?}, step {step}: {what}\n{files}\n{runtime}");
        Ok(None)
    };
    let recover = format!("{} tune recover >&2", victim.linerate);
    let (code, said) = victim.guest.run(&recover)?;
    if code != 0 {
        return mix("recovery failed", &(said, String::new()));
    }
    let now = victim.look()?;
    if now.1 != without.1 {
        return mix("the old settings are not in effect after boot", &now);
    }
    let is_kept = now.0 == with.0;
    if !is_kept && now.0 != without.0 {
        return mix("the persistent settings are neither old nor new", &now);
    }
    if is_done && is_kept != phase.ends_kept() {
        return mix("a change that was reported as done is lost", &now);
    }
    if is_kept {
        let (code, said) = victim.guest.run(&format!("{DISK}/etc/linerate/boot >&2"))?;
        if code != 0 {
            return mix("the changes at boot failed", &(said, String::new()));
        }
        let now = victim.look()?;
        if now != *with {
            return mix(
                "the changes at boot differ from the persistent settings",
                &now,
            );
        }
    }
    victim.clean()?;
    let cleaned = victim.look()?;
    if cleaned != *without {
        return mix("cleanup failed", &cleaned);
    }
    Ok(Some(match phase {
        Phase::Undo => !is_kept,
        _ => is_kept,
    }))
}

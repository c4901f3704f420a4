//! What a session has changed on the two ends and not kept: a stack, rolled back from the top, and compared with
//! the baseline of the hosts.

use std::collections::BTreeMap;

use linerate_analysis::proof::moved_settings;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::plan::End;
use linerate_model::prove::EndChange;
use linerate_model::setting::SettingKey;
use linerate_runtime::endpoint::ends::{Ends, apply_changes, keep_changes, undo_changes};

/// What to do when a host may still be changed.
pub(crate) const RECOVER: &str = "run `linerate tune recover` on both hosts; `linerate tune \
    status` lists the remaining changes, `linerate tune undo` rolls them back; an agent whose \
    connection is lost rolls back by itself";

/// Two ends, and the changes that are open on them.
#[derive(Debug)]
pub(crate) struct ChangeStack<'a> {
    pub(crate) ends: &'a mut dyn Ends,
    /// Changes that are applied and not committed, the newest last.
    open: Vec<Vec<EndChange>>,
    /// The peer that is turned to, where it is another one than at first.
    peer: Option<String>,
    /// Settings that were ever changed while a peer was turned to.
    touched: BTreeMap<Option<String>, Vec<(End, SettingKey)>>,
    /// Why an end may be changed although nothing is open on it.
    doubts: Vec<String>,
}

impl<'a> ChangeStack<'a> {
    pub(crate) fn new(ends: &'a mut dyn Ends) -> Self {
        Self {
            ends,
            open: Vec::new(),
            peer: None,
            touched: BTreeMap::new(),
            doubts: Vec::new(),
        }
    }

    /// The peer that is turned to, where it is another one than at first.
    pub(crate) fn peer(&self) -> Option<&str> {
        self.peer.as_deref()
    }

    /// Turns to another peer, or back to the first. What is open belongs to the one before: there may be nothing.
    pub(crate) fn turn(&mut self, peer: Option<&str>) -> Outcome<()> {
        if self.peer.as_deref() == peer {
            return Ok(());
        }
        if !self.is_empty() {
            return Err(Stop::new(Code::Bug, "another peer has unfinished changes"));
        }
        self.ends.turn(peer)?;
        self.peer = peer.map(str::to_owned);
        Ok(())
    }

    /// The settings that were ever changed on the two ends that are turned to.
    fn touched(&self) -> &[(End, SettingKey)] {
        self.touched.get(&self.peer).map_or(&[], Vec::as_slice)
    }

    /// Whether anything was ever changed.
    pub(crate) fn has_changed(&self) -> bool {
        self.touched.values().any(|settings| !settings.is_empty())
    }

    /// Whether nothing is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether an end may be changed although nothing is open on it.
    pub(crate) fn is_in_doubt(&self) -> bool {
        !self.doubts.is_empty()
    }

    /// Makes the changes on both ends, or none of them.
    pub(crate) fn apply(&mut self, changes: &[EndChange]) -> Outcome<()> {
        let touched = self.touched.entry(self.peer.clone()).or_default();
        touched.extend(settings_of(changes));
        if let Err(refused) = apply_changes(self.ends, changes) {
            if refused.in_doubt {
                self.doubts.push(refused.stop.message.clone());
            }
            return Err(refused.stop);
        }
        self.open.push(changes.to_vec());
        Ok(())
    }

    /// Rolls back what was applied last.
    pub(crate) fn undo_newest(&mut self) -> Outcome<()> {
        let Some(changes) = self.open.pop() else {
            return Ok(());
        };
        undo_changes(self.ends, &changes).map_err(|stop| {
            self.doubts.push(stop.message.clone());
            restore_incomplete(&stop.message)
        })
    }

    /// Passes a stop through, unless it means that a change is not possible here and the hosts are unchanged: then
    /// returns the reason.
    pub(crate) fn refused(&self, stop: Stop) -> Outcome<String> {
        let impossible = matches!(
            stop.code,
            Code::NotSupported | Code::PermissionMissing | Code::BadInput | Code::FailedRestored
        );
        if impossible && !self.is_in_doubt() {
            Ok(stop.message)
        } else {
            Err(stop)
        }
    }

    /// Undoes what is open, the newest first, and looks whether it worked. Returns the settings that moved by
    /// another hand since the hosts were `found`; nothing is changed before they are.
    pub(crate) fn undo_everything(
        &mut self,
        found: Option<(&Host, &Host)>,
    ) -> Outcome<Vec<(End, SettingKey)>> {
        while !self.open.is_empty() {
            // What fails is kept among the doubts; the others are undone all the same.
            let _ = self.undo_newest();
        }
        match self.ends.read_again() {
            Ok(()) => found.map_or(Ok(Vec::new()), |found| self.moved(found)),
            // If the hosts cannot be read, the records must do: they show whether an undo failed, or an answer was lost.
            Err(_) if self.doubts.is_empty() => Ok(Vec::new()),
            Err(_) => {
                // A peer that is lost says the same about each change.
                self.doubts.dedup();
                Err(restore_incomplete(&self.doubts.join("; ")))
            }
        }
    }

    /// The settings that differ from the baseline, except for those that are open. One that was changed here is an
    /// error; others are another process's doing, and left as they are.
    pub(crate) fn moved(&self, found: (&Host, &Host)) -> Outcome<Vec<(End, SettingKey)>> {
        let mut moved = Vec::new();
        for (end, before) in [(End::Local, found.0), (End::Remote, found.1)] {
            let after = self.ends.host(end);
            moved.extend(moved_settings(before, after, end, self.touched()));
        }
        let stay: Vec<_> = self
            .open
            .iter()
            .flat_map(|open| settings_of(open))
            .collect();
        moved.retain(|setting| !stay.contains(setting));
        let ours: Vec<String> = moved
            .iter()
            .filter(|setting| self.touched().contains(setting))
            .map(|(end, setting)| format!("{end} {setting}"))
            .collect();
        if ours.is_empty() {
            return Ok(moved);
        }
        let ours = ours.join(", ");
        Err(restore_incomplete(&format!("{ours} not restored")))
    }

    /// Keeps everything that is open.
    pub(crate) fn keep(&mut self) -> Outcome<()> {
        keep_changes(self.ends).inspect_err(|stop| self.doubts.push(stop.message.clone()))?;
        self.open.clear();
        Ok(())
    }
}

/// The settings of some changes.
pub(crate) fn settings_of(changes: &[EndChange]) -> impl Iterator<Item = (End, SettingKey)> {
    let pair = |change: &EndChange| (change.end, change.change.setting.clone());
    changes.iter().map(pair)
}

/// The message about settings that other programs changed meanwhile.
pub(crate) fn moved_in_words(moved: &[(End, SettingKey)]) -> impl Iterator<Item = String> {
    let words = |(end, setting): &(End, SettingKey)| {
        format!("  {end} {setting} differs from the baseline: another program changed it")
    };
    moved.iter().map(words)
}

fn restore_incomplete(why: &str) -> Stop {
    Stop::new(
        Code::RestoreIncomplete,
        format!("not all changes could be rolled back: {why}"),
    )
    .hint(RECOVER)
}

//! Restoring settings. Writes are recorded as data ([`Step`]); restoring is compare-and-swap, one setting at a time:
//! a setting with a value that linerate wrote gets its old value, one with its old value is left alone, and any other
//! value was set by another process and is reported, never overwritten. So a restore may be stopped at any point and
//! repeated.
//!
//! Restoring a setting may itself have side effects (fewer queues lose their maps), so each write is checked for
//! them, and the whole is repeated until nothing changes, at most [`PASSES_MAX`] times.

use linerate_model::known::{Cause, Known};
use linerate_model::plan::Change;
use linerate_model::setting::{LinkSpeed, NicKnob, SettingKey, Value, parse_applications};

use super::effects::could_be_effect;
use super::located::Located;
use super::machine::Machine;
use super::records::{Step, Unrestored, UnrestoredWhy, at, is_by_name};
use super::settings::{agrees, is_speed_untold};
use super::subject::Subject;

/// The first pass restores written settings, the second their side effects (the maps of queues after their number),
/// the third what depended on the second.
const PASSES_MAX: usize = 3;

/// The result of a restore.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Undone {
    /// The settings that were written back.
    pub restored: Vec<SettingKey>,
    /// The settings that do not have their old value.
    pub left: Vec<Unrestored>,
}

impl Undone {
    /// Whether trying again cannot restore anything more.
    pub fn is_settled(&self) -> bool {
        !self
            .left
            .iter()
            .any(|left| matches!(left.why, UnrestoredWhy::Failed { .. }))
    }
}

/// A value that linerate wrote.
enum Ours {
    /// It was read back after the write.
    Exactly(Value),
    /// It was written but not read back: the kernel may have rounded it.
    Roughly(Value),
    /// A change that takes several requests, of which an unknown number was made.
    Between(Value, Value),
}

/// A setting changed by the steps, directly or as a side effect.
struct Touched {
    key: SettingKey,
    old: Value,
    ours: Vec<Ours>,
    /// Writes that may have changed this setting between two records.
    suspects: Vec<Change>,
    /// The side effects of writing this setting.
    closure: Vec<SettingKey>,
    /// Its subject: another subject that now has its name is not ours.
    subject: Option<Subject>,
    /// The setting under its interface's current name, or why it cannot be reached.
    current: Result<SettingKey, UnrestoredWhy>,
    /// Whether the steps or their rollback are known to have changed it. Side effects that did not happen do not
    /// count.
    concerned: bool,
    /// Whether a write of it may have been partial: a feature that the kernel could not turn on yet stays requested,
    /// unless its old value is requested again.
    request_again: bool,
    written_back: bool,
    failure: Option<String>,
}

struct Table(Vec<Touched>);

enum Judgement {
    AsBefore,
    Ours,
    Foreign(Value),
    Unreachable(UnrestoredWhy),
}

/// The value if fewer numbers were written than a sysctl has: the kernel sets the first ones and keeps the others
/// (`proc_dointvec` and related functions, kernel/sysctl.c). It counts as written by linerate.
fn first_numbers_only(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Text(from), Value::Text(to)) = (from, to) else {
        return None;
    };
    let written = to.split_whitespace().count();
    let kept: Vec<&str> = from.split_whitespace().skip(written).collect();
    (written > 0 && !kept.is_empty()).then(|| Value::Text(format!("{to} {}", kept.join(" "))))
}

/// The value after only some of the requests for a change. For a qdisc that is the kernel's default, or a root with
/// only parts of what was or will be below it; for an application priority table, entries of both. Also the result of some drivers for a speed
/// that cannot be forced.
fn is_between(key: &SettingKey, (from, to): (&Value, &Value), found: &Value) -> bool {
    match (key, from, to, found) {
        (_, Value::Qdisc(from), Value::Qdisc(to), Value::Qdisc(found)) => {
            found.handle == 0 || found.is_made_of([from, to])
        }
        (
            SettingKey::Nic(_, NicKnob::DcbApp),
            Value::Text(from),
            Value::Text(to),
            Value::Text(found),
        ) => {
            let tables = [from, to, found].map(|words| parse_applications(words));
            let [Some(from), Some(to), Some(found)] = &tables else {
                return false;
            };
            found.is_subset(&(from | to)) && found.is_superset(&(from & to))
        }
        (SettingKey::Nic(_, NicKnob::LinkSpeed), _, Value::Text(to), Value::Text(found)) => {
            match (LinkSpeed::parse(to), LinkSpeed::parse(found)) {
                (Some(to), Some(found)) => to.is_offered_alone(&found),
                _ => false,
            }
        }
        _ => false,
    }
}

impl Table {
    /// Settings in the order of restoring: those that were written, last one first (channels before the maps of their
    /// queues), then side effects. A qdisc comes after these: the kernel creates `mq` from the current queues and MTU. A
    /// device that the steps made goes last.
    fn of(steps: &[Step]) -> Self {
        let mut all: Vec<Touched> = Vec::new();
        for step in steps {
            let Change { setting, from, to } = &step.change;
            let closure = step.closure.iter().map(|before| before.setting.clone());
            let main = entry(&mut all, setting, from);
            main.concerned = true;
            main.closure.extend(closure);
            main.subject = step.subject_of(setting).cloned();
            if let Some((readback, _)) = &step.outcome {
                main.ours.push(Ours::Exactly(readback.clone()));
                // The value may be from a port without a link, which reports its speed once it has one.
                if is_speed_untold(setting, to, readback) {
                    main.ours.push(Ours::Roughly(to.clone()));
                }
            } else {
                main.ours.push(Ours::Roughly(to.clone()));
                main.ours
                    .extend(first_numbers_only(from, to).map(Ours::Exactly));
                main.ours.push(Ours::Between(from.clone(), to.clone()));
                main.request_again = matches!(setting, SettingKey::Nic(_, NicKnob::Feature(_)));
            }
            for before in &step.closure {
                let touched = entry(&mut all, &before.setting, &before.from);
                touched.disturbed_by(step);
                touched.subject = step.subject_of(&before.setting).cloned();
            }
        }
        let written = |touched: &Touched| {
            steps
                .iter()
                .rposition(|step| step.change.setting == touched.key)
        };
        all.sort_by_key(|touched| {
            let last = written(touched);
            let is_qdisc = matches!(touched.key, SettingKey::Nic(_, NicKnob::Qdisc));
            let was_made = is_by_name(&touched.key) && !touched.key.makes_interface(&touched.old);
            (
                was_made,
                is_qdisc,
                last.map_or(usize::MAX, |last| steps.len() - last),
            )
        });
        Self(all)
    }

    fn judge(&self, index: usize, machine: &impl Machine) -> Judgement {
        let touched = &self.0[index];
        let current = match &touched.current {
            Ok(current) => current,
            Err(UnrestoredWhy::Gone) if self.went_with_its_device(&touched.key) => {
                return Judgement::AsBefore;
            }
            Err(why) => return Judgement::Unreachable(why.clone()),
        };
        let found = match machine.read(current) {
            Known::Value(found) => found,
            Known::Unknown(gap) if gap.cause == Cause::Absent => {
                return if self.went_with_its_device(&touched.key) {
                    Judgement::AsBefore
                } else {
                    Judgement::Unreachable(UnrestoredWhy::Gone)
                };
            }
            Known::Unknown(gap) => {
                let reason = gap.to_string();
                return Judgement::Unreachable(UnrestoredWhy::Failed { reason });
            }
        };
        if found == touched.old
            || (touched.written_back && agrees(&touched.key, &touched.old, &found))
        {
            return Judgement::AsBefore;
        }
        let ours = touched.ours.iter().any(|ours| match ours {
            Ours::Exactly(value) => *value == found,
            Ours::Roughly(value) => agrees(&touched.key, value, &found),
            Ours::Between(from, to) => is_between(&touched.key, (from, to), &found),
        });
        let suspected = || {
            touched
                .suspects
                .iter()
                .any(|change| could_be_effect(change, &touched.key, &found))
        };
        if ours || suspected() {
            Judgement::Ours
        } else {
            Judgement::Foreign(found)
        }
    }

    /// Whether a setting belongs to a device that the steps made, and that is gone.
    fn went_with_its_device(&self, key: &SettingKey) -> bool {
        let mut all = self.0.iter();
        !is_by_name(key)
            && all.any(|touched| {
                is_by_name(&touched.key)
                    && !touched.key.makes_interface(&touched.old)
                    && touched.key.interface() == key.interface()
            })
    }

    /// Writes the old value and records its side effects: these are ours too.
    fn put_back(&mut self, index: usize, machine: &impl Machine) {
        let Touched {
            current: Ok(current),
            subject,
            old,
            closure,
            ..
        } = &self.0[index]
        else {
            return;
        };
        let watched: Vec<usize> = (0..self.0.len())
            .filter(|other| *other != index && closure.contains(&self.0[*other].key))
            .collect();
        let look = |table: &Self| -> Vec<Known<Value>> {
            let others = watched.iter().map(|other| &table.0[*other]);
            let read = |other: &Touched| match &other.current {
                Ok(current) => machine.read(current),
                Err(_) => Known::not_asked(other.key.to_string()),
            };
            others.map(read).collect()
        };
        let before = look(self);
        let failure = machine
            .write_to(subject.as_ref(), current, old)
            .err()
            .map(|error| error.to_string());
        let after = look(self);
        for ((other, before), after) in watched.iter().zip(before).zip(after) {
            if let (true, Known::Value(after)) = (before != after, after) {
                let other = &mut self.0[*other];
                other.concerned = true;
                other.ours.push(Ours::Exactly(after));
            }
        }
        let touched = &mut self.0[index];
        touched.written_back = true;
        touched.concerned = true;
        touched.failure = failure;
    }
}

fn entry<'t>(all: &'t mut Vec<Touched>, key: &SettingKey, old: &Value) -> &'t mut Touched {
    let index = all.iter().position(|touched| touched.key == *key);
    let index = index.unwrap_or_else(|| {
        all.push(Touched {
            key: key.clone(),
            old: old.clone(),
            ours: Vec::new(),
            suspects: Vec::new(),
            closure: Vec::new(),
            subject: None,
            current: Ok(key.clone()),
            concerned: false,
            request_again: false,
            written_back: false,
            failure: None,
        });
        all.len() - 1
    });
    &mut all[index]
}

impl Touched {
    fn disturbed_by(&mut self, step: &Step) {
        let Some((_, disturbed)) = &step.outcome else {
            // Killed between write and record: the result of the write is unknown.
            self.suspects
                .extend([step.change.clone(), step.change.inverse()]);
            return;
        };
        let Some(disturbed) = disturbed.iter().find(|one| one.setting == self.key) else {
            return;
        };
        self.concerned = true;
        // Killed while restoring: the result of writing the old value is unknown.
        self.suspects.push(step.change.inverse());
        match &disturbed.became {
            Some(value) => self.ours.push(Ours::Exactly(value.clone())),
            // Its queue was removed; a new queue gets the kernel's defaults.
            None => self.suspects.push(step.change.clone()),
        }
    }
}

/// Restores what `steps` changed.
pub(super) fn undo(steps: &[Step], machine: &impl Machine) -> Undone {
    let mut table = Table::of(steps);
    for _ in 0..PASSES_MAX {
        table.locate(machine);
        let mut moved = false;
        for index in 0..table.0.len() {
            match table.judge(index, machine) {
                Judgement::Ours => {
                    table.put_back(index, machine);
                    moved = true;
                }
                Judgement::AsBefore if table.0[index].request_again => {
                    table.0[index].request_again = false;
                    // Its value is right already; only the requested state in the kernel must be reset.
                    let Touched { current, old, .. } = &table.0[index];
                    let _ = current.as_ref().map(|key| machine.write(key, old));
                }
                _ => {}
            }
        }
        if !moved {
            break;
        }
    }
    table.summary(machine)
}

impl Table {
    /// Finds each setting under its interface's current name.
    fn locate(&mut self, machine: &impl Machine) {
        let mut located: Vec<(Subject, Located)> = Vec::new();
        for touched in &mut self.0 {
            let Some(subject) = touched
                .subject
                .as_ref()
                .filter(|_| !is_by_name(&touched.key))
            else {
                continue;
            };
            let known = located.iter().find(|(one, _)| one == subject);
            let place = known.map(|(_, place)| place.clone());
            let place = place.unwrap_or_else(|| {
                let place = machine.locate(subject);
                located.push((subject.clone(), place.clone()));
                place
            });
            touched.current = at(&touched.key, &place);
        }
    }

    fn summary(mut self, machine: &impl Machine) -> Undone {
        self.locate(machine);
        let mut undone = Undone::default();
        let judgements: Vec<Judgement> = (0..self.0.len())
            .map(|index| self.judge(index, machine))
            .collect();
        for (touched, judgement) in self.0.into_iter().zip(judgements) {
            let setting = touched.current.unwrap_or(touched.key);
            let why = match judgement {
                Judgement::AsBefore if touched.written_back => {
                    undone.restored.push(setting);
                    continue;
                }
                Judgement::AsBefore => continue,
                Judgement::Foreign(_) | Judgement::Unreachable(_) if !touched.concerned => continue,
                Judgement::Foreign(found) => UnrestoredWhy::Foreign { found },
                Judgement::Unreachable(why) => why,
                Judgement::Ours => UnrestoredWhy::Failed {
                    reason: touched
                        .failure
                        .unwrap_or_else(|| "the kernel accepted the write without effect".into()),
                },
            };
            undone.left.push(Unrestored {
                setting,
                old: touched.old,
                why,
            });
        }
        undone
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::host::{Qdisc, QdiscPart, QdiscPartIs};

    use super::*;

    #[test]
    fn what_stands_between_two_values_is_our_doing_and_nothing_else() {
        let between = |key: &str, from: &str, to: &str, found: &str| {
            let key: SettingKey = key.parse().expect("a key");
            let value = |text: &str| key.parse_value(text).expect("a value");
            is_between(&key, (&value(from), &value(to)), &value(found))
        };
        let apps = |found| {
            let (from, to) = ("dscp-prio 1:1 2:2", "dscp-prio 2:2 3:3");
            between("nic/eth0/dcb/app", from, to, found)
        };
        for (found, is_ours) in [
            ("dscp-prio 1:1 2:2 3:3", true),
            ("dscp-prio 2:2", true),
            ("dscp-prio 1:1", false),
            ("", false),
            ("dscp-prio 2:2 4:4", false),
        ] {
            assert_eq!(apps(found), is_ours, "{found}");
        }
        let key: SettingKey = "nic/eth0/qdisc".parse().expect("a key");
        let qdisc = |kind: &str, words: &str| {
            Value::Qdisc(Qdisc {
                handle: 1 << 16,
                words: words.to_owned(),
                ..Qdisc::plain(kind)
            })
        };
        let from = qdisc("tbf", "tbf rate 1gbit burst 1k limit 1m");
        let to = key.parse_value("htb default 10 rate 1gbit").expect("words");
        let is_ours = |found: &Value| is_between(&key, (&from, &to), found);
        assert!(is_ours(&qdisc("htb", "htb default 10")));
        assert!(is_ours(&Value::Qdisc(Qdisc::plain("fq_codel"))));
        for other in [
            "htb default 1",
            "htb default 20",
            "htb default 10 rate 2gbit",
        ] {
            assert!(!is_ours(&qdisc("htb", other)), "{other}");
        }
        assert!(!is_ours(&qdisc("fq", "fq")));
        // Without words, only what was there counts.
        let part = |handle| QdiscPart {
            is: QdiscPartIs::Filter,
            kind: "u32".to_owned(),
            handle,
            parent: 1 << 16,
            info: 0,
            chain: 0,
            options: String::new(),
        };
        let with = |below: &[QdiscPart]| {
            let Value::Qdisc(plain) = qdisc("prio", "") else {
                unreachable!("a qdisc")
            };
            Value::Qdisc(Qdisc {
                below: below.to_vec(),
                ..plain
            })
        };
        let from = with(&[part(1), part(2)]);
        let is_ours = |found: &Value| is_between(&key, (&from, &to), found);
        assert!(is_ours(&with(&[part(1)])));
        assert!(!is_ours(&with(&[part(3)])));
        let speed = |found| {
            let from = "auto 10baseT/Full 1000baseT/Full";
            between("nic/eth0/link/speed", from, "1000 full", found)
        };
        assert!(speed("auto 1000baseT/Full"));
        assert!(!speed("auto 10baseT/Full"));
        assert!(!speed("10 full"));
        let (old, new) = (Value::Integer(1), Value::Integer(3));
        assert!(!is_between(&key, (&old, &new), &Value::Integer(2)));
    }

    #[test]
    fn numbers_that_the_kernel_kept_are_our_doing() {
        let text = |value: &str| Value::Text(value.to_owned());
        let left = |to| first_numbers_only(&text("4096 16384 4194304"), &text(to));
        assert_eq!(left("1 2"), Some(text("1 2 4194304")));
        assert_eq!(left("1 2 3"), None);
        assert_eq!(left(""), None);
    }
}

//! The reverter: a separate process that rolls changes back if the one that made them cannot. It is armed before the
//! first write and receives every record before the write that it announces, so it needs neither disk nor network to
//! know what was changed.
//!
//! It acts when its channel closes, that is, when the other process has ended for any reason, and at the deadline,
//! when it first kills that process (SIGKILL) so that nothing writes any more, and then restores. Time is
//! CLOCK_BOOTTIME (clock_gettime(2)): it continues in suspend, and setting the clock does not affect it.

use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::clock::Boottime;
use super::guard::ARMED;
use super::journal::{Ending, Journal, JournalOptions, Story, folder_of, is_aborted};
use super::lock::REVERTING;
use super::machine::Machine;
use super::recover::{Outcome, Recovered};
use super::restore;
use super::rights;
use super::transaction::close;

/// The timeout for a killed process to leave the kernel.
const DYING: Duration = Duration::from_secs(2);
/// The safety margin before the deadline, so that the rollback is complete by then.
const EARLIER: Duration = Duration::from_millis(500);

/// The reverter's state.
#[derive(Debug, Default)]
struct Memory {
    /// The undecided transactions with the lines of their journals, in the order in which they began.
    lines: Vec<(String, Vec<u8>)>,
    deadline: Option<Boottime>,
    /// An incomplete line.
    rest: Vec<u8>,
}

impl Memory {
    fn hear(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.take(&line);
        }
    }

    fn take(&mut self, line: &[u8]) {
        let Some(blank) = line.iter().position(|byte| *byte == b' ') else {
            return;
        };
        let (word, told) = (&line[..blank], &line[blank + 1..]);
        let Ok(word) = std::str::from_utf8(word) else {
            return;
        };
        if word == "deadline" {
            let told = std::str::from_utf8(told).unwrap_or_default();
            self.deadline = match told.trim_end().parse() {
                Ok(0) | Err(_) => None,
                Ok(nanoseconds) => Some(Boottime::after(Duration::from_nanos(nanoseconds))),
            };
        } else if is_aborted(told) {
            self.lines.retain(|(id, _)| id != word);
        } else if let Some((_, lines)) = self.lines.iter_mut().find(|(id, _)| id == word) {
            lines.extend_from_slice(told);
        } else {
            self.lines.push((word.to_owned(), told.to_owned()));
        }
    }

    /// When to act, if there is something to roll back.
    fn due(&self) -> Option<Boottime> {
        let deadline = self.deadline.filter(|_| !self.lines.is_empty())?;
        Some(deadline.before(EARLIER))
    }

    /// Rolls back what is undecided, newest first.
    fn revert(
        self,
        why: &str,
        state: &Path,
        machine: &dyn Machine,
        beside: &JournalOptions,
    ) -> Vec<Recovered> {
        let undecided = self.lines.into_iter().rev();
        let revert = |(id, lines): (String, Vec<u8>)| {
            let folder = folder_of(state, &id);
            let outcome = match Story::parse(&lines) {
                // It receives a commit before the disk does, and only the disk shows whether it completed.
                Ok(story) if story.ending == Ending::Committed && is_committed(&folder) => {
                    return None;
                }
                Ok(story) => {
                    // Up to here neither disk nor network is needed, as the changes may have cut them off.
                    let undone = restore::undo(&story.steps, &machine);
                    if let Ok((mut journal, _)) = Journal::take_over(&folder, REVERTING, beside) {
                        // It stays in the list: there may be no process left to report it to.
                        close(&mut journal, &undone, why);
                    }
                    Outcome::of(undone)
                }
                Err(why) => Outcome::LeftAlone(why.to_owned()),
            };
            Some(Recovered { id, outcome })
        };
        undecided.filter_map(revert).collect()
    }
}

fn is_committed(folder: &Path) -> bool {
    Story::read(folder).is_ok_and(|story| story.ending == Ending::Committed)
}

/// Closes every inherited descriptor except the three standard ones. Call it before this process opens a descriptor.
pub fn close_inherited() {
    // Before Linux 5.9 they stay open until the process exits.
    let _ = super::sys::close_from(3);
}

/// Serves the process `parent` at the other end of `channel`, whose journals are below `state`, until it ends. Rolls
/// back what it left undecided on `machine`, for which this process keeps the capabilities `rights`, by the kernel's
/// names, and no others; `beside` is for tests.
pub fn stand_by(
    mut channel: UnixStream,
    parent: u32,
    state: &Path,
    machine: &dyn Machine,
    rights: &[String],
    beside: &JournalOptions,
) -> io::Result<Vec<Recovered>> {
    // A page that must be read from disk may be unreachable because of the changes. Without the right to lock that
    // much memory, the reverter depends on the disk.
    let _ = super::sys::lock_memory();
    rights::keep_only(rights, state);
    let parent = Parent::of(parent);
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    channel.write_all(ARMED)?;
    let mut memory = Memory::default();
    // Held until this process ends.
    let mut locks = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let mut why = "the process that made the changes exited";
    loop {
        set(&timer, memory.due())?;
        let mut ready = [
            PollFd::new(&channel, PollFlags::IN),
            PollFd::new(&timer, PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled?,
        };
        // Messages count before the deadline: one may have been the decision.
        let is_silent = ready[0].revents().is_empty();
        if is_silent {
            why = "the deadline passed without a commit";
            parent.kill();
            // It makes no more calls; one in progress when it was killed may still complete.
            channel.set_read_timeout(Some(DYING))?;
        }
        match receive(&channel, &mut buffer, &mut locks) {
            Ok(count) if count > 0 => memory.hear(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // End of file, an equivalent error, or a killed process that does not leave the kernel.
            _ => return Ok(memory.revert(why, state, machine, beside)),
        }
    }
}

/// Reads messages, and receives the descriptors sent with them.
fn receive(
    channel: &UnixStream,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(buffer)];
    let received = recvmsg(channel, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            descriptors.extend(came);
        }
    }
    Ok(received.bytes)
}

fn set(timer: &OwnedFd, deadline: Option<Boottime>) -> io::Result<()> {
    let zero = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let at = deadline.map_or(zero, |deadline| Timespec {
        tv_sec: i64::try_from(deadline.since_boot().as_secs()).unwrap_or(i64::MAX),
        tv_nsec: deadline.since_boot().subsec_nanos().into(),
    });
    let times = Itimerspec {
        it_interval: zero,
        it_value: at,
    };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &times)?;
    Ok(())
}

/// The process that makes the changes. Its pidfd cannot refer to another process later.
struct Parent {
    pid: Option<Pid>,
    pidfd: Option<OwnedFd>,
}

impl Parent {
    fn of(pid: u32) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pidfd = pid.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
        // It may have ended, and its PID been reused, before the pidfd was opened.
        let still = pid.filter(|_| rustix::process::getppid() == pid);
        Self {
            pid: still,
            pidfd: pidfd.filter(|_| still.is_some()),
        }
    }

    /// Makes sure that it makes no more calls; its end of the channel closes with it.
    fn kill(&self) {
        match (&self.pidfd, self.pid) {
            (Some(pidfd), _) => {
                let _ = rustix::process::pidfd_send_signal(pidfd.as_fd(), Signal::KILL);
            }
            // Before Linux 5.3. Its PID is not reused while it is our parent.
            (None, Some(pid)) if rustix::process::getppid() == Some(pid) => {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use linerate_model::plan::{Change, Plan};
    use linerate_model::setting::{SettingKey, Settings, Value};

    use std::io::Read as _;

    use super::super::guard::{Guard, LOCK, PATIENCE};
    use super::super::lock::Lock;
    use super::*;
    use crate::apply::fake::FakeMachine;
    use crate::apply::{Header, Transaction};

    const SACK: &str = "sysctl/net.ipv4.tcp_sack";

    fn key() -> SettingKey {
        SACK.parse().expect("a key")
    }

    fn machine(value: bool) -> Rc<FakeMachine> {
        let settings = Settings::from([(key(), Value::Switch(value))]);
        Rc::new(FakeMachine::new(settings, Vec::new()))
    }

    /// The reverter side for the journals of a process, and everything that the reverter would receive.
    fn beside() -> (JournalOptions, UnixStream) {
        let (own, theirs) = UnixStream::pair().expect("two sockets");
        (&theirs).write_all(ARMED).expect("room");
        let guard = Guard::armed(own).expect("it was said");
        let beside = JournalOptions {
            guard: Some(std::sync::Arc::new(guard)),
            faults: None,
        };
        (beside, theirs)
    }

    /// A transaction that has changed the setting from `from`, begun at a wall-clock time.
    fn changed_from(
        from: bool,
        at_ns: u64,
        state: &Path,
        beside: &JournalOptions,
    ) -> Transaction<Rc<FakeMachine>> {
        let header = Header::here(at_ns).expect("this process");
        let mut transaction =
            Transaction::begin(machine(from), state, &header, beside).expect("a state folder");
        let change = Change {
            setting: key(),
            from: Value::Switch(from),
            to: Value::Switch(!from),
        };
        let plan = Plan::new(vec![change]).expect("one change");
        transaction.apply(&plan).expect("it is taken");
        transaction
    }

    /// A transaction that has made its change, and everything that its reverter would have received.
    fn changed(state: &Path) -> (Transaction<Rc<FakeMachine>>, UnixStream) {
        let (beside, theirs) = beside();
        (changed_from(true, 1, state, &beside), theirs)
    }

    #[test]
    fn the_newest_is_put_back_first_also_when_the_clock_was_set_back_between() {
        for clock_ns in [
            [1_000_000_000, 2_000_000_000],
            [2_000_000_000, 1_000_000_000],
        ] {
            let state = tempfile::tempdir().expect("a state folder");
            let (beside, channel) = beside();
            let first = changed_from(true, clock_ns[0], state.path(), &beside);
            let second = changed_from(false, clock_ns[1], state.path(), &beside);
            let machine = machine(true);
            drop(beside);
            first.die();
            second.die();
            let restored = heard(channel, 64).revert(
                "a test",
                state.path(),
                &*machine,
                &JournalOptions::default(),
            );
            // The second finds what it wrote, and the first what the second restored.
            let left = restored.iter().map(|one| match &one.outcome {
                Outcome::Restored(undone) => undone.left.len(),
                outcome => panic!("{outcome:?}"),
            });
            assert_eq!(left.sum::<usize>(), 0, "{restored:?}");
            assert_eq!(machine.read(&key()).value(), Some(&Value::Switch(true)));
        }
    }

    fn heard(mut channel: UnixStream, pieces: usize) -> Memory {
        let mut all = Vec::new();
        channel
            .read_to_end(&mut all)
            .expect("the other end is closed");
        let mut memory = Memory::default();
        all.chunks(pieces).for_each(|piece| memory.hear(piece));
        memory
    }

    fn reverted(memory: Memory, state: &Path) -> Value {
        let machine = machine(false);
        memory.revert("a test", state, &*machine, &JournalOptions::default());
        machine.read(&key()).value().cloned().expect("a value")
    }

    #[test]
    fn what_was_not_decided_is_put_back_without_the_disk_however_the_records_came() {
        for pieces in [1, 7, 64, 1 << 20] {
            let state = tempfile::tempdir().expect("a state folder");
            let (transaction, channel) = changed(state.path());
            transaction.die();
            let memory = heard(channel, pieces);
            let nowhere = state.path().join("gone");
            assert_eq!(reverted(memory, &nowhere), Value::Switch(true));
        }
    }

    #[test]
    fn what_is_committed_on_the_disk_stays_and_a_commit_that_did_not_get_there_does_not_count() {
        let state = tempfile::tempdir().expect("a state folder");
        let (transaction, channel) = changed(state.path());
        transaction.commit().expect("a writable journal");
        assert_eq!(
            reverted(heard(channel, 64), state.path()),
            Value::Switch(false)
        );

        let state = tempfile::tempdir().expect("a state folder");
        let (transaction, channel) = changed(state.path());
        let folder = folder_of(state.path(), &transaction.id());
        let before = std::fs::read(folder.join("journal")).expect("a journal");
        transaction.commit().expect("a writable journal");
        std::fs::write(folder.join("journal"), before).expect("a power cut");
        assert_eq!(
            reverted(heard(channel, 64), state.path()),
            Value::Switch(true)
        );
    }

    #[test]
    fn a_lock_that_was_handed_over_is_held_until_both_have_ended() {
        let folder = tempfile::tempdir().expect("a folder for the lock");
        let take = || Lock::take_file(folder.path().join("machine.lock"), Duration::ZERO);
        let (own, theirs) = UnixStream::pair().expect("two sockets");
        (&theirs).write_all(ARMED).expect("room");
        let guard = Guard::armed(own).expect("it was said");
        let lock = take().expect("a folder").expect("its name stays");
        guard.hold(&lock).expect("the channel is open");
        // Its owner ends: no process is left to remove the file.
        lock.leave();
        let is_held = || matches!(take(), Err(crate::apply::LockError::Held { .. }));
        assert!(is_held(), "it is on its way");
        let mut locks = Vec::new();
        let count = receive(&theirs, &mut [0; 64], &mut locks).expect("a line");
        assert_eq!((count, locks.len()), (LOCK.len(), 1));
        assert!(is_held(), "the reverter has it");
        drop(locks);
        assert!(!is_held());
    }

    #[test]
    fn a_reverter_that_does_not_end_is_waited_for_so_long_and_no_longer() {
        let (own, theirs) = UnixStream::pair().expect("two sockets");
        (&theirs).write_all(ARMED).expect("room");
        let guard = Guard::armed(own).expect("it was said");
        let late = guard.dismiss(Duration::from_millis(1));
        assert_eq!(late.expect_err("it lives").kind(), io::ErrorKind::TimedOut);
        drop(theirs);
        guard.dismiss(PATIENCE).expect("it has ended");
    }

    #[test]
    fn what_was_taken_back_already_is_forgotten() {
        let state = tempfile::tempdir().expect("a state folder");
        let (transaction, channel) = changed(state.path());
        transaction.undo().expect("it is taken");
        let memory = heard(channel, 64);
        assert!(memory.lines.is_empty());
        assert_eq!(memory.due(), None);
    }
}

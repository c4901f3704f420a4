//! Events of a running `prove`, as the kernel reports them: every file of the run and of the undo
//! journals that is created, written or removed is an event (inotify(7)). A moment is the N-th of them.

use std::fs;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;

use crate::job::HANGS;

/// What is inspected.
pub(crate) struct Watch {
    events: OwnedFd,
    journals: PathBuf,
}

impl Watch {
    /// Watches the folder of a run and the journals below a state folder; both are made here.
    pub(crate) fn new(run: &Path, state: &Path) -> Self {
        let journals = state.join("txn");
        let events = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("inotify");
        for folder in [run, &journals] {
            fs::create_dir_all(folder).expect("the lab's folder");
            add_watch(&events, folder, kinds()).expect("a folder that was just made");
        }
        Self { events, journals }
    }

    /// Watches one more folder.
    pub(crate) fn look_at(&self, folder: &Path) {
        add_watch(&self.events, folder, kinds()).expect("it is there");
    }

    /// Waits for the `number`-th event from now; returns how many came before `end` became
    /// readable, at most `number`.
    pub(crate) fn wait(&self, number: usize, end: &OwnedFd) -> usize {
        let limit = Timespec::try_from(HANGS).expect("a few minutes");
        let mut seen = 0;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        while seen < number {
            let mut fds = [
                PollFd::new(&self.events, PollFlags::IN),
                PollFd::new(end, PollFlags::IN),
            ];
            let ready = poll(&mut fds, Some(&limit)).expect("nothing interrupts");
            assert!(ready > 0, "it hangs after {seen} events");
            if !fds[0].revents().contains(PollFlags::IN) {
                break;
            }
            let mut reader = Reader::new(&self.events, &mut buffer);
            while seen < number {
                match reader.next() {
                    Ok(event) => {
                        seen += 1;
                        // A new transaction: the lines of its journal are events, too.
                        if event.events().contains(ReadFlags::MOVED_TO)
                            && let Some(name) = event.file_name().and_then(|n| n.to_str().ok())
                        {
                            // It may be over and gone already; so may a file of another folder.
                            let _ = add_watch(&self.events, self.journals.join(name), kinds());
                        }
                    }
                    Err(Errno::AGAIN) => break,
                    Err(error) => panic!("inotify: {error}"),
                }
            }
        }
        seen
    }
}

fn kinds() -> WatchFlags {
    WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::MOVED_TO
        | WatchFlags::DELETE
        | WatchFlags::CLOSE_WRITE
}

/// Numbers from a seed (xorshift64*): every run tries the same points.
pub(crate) struct Seeded(u64);

impl Seeded {
    /// A stream of numbers.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number from 1 to `most`.
    pub(crate) fn up_to(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        1 + usize::try_from(number).expect("31 bits") % most.max(1)
    }
}

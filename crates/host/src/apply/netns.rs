//! A machine in another network namespace: a thread that has entered it and executes requests. A thread, because a
//! namespace belongs to a thread and the caller's must not change.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use linerate_model::known::{Cause, Known};
use linerate_model::setting::{SettingKey, Value};

use super::identity::{NetnsIdentity, Search, search};
use super::located::Located;
use super::machine::{LiveMachine, Machine};
use super::subject::Subject;
use super::sys;
use super::write_error::WriteError;
use crate::nic_control::NicWrite;
use crate::root::LiveHost;

/// Opens netlink in the calling thread's namespace.
pub type OpenNics = fn() -> io::Result<Box<dyn NicWrite>>;

/// The result of entering a namespace.
pub enum Reach {
    /// Its settings can be read and written.
    Machine(Box<dyn Machine>),
    /// It no longer exists, and its settings with it.
    Gone,
    /// It may exist and cannot be reached.
    Unreachable(String),
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(_) => f.write_str("Machine"),
            Self::Gone => f.write_str("Gone"),
            Self::Unreachable(why) => write!(f, "Unreachable({why})"),
        }
    }
}

type Job = Box<dyn FnOnce(&LiveMachine) + Send>;

/// A machine seen from a namespace that the caller is not in.
struct NetnsMachine {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// The settings of `netns`: of this thread's namespace directly, of another one through a thread.
pub fn reach(netns: &NetnsIdentity, open_nics: OpenNics) -> Reach {
    let here = NetnsIdentity::current();
    if here.is_ok_and(|here| here.is(netns)) {
        return match open_here(open_nics) {
            Ok(machine) => Reach::Machine(Box::new(machine)),
            Err(error) => Reach::Unreachable(format!("cannot open this machine: {error}")),
        };
    }
    match search(netns) {
        Search::Found(file) => match NetnsMachine::enter(file, open_nics) {
            Ok(machine) => Reach::Machine(Box::new(machine)),
            Err(error) => {
                Reach::Unreachable(format!("cannot enter its network namespace: {error}"))
            }
        },
        Search::Gone => Reach::Gone,
        Search::Hidden { processes } => Reach::Unreachable(format!(
            "cannot check whether its network namespace still exists: {processes} processes are \
             not accessible; run as root"
        )),
    }
}

fn open_here(open_nics: OpenNics) -> io::Result<LiveMachine> {
    Ok(LiveMachine::new(LiveHost::open()?, open_nics()?))
}

impl NetnsMachine {
    fn enter(netns: File, open_nics: OpenNics) -> io::Result<Self> {
        let (jobs, inbox): (Sender<Job>, Receiver<Job>) = channel();
        let (report, entered) = channel();
        let thread = std::thread::Builder::new()
            .name("netns".to_owned())
            .spawn(move || {
                let enter = || {
                    sys::enter_netns(netns.as_fd())?;
                    sys::mount_own_sysfs()?;
                    open_here(open_nics)
                };
                match enter() {
                    Ok(machine) => {
                        // The other end waits for it; if it is gone, so is the sender of jobs.
                        let _ = report.send(Ok(()));
                        for job in inbox {
                            job(&machine);
                        }
                    }
                    Err(error) => drop(report.send(Err(error))),
                }
            })?;
        let died = || io::Error::other("the thread in the namespace ended");
        entered.recv().map_err(|_| died())??;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&LiveMachine) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = channel();
        let job: Job = Box::new(move |machine| drop(answer.send(job(machine))));
        self.jobs.as_ref()?.send(job).ok()?;
        answered.recv().ok()
    }
}

impl Drop for NetnsMachine {
    fn drop(&mut self) {
        // Without a sender the thread's loop ends.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const ENDED: &str = "the thread in the network namespace ended";

impl Machine for NetnsMachine {
    fn read(&self, key: &SettingKey) -> Known<Value> {
        let asked = key.clone();
        self.ask(move |machine| machine.read(&asked))
            .unwrap_or_else(|| Known::unknown(Cause::Unreadable, key.to_string(), ENDED))
    }
    fn write(&self, key: &SettingKey, value: &Value) -> Result<(), WriteError> {
        let (setting, wanted) = (key.clone(), value.clone());
        self.ask(move |machine| machine.write(&setting, &wanted))
            .unwrap_or_else(|| {
                Err(WriteError::NotSupported {
                    setting: key.clone(),
                    why: ENDED,
                })
            })
    }
    fn write_link(
        &self,
        subject: Option<&Subject>,
        key: &SettingKey,
        value: &Value,
    ) -> Result<(), WriteError> {
        let (subject, setting, wanted) = (subject.cloned(), key.clone(), value.clone());
        self.ask(move |machine| machine.write_link(subject.as_ref(), &setting, &wanted))
            .unwrap_or_else(|| {
                Err(WriteError::NotSupported {
                    setting: key.clone(),
                    why: ENDED,
                })
            })
    }
    fn disturbed_by(&self, key: &SettingKey) -> Vec<SettingKey> {
        let key = key.clone();
        self.ask(move |machine| machine.disturbed_by(&key))
            .unwrap_or_default()
    }
    fn subject(&self, key: &SettingKey) -> Option<Subject> {
        let key = key.clone();
        self.ask(move |machine| machine.subject(&key)).flatten()
    }
    fn locate(&self, subject: &Subject) -> Located {
        let subject = subject.clone();
        self.ask(move |machine| machine.locate(&subject))
            .unwrap_or_else(|| Located::Lost(ENDED.to_owned()))
    }
}

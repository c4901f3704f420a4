//! `linerate report --serve`: all stored runs, their pages, and the progress of running ones, for a local browser.
//!
//! A run contains a host's addresses and settings, and only its owner may read it in the file system. So it is served on
//! loopback only, and only to that user: the kernel reports whose socket is at the other end. `http` permits
//! reading only.

mod http;
mod idle_runs;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use linerate_analysis::run_list::RunsDocument;
use linerate_host::procfs::connections::user_of_connection;
use linerate_host::root::LiveHost;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::known::Known;
use linerate_report::page::{Reach, policy};
use linerate_report::{Form, front_page, progress_page};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::{Format, Say};
use linerate_store as store;
use linerate_store::follow::Followed;
use linerate_store::runs::{self, Filter};
use rustix::process::geteuid;

use self::http::{Answer, Status};
use self::idle_runs::IdleRuns;
use super::report::page_of;

/// Serves the runs of a state folder until Ctrl-C.
pub(crate) fn run(address: SocketAddr, state: &Path, say: &Say) -> Outcome<()> {
    if say.format == Format::Json {
        let why = "`report --serve` serves HTML pages, not JSON";
        return Err(
            Stop::new(Code::Usage, why).hint("`linerate runs --format json` lists the runs")
        );
    }
    let interrupt = Interrupt::listen()?;
    let listener = TcpListener::bind(address)
        .and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        })
        .map_err(|error| cannot_listen(address, error))?;
    let here = listener
        .local_addr()
        .map_err(|error| cannot_listen(address, error))?;
    let live = LiveHost::open().map_err(|error| Stop::io("open the root directory", error))?;
    let site = Site {
        folder: state.join("runs"),
        live,
        say: say.clone(),
        interrupt: interrupt.clone(),
        going: Mutex::default(),
        followed: Mutex::default(),
        heavy: Mutex::default(),
    };
    say.data(&format!("http://{here}/"))?;
    say.note(&format!(
        "serving the runs in {}, {}; Ctrl-C stops it",
        site.folder.display(),
        admitted_in_words()
    ));
    http::serve(&listener, &site, &interrupt);
    Ok(())
}

fn cannot_listen(address: SocketAddr, error: io::Error) -> Stop {
    let in_use = error.kind() == io::ErrorKind::AddrInUse;
    let stop = Stop::io(format!("listen on {address}"), error);
    if in_use {
        stop.hint("pass another port, or none to use a free one")
    } else {
        stop
    }
}

/// Who may look: this user, and who became this user by sudo(8).
fn admitted() -> Vec<u32> {
    let before = std::env::var("SUDO_UID").ok();
    let before = before.and_then(|user| user.parse::<u32>().ok());
    // Root can read the files themselves.
    let mut users = vec![0, geteuid().as_raw()];
    users.extend(before);
    users.sort_unstable();
    users.dedup();
    users
}

fn admitted_in_words() -> String {
    let users: Vec<String> = admitted().iter().map(u32::to_string).collect();
    let users = users.join(", ");
    format!("only UID {users} can connect")
}

/// What is served.
#[derive(Debug)]
struct Site {
    /// The folder of the runs.
    folder: PathBuf,
    live: LiveHost,
    say: Say,
    interrupt: Interrupt,
    going: Mutex<IdleRuns>,
    /// The runs that go on, by name.
    followed: Mutex<BTreeMap<String, Followed>>,
    /// Held while a page is made that reads whole runs: one at a time, however many ask.
    heavy: Mutex<()>,
}

/// A panic in one answer is no reason to refuse all others.
fn locked<T>(one: &Mutex<T>) -> MutexGuard<'_, T> {
    one.lock().unwrap_or_else(PoisonError::into_inner)
}

impl http::Pages for Site {
    fn turns_away(&self, peer: SocketAddr, here: SocketAddr) -> Option<Answer> {
        match user_of_connection(self.live.root(), peer, here) {
            Known::Value(user) if admitted().contains(&user) => None,
            Known::Value(user) => {
                let words = format!(
                    "access denied: {}, and this client runs as UID {user}",
                    admitted_in_words()
                );
                Some(Answer::words(Status::Forbidden, &words))
            }
            Known::Unknown(gap) => {
                let words = format!("cannot identify the client: {}", gap.reason);
                Some(Answer::words(Status::Forbidden, &words))
            }
        }
    }

    fn answer(&self, path: &str) -> Answer {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let page = match parts[..] {
            [""] => self.front(Form::Whole),
            ["progress"] => self.front(Form::Part),
            ["runs", name] => self.of_run(name, Requested::Page),
            ["runs", name, "progress"] => self.of_run(name, Requested::Part),
            ["runs", name, "report"] => self.of_run(name, Requested::Report),
            _ => return no_such(),
        };
        match page {
            Ok(Some((page, reach))) => Answer::page(page, policy(reach)),
            Ok(None) => no_such(),
            // A run that has just begun may have nothing to show yet.
            Err(stop) if stop.code == Code::Inconclusive => {
                Answer::words(Status::NotFound, &format!("cannot show this: {stop}"))
            }
            Err(stop) => Answer::words(Status::Failed, &format!("cannot show this: {stop}")),
        }
    }
}

fn no_such() -> Answer {
    Answer::words(Status::NotFound, "no such page; `/` lists all runs")
}

/// What of a run is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Requested {
    /// Its progress while it runs, then its report.
    Page,
    /// The live part of how far it is.
    Part,
    /// Its report, whether it is running or not.
    Report,
}

/// A page, and what it may ask for.
type PageResult = Outcome<Option<(String, Reach)>>;

impl Site {
    fn front(&self, form: Form) -> PageResult {
        let mut going = self.going_on();
        // Slow work comes before what others wait for.
        let list = match form {
            Form::Whole => Some(self.list()?),
            Form::Part => None,
        };
        // One that began or ended meanwhile was not killed.
        going.extend(self.going_on());
        going.sort_unstable();
        going.dedup();
        let mut followed = locked(&self.followed);
        followed.retain(|name, _| going.contains(name));
        for name in &going {
            // One that was taken away meanwhile, or has no header yet, is not shown.
            if !followed.contains_key(name)
                && let Ok(new) = Followed::open(&self.folder.join(name))
            {
                followed.insert(name.clone(), new);
            }
        }
        let now: Vec<_> = (followed.iter_mut().rev())
            .filter_map(|(name, followed)| Some((name.clone(), followed.now().ok()?)))
            .collect();
        let page = front_page(list.as_ref(), &now, now_unix_s());
        Ok(Some((page, Reach::OwnServer)))
    }

    fn list(&self) -> Outcome<RunsDocument> {
        let _one = self.in_turn()?;
        runs::document(&self.folder, &Filter::default(), false, &|words| {
            self.say.note(words);
        })
    }

    /// Waits until no other page is made that reads whole runs; not after Ctrl-C.
    fn in_turn(&self) -> Outcome<MutexGuard<'_, ()>> {
        let one = locked(&self.heavy);
        self.interrupt.check()?;
        Ok(one)
    }

    /// The names of the runs that are being written.
    fn going_on(&self) -> Vec<String> {
        locked(&self.going).names(&self.folder, store::is_being_written)
    }

    fn of_run(&self, name: &str, wanted: Requested) -> PageResult {
        let Some(folder) = decoded(name).and_then(|name| self.folder_of(&name)) else {
            return Ok(None);
        };
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        if wanted != Requested::Report && store::is_being_written(&folder) {
            let mut followed = locked(&self.followed);
            if !followed.contains_key(&*name) {
                followed.insert(name.to_string(), Followed::open(&folder)?);
            }
            let Some(followed) = followed.get_mut(&*name) else {
                return Ok(None);
            };
            let form = match wanted {
                Requested::Part => Form::Part,
                _ => Form::Whole,
            };
            let page = progress_page(form, &name, followed.now()?, now_unix_s());
            return Ok(Some((page, Reach::OwnServer)));
        }
        if wanted == Requested::Part {
            locked(&self.followed).remove(&*name);
            // It is over: who follows it takes the whole page.
            return Ok(Some((String::new(), Reach::Nothing)));
        }
        if wanted == Requested::Page {
            locked(&self.followed).remove(&*name);
        }
        let _one = self.in_turn()?;
        Ok(Some((page_of(&folder)?, Reach::Nothing)))
    }

    /// The folder of a run by its name, which is nothing but a name.
    fn folder_of(&self, name: &str) -> Option<PathBuf> {
        let mut parts = Path::new(name).components();
        let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(only)), None) if only == name);
        let folder = self.folder.join(name);
        (is_name && !name.contains('\0') && folder.join("run.json").is_file()).then_some(folder)
    }
}

/// A part of a path without its per cent signs; none where it is no text.
fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_an_address_is_read_back_and_what_is_none_is_refused() {
        assert_eq!(decoded("a%20b%C3%a9").as_deref(), Some("a bé"));
        for text in ["%", "%2", "%zz", "%ff", "%+1"] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }
}

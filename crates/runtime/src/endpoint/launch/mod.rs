//! A process that a launcher has started on each host: one of them becomes the root of a mesh, the others join it.
//!
//! `pmi` passes the pairing line on by the launcher itself. The root listens behind `gate`, the others are a `worker` each: the
//! agents that they start are controlled over the connection that they have opened, which is the listening agent's (TLS 1.3
//! between paired keys). The keys are made for the mesh, and removed with it.

mod gate;
mod pmi;
mod worker;

use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linerate_host::private_folder::PrivateFolder;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::launch::{Launched, PmiChannel, Rendezvous, launched};
use linerate_model::pairing::Pairing;

pub use self::gate::{Arrived, Gate, Gathered, in_a_line};
pub use self::worker::{Keep, relay, work};

/// A folder for the keys of one mesh, which is removed when this is dropped.
#[derive(Debug)]
pub struct MeshFolder(PathBuf);

impl MeshFolder {
    /// Makes it in the state folder, for this process alone.
    pub fn make(state: &Path) -> Outcome<Self> {
        let name = format!("mesh-{}", std::process::id());
        let folder = state.join(&name);
        let made = PrivateFolder::make(state).and_then(|state| {
            // Of an earlier process with this number, perhaps on another host that shares the state folder.
            match state.make_folder(&name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    fs::remove_dir_all(&folder)?;
                    state.make_folder(&name)
                }
                made => made,
            }
        });
        made.map_err(|error| Stop::io(format!("make {}", folder.display()), error))?;
        Ok(Self(folder))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for MeshFolder {
    fn drop(&mut self) {
        // A key of a mesh that is over opens nothing.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What the launcher of this process says.
pub fn this_process() -> Outcome<Option<Launched>> {
    let variable = |name: &str| std::env::var(name).ok();
    launched(&variable).map_err(|error| {
        let hint = error.hint();
        Stop::new(Code::BadInput, error.to_string()).hint(hint)
    })
}

/// How often a file for the pairing line is looked for.
const FILE_EVERY: Duration = Duration::from_millis(100);

/// The pairing line of the root. The root itself passes its own, `own`, on.
pub fn pairing_line(
    rendezvous: &Rendezvous,
    own: Option<&Pairing>,
    limit: Duration,
    gives_up: &dyn Fn(Duration) -> bool,
) -> Outcome<Pairing> {
    let own = own.map(Pairing::to_string);
    let text = match rendezvous {
        Rendezvous::Line(line) => line.clone(),
        Rendezvous::File(file) => match &own {
            Some(line) => {
                write_secret(Path::new(file), line)?;
                line.clone()
            }
            None => read_secret(Path::new(file), limit, gives_up)?,
        },
        Rendezvous::Pmi(PmiChannel::Descriptor(descriptor)) => {
            let stream = linerate_traffic::inherited_stream(*descriptor).map_err(|error| {
                Stop::io(format!("use the descriptor of PMI_FD, {descriptor}"), error)
            })?;
            pmi::exchange(stream, None, own.as_deref())?
        }
        Rendezvous::Pmi(PmiChannel::Port { at, id }) => {
            let stream = TcpStream::connect(at).map_err(|error| {
                Stop::io(format!("connect to the launcher at {at} (PMI_PORT)"), error)
            })?;
            pmi::exchange(stream, Some(id), own.as_deref())?
        }
    };
    text.parse()
        .map_err(|why: String| Stop::new(Code::BadInput, format!("cannot join the mesh: {why}")))
}

/// Writes a line that only this user may read, whole or not at all. There is one root: a file that exists is not replaced.
fn write_secret(file: &Path, line: &str) -> Outcome<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let place = PathBuf::from(name);
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&place)
        .and_then(|mut file| {
            file.write_all(line.as_bytes())
                .and_then(|()| file.sync_all())
        })
        .and_then(|()| fs::hard_link(&place, file));
    let _ = fs::remove_file(&place);
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Stop::new(
            Code::BadInput,
            format!("cannot become the root: {} exists", file.display()),
        )
        .hint(
            "another process has rank 0, or an earlier mesh was killed: give each process its own rank, or remove the file",
        ),
        _ => Stop::io(format!("write {}", file.display()), error),
    })
}

/// Removes the file of the pairing line: after the ranks have joined it is of no use.
pub fn forget_line(rendezvous: &Rendezvous) {
    if let Rendezvous::File(file) = rendezvous {
        // A file that is gone already is what is wanted.
        let _ = fs::remove_file(file);
    }
}

/// Reads the line once the root has written it. A network file system reports no change of a file: it is looked for.
fn read_secret(
    file: &Path,
    limit: Duration,
    gives_up: &dyn Fn(Duration) -> bool,
) -> Outcome<String> {
    let deadline = Instant::now() + limit;
    loop {
        match fs::read_to_string(file) {
            Ok(line) => return Ok(line),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Stop::io(format!("read {}", file.display()), error));
            }
            Err(_) if Instant::now() >= deadline => {
                let why = format!(
                    "the root has not written {} within {} s",
                    file.display(),
                    limit.as_secs()
                );
                return Err(Stop::new(Code::TimeOut, why));
            }
            Err(_) if gives_up(FILE_EVERY) => return Err(Stop::interrupted()),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_file_of_the_pairing_line_is_secret_and_read_once_it_is_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("root");
        let never = |_| false;
        let stop = read_secret(&file, Duration::ZERO, &never).expect_err("there is none");
        assert_eq!(stop.code, Code::TimeOut);
        write_secret(&file, "tls://h#k").expect("writable");
        let mode = fs::metadata(&file)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = read_secret(&file, Duration::ZERO, &never).expect("it is there");
        assert_eq!(read, "tls://h#k");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn a_second_rank_0_does_not_replace_the_line_of_the_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("root");
        write_secret(&file, "tls://first").expect("writable");
        let stop = write_secret(&file, "tls://second").expect_err("there is a root");
        assert_eq!(stop.code, Code::BadInput);
        assert!(stop.message.contains("exists"), "{}", stop.message);
        assert_eq!(
            fs::read_to_string(&file).expect("it is there"),
            "tls://first"
        );
        forget_line(&Rendezvous::File(file.display().to_string()));
        write_secret(&file, "tls://second").expect("the first one has ended");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn the_folder_of_a_mesh_ends_with_it() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = MeshFolder::make(state.path()).expect("writable");
        let path = folder.path().to_owned();
        assert!(path.is_dir());
        drop(folder);
        assert!(!path.exists());
    }
}

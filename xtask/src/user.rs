//! An ordinary user for root's second run of the tests: an ID without an entry in the user database and without
//! capabilities, with its own home.
//!
//! A checkout below a closed directory (`/root` has mode 700) is not reachable for it. Then the programs run in a
//! mount namespace (unshare(1), setpriv(1), both util-linux) in which an empty directory hides the closed one and the
//! checkout is bind-mounted at its old path: paths do not change, and neither do permissions on disk.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// In none of the ranges that Debian, systemd or container tools hand out (60706-61183 is unused).
const ORDINARY_ID: u32 = 61_000;

/// `sh -c` script: tree, closed folder, spare folder, working folder, id, program, arguments.
const OPEN_TREE: &str = r#"set -e
tree=$1 closed=$2 spare=$3 folder=$4 id=$5; shift 5
mount --bind "$tree" "$spare"
mount -t tmpfs -o mode=755 none "$closed"
mkdir -p "$tree"
mount --bind "$spare" "$tree"
cd "$folder"
exec setpriv --reuid="$id" --regid="$id" --clear-groups -- "$@""#;

/// Who runs the test programs.
#[derive(Debug)]
pub(crate) struct User {
    /// The label of the run in the output.
    pub(crate) name: &'static str,
    id: Option<u32>,
    tree: PathBuf,
    /// The outermost directory on the path to the tree that others cannot enter.
    closed: Option<PathBuf>,
    /// Home and temporary folder in one; removed at the end.
    home: PathBuf,
}

impl User {
    /// The user who started this program, with a home that the tests may modify.
    pub(crate) fn own(tree: &Path) -> io::Result<Self> {
        let name = if is_root() {
            "root"
        } else {
            "an ordinary user"
        };
        Self::new(name, None, tree)
    }

    /// An ordinary user; only root can become one.
    pub(crate) fn ordinary(tree: &Path) -> io::Result<Self> {
        Self::new("an ordinary user", Some(ORDINARY_ID), tree)
    }

    fn new(name: &'static str, id: Option<u32>, tree: &Path) -> io::Result<Self> {
        let own = if id.is_some() { "user" } else { "own" };
        let home = Path::new("/tmp").join(format!("linerate-test-{own}-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&home)?;
        let user = Self {
            name,
            id,
            tree: tree.to_owned(),
            closed: id.and_then(|_| closed_folder(tree)),
            home,
        };
        fs::create_dir(user.home.join("tree"))?;
        if let Some(id) = id {
            chown(&user.home, Some(id), Some(id))?;
        }
        Ok(user)
    }

    /// The command that runs `program` in `folder` as this user.
    pub(crate) fn command(&self, program: &Path, folder: &Path, arguments: &[&str]) -> Command {
        let mut command = match (&self.closed, self.id) {
            (Some(closed), Some(id)) => {
                let mut command = Command::new("unshare");
                command
                    .args(["--mount", "--propagation", "private"])
                    .args(["sh", "-c", OPEN_TREE, "sh"])
                    .args([&self.tree, closed, &self.home.join("tree")])
                    .arg(folder)
                    .arg(id.to_string())
                    .arg(program);
                command
            }
            (None, Some(id)) => {
                // The standard library drops the supplementary groups with the id.
                let mut command = Command::new(program);
                command.uid(id).gid(id).current_dir(folder);
                command
            }
            (_, None) => {
                let mut command = Command::new(program);
                command.current_dir(folder);
                command
            }
        };
        command.args(arguments).envs(self.environment());
        for name in [
            "XDG_STATE_HOME",
            "XDG_DATA_HOME",
            "XDG_CONFIG_HOME",
            "XDG_CACHE_HOME",
        ] {
            command.env_remove(name);
        }
        command
    }

    fn environment(&self) -> Vec<(&'static str, OsString)> {
        ["HOME", "TMPDIR", "XDG_RUNTIME_DIR"]
            .into_iter()
            .map(|name| (name, self.home.clone().into_os_string()))
            .collect()
    }

    /// Why this user cannot run `program`, if it cannot.
    pub(crate) fn obstacle(&self, program: &Path) -> Option<String> {
        let mut probe = self.command(program, &self.tree, &["--list"]);
        let output = match probe.stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => return None,
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        Some(format!(
            "{} cannot run {}: {output}; is the checkout readable by others (umask)?",
            self.name,
            program.display()
        ))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // What cannot be removed lies in /tmp under our name; nothing depends on it.
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// Whether this program runs as root: who owns what it makes is the kernel's own answer.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn closed_folder(tree: &Path) -> Option<PathBuf> {
    let mut way: Vec<&Path> = tree.ancestors().collect();
    way.reverse();
    way.into_iter()
        .find(|folder| {
            fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o001 == 0)
        })
        .map(Path::to_owned)
}

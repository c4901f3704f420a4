//! The folder of a user's runs and journals.

use std::ffi::OsString;
use std::path::{Path as FilePath, PathBuf};

use linerate_host::trust::{Trust, Untrusted};
use linerate_model::exit::{Code, Outcome, Stop};

/// Where runs and journals are kept. Root ignores the environment, which may be that of the user who became
/// root, and refuses a folder that another user may replace: its contents are acted on as root.
pub fn state_folder(given: Option<&FilePath>) -> Outcome<PathBuf> {
    let is_root = rustix::process::geteuid().is_root();
    let Some(folder) = given else {
        return default_state_folder(is_root, |name| std::env::var_os(name));
    };
    if is_root {
        check_for_root(folder)?;
    }
    Ok(folder.to_owned())
}

fn default_state_folder(
    is_root: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Outcome<PathBuf> {
    if is_root {
        return Ok(PathBuf::from("/var/lib/linerate"));
    }
    let folder = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    folder("XDG_STATE_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".local/state")))
        .map(|base| base.join("linerate"))
        .ok_or_else(|| {
            Stop::new(
                Code::NotSupported,
                "cannot choose a state directory: $HOME is not set",
            )
            .hint("set a directory with `--state`")
        })
}

fn check_for_root(folder: &FilePath) -> Outcome<()> {
    let followed = Trust::of_this_process().and_then(|trust| trust.follow_existing(folder));
    followed.map_err(|error| match Untrusted::of(&error) {
        Some(untrusted) => {
            let path = folder.display();
            let why = format!("cannot use {path} as root's state directory: {untrusted}");
            Stop::new(Code::BadInput, why).hint(
                "run linerate as the owner of the directory, or pass a root-owned directory with \
                 `--state`",
            )
        }
        None => Stop::io(
            format!("use the state directory {}", folder.display()),
            error,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_keeps_its_state_where_no_variable_says() {
        let variable = |name: &str| Some(OsString::from(format!("/of/somebody/{name}")));
        let folder = |is_root| default_state_folder(is_root, variable).ok();
        assert_eq!(folder(true), Some("/var/lib/linerate".into()));
        assert_eq!(
            folder(false),
            Some("/of/somebody/XDG_STATE_HOME/linerate".into())
        );
        let home = |name: &str| (name == "HOME").then(|| OsString::from("/home/me"));
        let found = default_state_folder(false, home).ok();
        assert_eq!(found, Some("/home/me/.local/state/linerate".into()));
        assert!(default_state_folder(false, |_| None).is_err());
    }
}

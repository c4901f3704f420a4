//! Every test of the workspace, built by cargo and run here one program after the other, so that the
//! same programs can be run a second time as another user, and their skips counted.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::check::{capture, capture_tests, cargo, heading};
use crate::tally::{Output, Tally};
use crate::user::{self, User};

/// Crates that clippy keeps away from the machine: who runs them makes no difference.
const PURE: [&str; 3] = ["linerate-model", "linerate-stats", "xtask"];

/// A test program that cargo built.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    package: String,
    name: String,
    folder: PathBuf,
    file: PathBuf,
}

/// Runs all tests, and those that touch the machine again as an ordinary user when this is root.
pub(crate) fn run(root: &Path) -> Tally {
    heading("build the tests");
    let mut build = cargo();
    build
        .args(["test", "--workspace", "--no-run", "--message-format=json"])
        .current_dir(root);
    let built = build.stderr(Stdio::inherit()).output();
    let messages = match built {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Ok(output) => {
            show_errors(&String::from_utf8_lossy(&output.stdout));
            return Tally::of_gate("build the tests", &Output::default());
        }
        Err(error) => {
            eprintln!("cannot start cargo: {error}");
            return Tally::of_gate("build the tests", &Output::default());
        }
    };
    let programs = programs(&messages);
    let mut tally = round(User::own(root), &programs);
    heading("examples in the documentation");
    let doc = ["test", "--workspace", "--doc", "--", "--show-output"];
    let output = capture_tests(cargo().args(doc).current_dir(root));
    tally.add(Tally::of_tests("doc", &output));
    tally.add(page(root));
    if user::is_root() {
        let touching: Vec<Program> = programs
            .into_iter()
            .filter(|program| !PURE.contains(&program.package.as_str()))
            .collect();
        tally.add(round(User::ordinary(root), &touching));
    }
    tally.add(vm(root));
    tally
}

/// The tests in a virtual machine, once: in the guest they are root's, whoever starts it. The whole workspace
/// is named so that nothing is built a second time with other features.
pub(crate) fn vm(root: &Path) -> Tally {
    heading("the virtual machine (once: its guest is the same for every user)");
    let test = ["test", "--workspace", "--test", "vm"];
    let mut command = cargo();
    command.args(test).current_dir(root);
    let output = capture(&mut command);
    Tally::of_tests("linerate/test vm", &output)
}

/// The report's page in a real browser, with the page's own tools (npm).
fn page(root: &Path) -> Tally {
    const SCRIPT: &str = "command -v npm >/dev/null || { echo 'SKIP: there is no npm'; exit 0; }
        [ -d node_modules ] || npm ci --no-audit --no-fund ||
            { echo 'SKIP: npm could not install what the tests of the page need'; exit 0; }
        npm test --silent";
    let folder = root.join("web");
    if !folder.join("package.json").exists() {
        return Tally::default();
    }
    heading("the page in a browser");
    let mut test = Command::new("sh");
    let output = capture(test.args(["-c", SCRIPT]).current_dir(folder));
    Tally::of_gate("the page in a browser", &output)
}

/// All programs as one user.
fn round(user: std::io::Result<User>, programs: &[Program]) -> Tally {
    let mut tally = Tally::default();
    let user = match user {
        Ok(user) => user,
        Err(error) => {
            eprintln!("cannot make a home for the tests in /tmp: {error}");
            return Tally::of_gate("a home for the tests", &Output::default());
        }
    };
    if let Some(obstacle) = programs
        .first()
        .and_then(|first| user.obstacle(&first.file))
    {
        println!("SKIP: {obstacle}");
        tally.skips.push(obstacle);
        return tally;
    }
    for program in programs {
        let Program { package, name, .. } = program;
        let title = format!("{package}/{name} as {}", user.name);
        heading(&title);
        let mut command = user.command(&program.file, &program.folder, &["--show-output"]);
        command.env("CARGO_MANIFEST_DIR", &program.folder);
        tally.add(Tally::of_tests(&title, &capture_tests(&mut command)));
    }
    tally
}

/// The test programs that cargo's messages name.
fn programs(messages: &str) -> Vec<Program> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["profile"]["test"] == true)
        .filter_map(|message| {
            let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
            Some(Program {
                package: package_name(message["package_id"].as_str()?, folder),
                name: format!(
                    "{} {}",
                    message["target"]["kind"][0].as_str()?,
                    message["target"]["name"].as_str()?
                ),
                folder: folder.to_owned(),
                file: PathBuf::from(message["executable"].as_str()?),
            })
        })
        .collect()
}

/// The name in a package id (`path+file:///x/model#linerate-model@0.1.0`); where the id has only the
/// version, cargo means that the folder's name is the package's.
fn package_name(id: &str, folder: &Path) -> String {
    let fragment = id.rsplit_once('#').map_or("", |(_, fragment)| fragment);
    match fragment.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    }
}

fn show_errors(messages: &str) {
    for line in messages.lines() {
        let message = serde_json::from_str::<Value>(line).unwrap_or_default();
        if let Some(text) = message["message"]["rendered"].as_str() {
            eprint!("{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_programs_are_taken_from_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","package_id":"path+file:///x/crates/host#linerate-host@0.1.0","#,
            r#""manifest_path":"/x/crates/host/Cargo.toml","target":{"kind":["lib"],"name":"linerate_host"},"#,
            r#""profile":{"test":true},"executable":"/x/target/debug/deps/linerate_host-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///x/crates/linerate#0.1.0","#,
            r#""manifest_path":"/x/crates/linerate/Cargo.toml","target":{"kind":["bin"],"name":"linerate"},"#,
            r#""profile":{"test":false},"executable":"/x/target/debug/linerate"}"#,
            "\nnot json\n",
        );
        let expected = Program {
            package: "linerate-host".to_owned(),
            name: "lib linerate_host".to_owned(),
            folder: PathBuf::from("/x/crates/host"),
            file: PathBuf::from("/x/target/debug/deps/linerate_host-1"),
        };
        assert_eq!(programs(messages), [expected]);
        assert_eq!(
            package_name("path+file:///x/xtask#0.1.0", Path::new("/x/xtask")),
            "xtask"
        );
    }
}

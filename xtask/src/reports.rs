//! `make reports`: redoes the field reports at small size, between two network namespaces, and writes a page for each. The
//! steps are data: `docs/reports/*.toml`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use toml::Table;

/// `linerate`'s exit code of what a host does not support: the step is skipped with its reason.
const NOT_SUPPORTED: i32 = 22;
/// Codes of a step that came to a result: done, findings, a requirement or a verdict that cannot be given.
const RESULTS: [i32; 4] = [0, 10, 11, 12];
/// Two links, as the reports have.
const SUBNETS: [u8; 2] = [9, 10];

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:76em;margin:2em auto;padding:0 1em}\
    pre{background:#f4f4f6;padding:.8em;overflow-x:auto;font-size:13px;line-height:1.35}code{background:#f4f4f6}\
    .skipped{color:#7a5200}.failed{color:#a00000}@media(prefers-color-scheme:dark){body{background:#16181d;color:#dde}\
    pre,code{background:#22252c}a{color:#8ab4f8}.skipped{color:#e0b050}.failed{color:#ff8080}}";

/// What one step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Skipped,
    Failed,
}

/// Runs every report, or those whose names are given; returns a line for each.
pub(crate) fn run(root: &Path, wanted: &[String]) -> Result<String, String> {
    let program = root.join("target/demo/linerate");
    if !program.exists() {
        return Err("target/demo/linerate is missing: run `make reports`".to_owned());
    }
    let namespaces = Namespaces::create()?;
    let mut lines = String::new();
    let mut failed = 0;
    for file in definitions(root)? {
        let name = file
            .file_stem()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if !wanted.is_empty() && !wanted.iter().any(|one| one == name) {
            continue;
        }
        let report = Report {
            root,
            program: &program,
            namespaces: &namespaces,
            out: root.join("target/reports").join(name),
        };
        let outcomes = report.redo(&file)?;
        let count = |outcome| outcomes.iter().filter(|one| **one == outcome).count();
        failed += count(Outcome::Failed);
        let page = report.page();
        let _ = writeln!(
            lines,
            "report {name}: {} steps done, {} skipped, {} failed: {}",
            count(Outcome::Done),
            count(Outcome::Skipped),
            count(Outcome::Failed),
            page.strip_prefix(root).unwrap_or(&page).display()
        );
    }
    if failed > 0 {
        return Err(format!(
            "{lines}{failed} steps failed; their pages have the output"
        ));
    }
    Ok(lines)
}

fn definitions(root: &Path) -> Result<Vec<PathBuf>, String> {
    let folder = root.join("docs/reports");
    let entries =
        std::fs::read_dir(&folder).map_err(|error| failed("read docs/reports", &error))?;
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> = files
        .filter(|file| file.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    files.sort();
    Ok(files)
}

fn failed(doing: &str, error: &dyn std::fmt::Display) -> String {
    format!("cannot {doing}: {error}")
}

/// One report that is being redone.
struct Report<'a> {
    root: &'a Path,
    program: &'a Path,
    namespaces: &'a Namespaces,
    out: PathBuf,
}

impl Report<'_> {
    fn page(&self) -> PathBuf {
        self.out.join("index.html")
    }

    /// Runs every step, and writes the page.
    fn redo(&self, file: &Path) -> Result<Vec<Outcome>, String> {
        let text =
            std::fs::read_to_string(file).map_err(|error| failed("read a report", &error))?;
        let table: Table = text
            .parse()
            .map_err(|error: toml::de::Error| format!("{}: {error}", file.display()))?;
        let title = text_of(&table, "title");
        if self.out.exists() {
            std::fs::remove_dir_all(&self.out)
                .map_err(|error| failed("remove old pages", &error))?;
        }
        std::fs::create_dir_all(&self.out)
            .map_err(|error| failed("create target/reports", &error))?;
        let steps = table.get("steps").and_then(|steps| steps.as_array());
        let (mut body, mut outcomes) = (String::new(), Vec::new());
        for step in steps
            .into_iter()
            .flatten()
            .filter_map(|step| step.as_table())
        {
            println!("{title}: {}", text_of(step, "what"));
            let done = self.step(&text_of(step, "run"))?;
            let outcome = match done.status.code() {
                Some(code) if RESULTS.contains(&code) => Outcome::Done,
                Some(NOT_SUPPORTED) => Outcome::Skipped,
                _ => Outcome::Failed,
            };
            outcomes.push(outcome);
            body += &self.section(step, &done, outcome);
        }
        let page = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
             content=\"width=device-width\"><title>{0}</title><style>{STYLE}</style><h1>{0}</h1>\n<p>Redone at small size \
             between two network namespaces of one machine: the figures show function, not speed.</p>\n{body}</html>\n",
            escaped(&title)
        );
        std::fs::write(self.page(), page).map_err(|error| failed("write a page", &error))?;
        Ok(outcomes)
    }

    /// Runs a command as its author would type it, with `linerate` on the path.
    fn step(&self, command: &str) -> Result<Output, String> {
        // `ip netns exec` has mounts of its own: runs and journals stay out of this machine's state directory.
        let own_state = "mkdir -p \"$STATE\" /var/lib/linerate && chmod 700 \"$STATE\" && \
                         mount --bind \"$STATE\" /var/lib/linerate || exit 1\n";
        let command = format!("{own_state}{command}");
        let programs = self.program.parent().unwrap_or(self.root);
        let path = std::env::var("PATH").unwrap_or_default();
        Command::new("ip")
            .args(["netns", "exec", &self.namespaces.near, "sh", "-c", &command])
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("OUT", &self.out)
            .env("CONF", self.root.join("docs/reports"))
            .env("STATE", self.out.join("state"))
            .env("COLUMNS", "120")
            .current_dir(&self.out)
            .output()
            .map_err(|error| failed("run ip(8)", &error))
    }

    fn section(&self, step: &Table, done: &Output, outcome: Outcome) -> String {
        let rows = step.get("rows").and_then(|rows| rows.as_array());
        let rows: Vec<&str> = rows
            .into_iter()
            .flatten()
            .filter_map(|row| row.as_str())
            .collect();
        let of_step = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            escaped(&text.replace(&format!("{}", self.out.display()), "$OUT"))
        };
        let verdict = match outcome {
            Outcome::Done => "",
            Outcome::Skipped => {
                "<p class=\"skipped\">Skipped: this machine does not have it.</p>\n"
            }
            Outcome::Failed => "<p class=\"failed\">Failed.</p>\n",
        };
        let page = text_of(step, "page");
        let link = if !page.is_empty() && self.out.join(&page).exists() {
            format!(
                "<p><a href=\"{0}\">Charts and tables of this run</a></p>\n",
                escaped(&page)
            )
        } else {
            String::new()
        };
        format!(
            "<h2>{}: {}</h2>\n<pre><code>{}</code></pre>\n{verdict}{link}<pre>{}{}</pre>\n",
            escaped(&rows.join(", ")),
            escaped(&text_of(step, "what")),
            escaped(text_of(step, "run").trim()),
            of_step(&done.stderr),
            of_step(&done.stdout),
        )
    }
}

fn text_of(table: &Table, key: &str) -> String {
    let text = table.get(key).and_then(|value| value.as_str());
    text.unwrap_or_default().to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Two network namespaces with two links; they go with this value.
struct Namespaces {
    near: String,
}

/// The namespace that the steps name as their peer.
const FAR: &str = "far";

impl Namespaces {
    fn create() -> Result<Self, String> {
        if Path::new("/run/netns").join(FAR).exists() {
            return Err(format!(
                "there is a network namespace {FAR} already: remove it with `ip netns del {FAR}`"
            ));
        }
        let made = Self {
            near: format!("reports-{}", std::process::id()),
        };
        let near = made.near.as_str();
        ip(&["netns", "add", near])?;
        ip(&["netns", "add", FAR])?;
        for (number, subnet) in SUBNETS.iter().enumerate() {
            let (here, there) = (format!("near{number}"), format!("far{number}"));
            ip(&[
                "link", "add", &here, "netns", near, "type", "veth", "peer", "name", &there,
                "netns", FAR,
            ])?;
            for (namespace, nic, host) in [(near, &here, 1), (FAR, &there, 2)] {
                let address = format!("10.77.{subnet}.{host}/24");
                ip(&["-n", namespace, "address", "add", &address, "dev", nic])?;
                ip(&["-n", namespace, "link", "set", nic, "up"])?;
            }
        }
        for namespace in [near, FAR] {
            ip(&["-n", namespace, "link", "set", "lo", "up"])?;
        }
        // Without it the cost of encapsulation is skipped with its reason.
        if let Err(why) = made.add_tunnel() {
            println!("no VXLAN: {why}");
        }
        Ok(made)
    }

    /// A VXLAN over the first link (RFC 7348).
    fn add_tunnel(&self) -> Result<(), String> {
        for (namespace, host, other) in [(self.near.as_str(), 1, 2), (FAR, 2, 1)] {
            let nic = if namespace == FAR { "far0" } else { "near0" };
            let remote = format!("10.77.{}.{other}", SUBNETS[0]);
            ip(&[
                "-n", namespace, "link", "add", "vxlan7", "type", "vxlan", "id", "7", "remote",
                &remote, "dstport", "4789", "dev", nic,
            ])?;
            let address = format!("10.77.7.{host}/24");
            ip(&["-n", namespace, "address", "add", &address, "dev", "vxlan7"])?;
            ip(&["-n", namespace, "link", "set", "vxlan7", "up"])?;
        }
        Ok(())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for namespace in [self.near.as_str(), FAR] {
            // One that was never made is no loss.
            let _ = ip(&["netns", "del", namespace]);
        }
    }
}

fn ip(words: &[&str]) -> Result<(), String> {
    let done = Command::new("ip").args(words).output();
    let done = done.map_err(|error| failed("run ip(8)", &error))?;
    if done.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&done.stderr);
    Err(format!(
        "`ip {}`: {}; as root?",
        words.join(" "),
        why.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_report_has_steps_that_name_their_rows_and_all_thirty_rows_have_one() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut rows = std::collections::BTreeSet::new();
        for file in definitions(&root).expect("docs/reports") {
            let text = std::fs::read_to_string(&file).expect("a report");
            let table: Table = text.parse().expect("TOML");
            assert!(!text_of(&table, "title").is_empty(), "{}", file.display());
            for step in table["steps"].as_array().expect("steps") {
                let step = step.as_table().expect("a table");
                for key in ["what", "run"] {
                    assert!(
                        !text_of(step, key).is_empty(),
                        "{key} in {}",
                        file.display()
                    );
                }
                let named = step["rows"].as_array().expect("rows");
                rows.extend(
                    named
                        .iter()
                        .filter_map(|row| row.as_str())
                        .map(str::to_owned),
                );
            }
        }
        let missing: Vec<String> = (1..=30)
            .map(|row| format!("S{row}"))
            .filter(|row| !rows.contains(row))
            .collect();
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn what_a_command_prints_is_text_on_the_page() {
        assert_eq!(escaped("<b>&</b>"), "&lt;b&gt;&amp;&lt;/b&gt;");
    }
}
